"""Reads one small partition from its start to its end, without a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kafkaclient.errors import broker_error, denied
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall, ListOffsetsCall
from kafkaclient.wire.record_reader import BATCH_OVERHEAD, HEADER, BatchHeader, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.admin.session import Session
    from kafkaclient.wire.record_reader import Record

__all__ = ["FetchCall", "FetchResult", "read_partition"]

_EARLIEST = -2
_LATEST = -1
_MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 500


class FetchResult(NamedTuple):
    """The records of one partition, as they are on disk; the last batch may be cut off."""

    error_code: int
    records: bytes
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class FetchCall(CodecCall[FetchResult]):
    """Fetch one partition, outside of any fetch session. Must go to its leader."""

    # Version 13 names topics by id, which a partition this small does not need.
    api_key: ClassVar[ApiKey] = ApiKey.FETCH
    min_version: ClassVar[int] = 4
    max_version: ClassVar[int] = 12
    topic: str
    partition: int
    offset: int

    def _fields(self, version: int) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "partition": self.partition,
            "fetch_offset": self.offset,
            "partition_max_bytes": _MAX_BYTES,
        }
        return {
            "replica_id": -1,
            "max_wait_ms": _MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": _MAX_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self.topic, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    def _result(self, message: Any) -> FetchResult:
        throttle_ms = message.throttle_time_ms
        for topic in message.responses:
            for partition in topic.partitions:
                records = bytes(partition.records or b"")
                return FetchResult(partition.error_code, records, throttle_ms)
        return FetchResult(message.error_code or 0, b"", throttle_ms)


async def read_partition(session: Session, topic: str, partition: int) -> list[Record]:
    """Every record of the partition up to where it ended when this was called.

    Takes until the session's limit at most. Raises the broker's error when the topic does not
    exist or may not be read.
    """
    return await session.until_answered(lambda: _read(session, topic, partition))


async def _read(session: Session, topic: str, partition: int) -> list[Record]:
    leader = await _leader(session, topic, partition)
    position = await _offset(session, topic, partition, leader, _EARLIEST)
    end = await _offset(session, topic, partition, leader, _LATEST)
    found: list[Record] = []
    while position < end:
        fetched = await session.once(FetchCall(topic, partition, position), leader)
        _check(fetched.error_code, topic, partition)
        for header, batch in _whole_batches(fetched.records):
            following = header.base_offset + header.last_offset_delta + 1
            if following > position:
                found += iter_records(batch)
                position = following
    return found


def _whole_batches(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    view = memoryview(data)
    while len(view) >= BATCH_OVERHEAD:
        header = BatchHeader._make(HEADER.unpack_from(view))
        if header.size > len(view):
            return
        yield header, view[: header.size]
        view = view[header.size :]


async def _leader(session: Session, topic: str, partition: int) -> int:
    (info,) = (await session.metadata((topic,))).topics
    _check(info.error_code, topic, partition)
    for found in info.partitions:
        if found.partition == partition and found.leader >= 0:
            return found.leader
    raise broker_error(5, f"partition {topic}-{partition}")


async def _offset(session: Session, topic: str, partition: int, leader: int, when: int) -> int:
    call = ListOffsetsCall({topic: (partition,)}, timestamp=when)
    (found,) = (await session.once(call, leader)).partitions
    _check(found.error_code, topic, partition)
    return found.offset


def _check(code: int, topic: str, partition: int) -> None:
    if code:
        advice = denied(code, "Read", topic, by_itself=True)
        raise broker_error(code, f"reading {topic}-{partition}", advice=advice)
