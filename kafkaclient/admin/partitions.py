"""The methods of :class:`~kafkaclient.admin.Admin` for partitions: offsets, records and leaders."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from kafkaclient.admin.running import Runnable
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.errors import ConfigError
from kafkaclient.topic_names import several_partitions
from kafkaclient.types import TopicPartition
from kafkaclient.wire.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchByNameCall,
    FetchPartition,
    FetchTopic,
    ListOffsetsCall,
)
from kafkaclient.wire.record_reader import BATCH_OVERHEAD, CONTROL, HEADER, BatchHeader
from kafkaclient.wire.topics import DeleteRecordsCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkaclient.admin.session import AdminSession
    from kafkaclient.errors import BrokerError, KafkaError
    from kafkaclient.wire.fetch import FetchedPartition, ListOffsetsResult


_FETCH_BYTES = 64 * 1024
_MAX_FETCHES = 16  # of a partition; a longer tail without visible records counts as lag
_CONCURRENT_FETCHES = 50
_REFUSED: dict[int, str] = {  # what else may be wrong with a deletion of records
    ErrorCode.INVALID_TOPIC_EXCEPTION: "records of Kafka's own topics cannot be deleted",
    44: "the topic is only compacted (cleanup.policy)",
}


class PartitionAdmin(Runnable):
    """The methods for partitions of :class:`~kafkaclient.admin.Admin`."""

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets of partitions. The result omits partitions that do not exist or have no
        leader. Raises AuthorizationError, or the leader's BrokerError."""
        return await self.list_offsets(partitions, EARLIEST_TIMESTAMP, timeout_s=timeout_s)

    async def end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        read_committed: bool = True,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The end offsets of partitions: by default the last stable offsets, which are before open
        transactions, or without ``read_committed`` the high watermarks, which Java's
        ``Admin.listOffsets`` returns by default. Otherwise as :meth:`beginning_offsets`."""
        return await self.list_offsets(
            partitions, LATEST_TIMESTAMP, read_committed=read_committed, timeout_s=timeout_s
        )

    async def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp_ms: int,
        *,
        read_committed: bool = True,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The offset of each partition's first record that is not older than ``timestamp_ms``
        (milliseconds since 1970); -1 if there is none. Otherwise as :meth:`beginning_offsets`."""
        wanted = set(several_partitions(partitions))
        async with self._operation("reading the offsets of partitions", timeout_s) as running:
            session = running.session
            if not wanted:
                return {}
            return await session.until_answered(
                lambda: _offsets(session, wanted, timestamp_ms, read_committed=read_committed)
            )

    async def without_visible_records(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        *,
        timeout_s: float | None = None,
    ) -> set[TopicPartition]:
        """The partitions of ``ranges`` (partition -> start and end offset, end excluded) where a
        ``read_committed`` reader finds no record: only transaction markers, aborted records, and
        offsets that compaction has removed. Raises as :meth:`beginning_offsets`."""
        limit = asyncio.Semaphore(_CONCURRENT_FETCHES)
        async with self._operation("looking for records in partitions", timeout_s) as running:
            session = running.session

            async def is_empty(tp: TopicPartition, start: int, end: int, leader: int) -> bool:
                async with limit:
                    return await _is_empty(session, tp, start, end, leader)

            async def attempt() -> set[TopicPartition]:
                leaders = {
                    tp: leader
                    for leader, led in (await _led(session, ranges)).items()
                    for tp in led
                }
                found = await asyncio.gather(
                    *(is_empty(tp, *ranges[tp], leader) for tp, leader in leaders.items())
                )
                return {tp for tp, empty in zip(leaders, found, strict=True) if empty}

            return await session.until_answered(attempt) if ranges else set()

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 deletes all that are written
        (KIP-107; Java: ``Admin.deleteRecords``). Returns each partition's first offset. The
        deletion cannot be undone. An offset before the first one changes nothing.

        Raises:
            ConfigError: an offset is less than -1.
            OffsetOutOfRangeError: an offset is beyond the end of its partition.
            UnknownTopicError: a partition does not exist.
            AuthorizationError: the principal may not ``Delete`` records of the topic.
            PolicyViolationError: the topic is only compacted (``cleanup.policy``).
            BrokerError: another error of a leader. Records of other partitions may be deleted.
        """
        for partition, offset in offsets.items():
            if offset < -1:
                raise ConfigError(
                    f"delete_records of {partition} before offset {offset}: give an offset of at "
                    "least 0, or -1 for all records"
                )
        deleted: dict[TopicPartition, int] = {}
        async with self._operation("deleting records", timeout_s) as running:

            async def attempt() -> None:
                left = {p: offset for p, offset in offsets.items() if p not in deleted}
                await _delete(running.session, left, deleted)

            if offsets:
                await running.session.until_answered(attempt)
        return deleted

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election_type: Literal["preferred", "unclean"] = "preferred",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Make the first replica of each partition its leader, as after a reassignment or a
        broker's restart; without ``partitions`` of all partitions (KIP-460; Java:
        ``Admin.electLeaders``).

        ``election_type="unclean"`` makes a replica that is not in sync the leader of partitions
        without one: **records that only the lost leader had are lost**.

        Returns by partition None, also if no election was needed, or the controller's error, such
        as PREFERRED_LEADER_NOT_AVAILABLE. Without ``partitions`` the result omits the partitions
        that needed no election. Raises AuthorizationError without the right to Alter the cluster;
        ConfigError for another ``election_type``.
        """
        if election_type not in ("preferred", "unclean"):
            raise ConfigError(f"election_type {election_type!r} is neither preferred nor unclean")
        wanted = None if partitions is None else several_partitions(partitions)
        async with self._operation("electing leaders", timeout_s) as running:
            return await running.reassignments.elect(wanted, unclean=election_type == "unclean")


