"""What ``kafkaclient consume`` reads, alone or in a group, and when it has read enough."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeAlias

import kafkaclient
from kafkaclient.errors import (
    FetchTimeoutError,
    InvalidRecordError,
    KafkaError,
    RegistryUnavailableError,
)
from kafkaclient.time_limit import cancel_and_wait, monotonic
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kafkaclient.admin.places import Place
    from kafkaclient.cli.record_format import Printed, Records
    from kafkaclient.cli.record_output import Output
    from kafkaclient.cli.registry import Decoder
    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.reader import Reader

Failed: TypeAlias = dict[TopicPartition, KafkaError]
"""The partitions that could not be read to their ends, and why."""

_POLL_MS = 200.0
_MOST = 10_000  # records of a poll


class Plan(NamedTuple):
    """What to print of which topics."""

    topics: list[str]
    partitions: frozenset[int]
    start: Place
    until: Place | None
    most: int | None
    filters: list[Callable[[Printed], bool]]
    headers: bool
    skip_errors: bool
    """Whether to leave out records that cannot be decoded."""
    decoder: Decoder | None = None

    async def ranges(
        self, reader: Reader, where: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """The offsets to begin and to end at, without partitions of which nothing is to read."""
        first = await reader.offsets(where, "earliest")
        end = await reader.offsets(where, "latest")
        starts = await self.start.of(reader.offsets, first, end)
        stops = {} if self.until is None else await self.until.of(reader.offsets, first, end)
        found: dict[TopicPartition, tuple[int, int | None]] = {}
        for each, start in starts.items():
            stop = stops.get(each)
            if stop is None or start < stop:
                found[each] = (start, stop)
        return found


class Printer:
    """Counts what is printed to :attr:`output`, and knows when it is enough."""

    output: Output

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.total = 0
        self.skipped = 0
        self.first_skipped: KafkaError | None = None

    @property
    def left(self) -> int | None:
        return None if self._plan.most is None else self._plan.most - self.total

    @property
    def is_enough(self) -> bool:
        return self.left == 0

    async def write(self, records: Records) -> None:
        wrong: list[KafkaError] = []
        if self._plan.decoder is not None:
            skip = self._plan.skip_errors
            records, wrong = await self._plan.decoder.decoded(records, skip_errors=skip)
        for matches in self._plan.filters:
            records = [record for record in records if matches(record)]
        if self.left is not None and len(records) > self.left:
            records = list(islice(records, self.left))
        if records:
            await self._write(records)
        if self.is_enough:
            return
        for error in wrong:
            self._skip(error)

    async def _write(self, records: Records) -> None:
        try:
            await self.output.write(records)
        except InvalidRecordError as error:
            if len(records) == 1:
                self._skip(error)
                return
            rows = list(records)
            for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                await self._write(part)
        else:
            self.total += len(records)

    def _skip(self, error: KafkaError) -> None:
        if not self._plan.skip_errors or isinstance(error, RegistryUnavailableError):
            raise error
        self.skipped += 1
        self.first_skipped = self.first_skipped or error


async def read(plan: Plan, options: Mapping[str, str], printer: Printer) -> Failed:
    """Read without a group. Without an end, the first partition that cannot be read is an error."""
    from kafkaclient.reader import Reader

    async with Reader(options) as reader, reader.read({}, headers=plan.headers) as reading:

        async def begin(where: list[TopicPartition]) -> None:
            for each, (start, stop) in (await plan.ranges(reader, where)).items():
                reading.add(each, start, stop)

        wanted = [TopicPartition(topic, n) for topic in plan.topics for n in plan.partitions]
        if not plan.partitions:
            wanted = [each for topic in plan.topics for each in await reader.partitions(topic)]
        async with _LookUp(reader, begin, news=reading.wake) as look_up:
            look_up.begin(wanted)
            failed: Failed = {}
            while True:
                failed |= look_up.failures() | reading.errors
                for where in reading.errors:
                    reading.remove(where)
                if failed and plan.until is None:
                    raise next(iter(failed.values()))
                if look_up.is_done and not reading.topics:
                    return failed
                await reading.wait()
                if (batch := reading.take()) is not None:
                    await printer.write(batch)
                if printer.is_enough:
                    return {}


async def consume_as_member(plan: Plan, options: Mapping[str, str], printer: Printer) -> Failed:
    """Read as a member of a group. What was printed is committed."""
    ends: dict[TopicPartition, int | None] = {}
    async with kafkaclient.Consumer(options, topics=plan.topics) as consumer:

        async def find_ends(where: list[TopicPartition]) -> None:
            ends.update(await consumer.offsets(where, "latest"))

        def is_read(where: TopicPartition) -> bool:
            return where in ends and (consumer.position(where) or 0) >= (ends[where] or 0)

        await consumer.wait_assigned()
        stalls = _Stalls(consumer)
        async with _LookUp(consumer, find_ends) as look_up:
            while not printer.is_enough:
                if plan.until is not None:
                    look_up.begin(consumer.assignment)
                # What is polled is committed: not more than is printed.
                most = _MOST if printer.left is None else min(_MOST, printer.left)
                began = monotonic()
                found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=most)
                polled_s = monotonic() - began
                for records in found.values():
                    await printer.write(records)
                failed = look_up.failures()
                if plan.until is not None:
                    unread = {each for each in consumer.assignment if not is_read(each)}
                    failed |= stalls.found(unread - failed.keys(), polled_s)
                    # An evicted member has no partitions, but has not read them to their ends.
                    if consumer.has_assignment and unread <= failed.keys():
                        break
            await consumer.commit()
            return {} if printer.is_enough else failed


class _Stalls:
    """Finds the partitions that could not be fetched for ``max.block.ms``, as a read without a
    group does. A consumer itself goes on trying."""

    def __init__(self, consumer: kafkaclient.Consumer) -> None:
        self._consumer = consumer
        self._limit_s = consumer.config.max_block_ms / 1000
        self._stalled: dict[TopicPartition, tuple[object, float]] = {}
        """By partition: its position and last fetch, and the time of polls since these changed."""

    def found(self, partitions: Iterable[TopicPartition], polled_s: float) -> Failed:
        """Those of the partitions, after a poll that took ``polled_s``. The time in which records
        are written does not count: nothing may be fetched then."""
        before, self._stalled = self._stalled, {}
        for where in partitions:
            now = self._consumer.position(where), self._consumer.last_fetch(where)
            then, stalled_s = before.get(where, (None, 0.0))
            self._stalled[where] = now, stalled_s + polled_s if now == then else 0.0
        return {
            where: self._error(where)
            for where, (_, stalled_s) in self._stalled.items()
            if stalled_s >= self._limit_s
        }

    def _error(self, where: TopicPartition) -> KafkaError:
        known = self._consumer.known_partitions(where.topic) or ()
        has_leader = any(each.partition == where.partition and each.leader >= 0 for each in known)
        why = "" if has_leader else ": it has no leader that is up"
        return FetchTimeoutError(
            f"nothing could be fetched at offset {self._consumer.position(where)} for "
            f"{self._limit_s:g} s (max.block.ms){why}"
        )


class _Client(Protocol):
    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]: ...


class _LookUp:
    """Looks up offsets of partitions in the background, those of each leader on their own, so that
    a partition without a leader holds up no other. ``find`` is called with partitions, and raises
    KafkaError if it cannot find those of one. ``news`` is called then, and at the end."""

    def __init__(
        self,
        client: _Client,
        find: Callable[[list[TopicPartition]], Awaitable[None]],
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._find = find
        self._news = news
        self._begun: set[TopicPartition] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: Failed = {}

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self._tasks)

    def failures(self) -> Failed:
        """The partitions whose offsets are not found. Raises what is not a KafkaError."""
        for task in self._tasks:
            if task.done():
                task.result()
        return self._failed

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up those of the partitions that are new."""
        new = [each for each in partitions if each not in self._begun]
        self._begun.update(new)
        if new:
            task = asyncio.create_task(self._look_up(new))
            self._tasks.append(task)
            task.add_done_callback(lambda _: self._news())

    async def _look_up(self, partitions: list[TopicPartition]) -> None:
        try:
            leaders = {
                TopicPartition(topic, view.partition): view.leader
                for topic in {each.topic for each in partitions}
                for view in await self._client.partitions_for(topic)
            }
        except KafkaError as error:
            self._failed |= dict.fromkeys(partitions, error)
            return
        groups: dict[object, list[TopicPartition]] = {}
        for each in partitions:
            leader = leaders.get(each, -1)
            groups.setdefault(each if leader < 0 else leader, []).append(each)
        await asyncio.gather(*map(self._find_all, groups.values()))

    async def _find_all(self, where: list[TopicPartition]) -> None:
        try:
            await self._find(where)
        except KafkaError as error:
            if len(where) > 1:
                await asyncio.gather(*(self._find_all([each]) for each in where))
            else:
                self._failed[where[0]] = error
                self._news()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_and_wait(*self._tasks)
