"""Reads one small partition from start to end, without a consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.wire.fetch import FetchByNameCall, FetchPartition, FetchTopic
from kafkaclient.wire.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsCall
from kafkaclient.wire.record_reader import BATCH_OVERHEAD, HEADER, BatchHeader, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.admin.session import Session
    from kafkaclient.wire.record_reader import Record

__all__ = ["read_partition"]

_MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 500


async def read_partition(session: Session, topic: str, partition: int) -> list[Record]:
    """Every record of the partition, up to its end offset at the time of the call.

    Runs within the time limit of the session. Raises the broker's error if the topic does not exist
    or this client may not read it.
    """
    return await session.until_answered(lambda: _read(session, topic, partition))


async def _read(session: Session, topic: str, partition: int) -> list[Record]:
    leader = await _leader(session, topic, partition)
    position = await _offset(session, topic, partition, leader, EARLIEST_TIMESTAMP)
    end = await _offset(session, topic, partition, leader, LATEST_TIMESTAMP)
    found: list[Record] = []
    while position < end:
        for header, batch in _whole_batches(
            await _fetch(session, topic, partition, leader, position)
        ):
            following = header.base_offset + header.last_offset_delta + 1
            if following > position:
                found += iter_records(batch)
                position = following
    return found


async def _fetch(
    session: Session, topic: str, partition: int, leader: int, position: int
) -> memoryview:
    wanted = FetchTopic(topic, None, (FetchPartition(partition, position, _MAX_BYTES),))
    call = FetchByNameCall((wanted,), _MAX_WAIT_MS, min_bytes=1, max_bytes=_MAX_BYTES)
    result = await session.once(call, leader)
    for found in result.partitions:
        _check(found.error_code, topic, partition)
        return found.records
    _check(result.error_code, topic, partition)
    return memoryview(b"")


def _whole_batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
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