async def _led(
    session: AdminSession, wanted: Iterable[TopicPartition]
) -> dict[int, dict[TopicPartition, int]]:
    """Leader -> its partitions, with their leader epochs."""
    wanted = set(wanted)
    led: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
    topics = tuple(sorted({p.topic for p in wanted}))
    for info in (await session.shared_metadata(topics, lambda: session.metadata(topics))).topics:
        for view in info.partitions:
            tp = TopicPartition(info.name, view.partition)
            if view.leader >= 0 and tp in wanted:
                led[view.leader][tp] = view.leader_epoch
    return led


async def _offsets(
    session: AdminSession, wanted: set[TopicPartition], timestamp: int, *, read_committed: bool
) -> dict[TopicPartition, int]:
    led = await _led(session, wanted)

    async def answer_of(leader: int) -> ListOffsetsResult:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in led[leader]:
            topics[topic].append(number)
        call = ListOffsetsCall(topics, timestamp, read_committed=read_committed, epochs=led[leader])
        return await session.once(call, leader)

    answers = await asyncio.gather(*map(answer_of, led))
    found = {}
    for each in (each for answer in answers for each in answer.partitions):
        if each.error_code:
            what = f"reading an offset of {each.topic}-{each.partition}"
            raise broker_error(each.error_code, what)
        found[TopicPartition(each.topic, each.partition)] = each.offset
    return found


async def _is_empty(
    session: AdminSession, tp: TopicPartition, start: int, end: int, leader: int
) -> bool:
    position = start
    for _ in range(_MAX_FETCHES):
        wanted = FetchTopic(tp.topic, None, (FetchPartition(tp.partition, position, _FETCH_BYTES),))
        call = FetchByNameCall((wanted,), 0, 1, _FETCH_BYTES, read_committed=True)
        for found in (await session.once(call, leader)).partitions:
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return False
            if found.error_code:
                raise broker_error(found.error_code, f"reading {tp.topic}-{tp.partition}")
            following = _after_invisible(found, position, end)
            if following is None:
                return False
            if following >= end or following == position:
                # Offsets up to the end that a fetch skips were removed by compaction.
                return True
            position = following
    return False


def _after_invisible(found: FetchedPartition, position: int, end: int) -> int | None:
    """The offset behind the fetched batches if none of them is visible before ``end``."""
    aborted = sorted(found.aborted, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    for header in _headers(found.records):
        last = header.base_offset + header.last_offset_delta
        while aborted and aborted[0].first_offset <= last:
            aborting.add(aborted.pop(0).producer_id)
        if header.attributes & CONTROL:
            aborting.discard(header.producer_id)
        elif (
            last >= position
            and header.base_offset < end
            and not (header.is_transactional and header.producer_id in aborting)
        ):
            return None
        position = max(position, last + 1)
    return position


def _headers(records: memoryview) -> Iterator[BatchHeader]:
    while len(records) >= BATCH_OVERHEAD:
        header = BatchHeader._make(HEADER.unpack_from(records))
        if header.size > len(records):
            return
        yield header
        records = records[header.size :]


async def _delete(
    session: AdminSession, offsets: Mapping[TopicPartition, int], deleted: dict[TopicPartition, int]
) -> None:
    """Send one request to each leader. Adds the first offsets to ``deleted``."""
    led: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
    leaders: dict[tuple[str, int], int] = {}
    for info in (await session.metadata(tuple(sorted({p.topic for p in offsets})))).topics:
        leaders |= {(info.name, view.partition): view.leader for view in info.partitions}
    for partition, offset in offsets.items():
        leader = leaders.get(partition)
        if leader is None:
            error = _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition)
            error.retriable = False  # brokers have answered that it does not exist
            raise error
        if leader < 0:
            raise _error(ErrorCode.LEADER_NOT_AVAILABLE, partition)  # retried
        led[leader][partition] = offset
    timeout_ms = session.controller_timeout_ms
    answers = await asyncio.gather(
        *(session.once(DeleteRecordsCall(part, timeout_ms), leader) for leader, part in led.items())
    )
    outcomes = [each for answer in answers for each in answer.partitions]
    deleted |= {each.partition: each.low_watermark for each in outcomes if not each.error_code}
    for each in outcomes:
        if each.error_code:
            raise _error(each.error_code, each.partition)


def _error(code: int, partition: TopicPartition) -> BrokerError:
    advice = _REFUSED.get(code) or denied(code, "Delete", partition.topic)
    return broker_error(code, f"deleting records of {partition}", advice=advice)
