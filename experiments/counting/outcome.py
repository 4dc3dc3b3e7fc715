"""Gaps and counts in the output of the instances, which another client's consumer reads."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Counted", "Gap", "Outcome", "Window", "read_committed", "read_counts"]

_READ_WITHIN_S = 300.0
_MOST_EXAMPLES = 50


class Counted(NamedTuple):
    """A record of the output: the number of times that its key was counted."""

    key: bytes
    number: int
    at: float
    """When the broker appended the record, in seconds since 1970."""


class Window(NamedTuple):
    """A part of the run, such as a step, in seconds since 1970."""

    name: str
    begins: float
    ends: float


class Gap(NamedTuple):
    """A time in which a task's output has no record, in seconds since 1970."""

    task: int
    begins: float
    ends: float

    @property
    def seconds(self) -> float:
        return self.ends - self.begins


@dataclass(slots=True)
class Outcome:
    """Gaps and wrong counts by window. Records are added in the order of each partition's log."""

    tasks: int
    windows: Sequence[Window]
    """In the order of time."""
    may_repeat: bool = False
    """At least once: records may be counted and written again, but none may be left out."""
    wrong: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Window -> records whose number does not follow the last number of the key."""
    examples: list[str] = field(default_factory=list)
    """The first wrong records, in words."""
    _times: dict[int, list[float]] = field(default_factory=dict)
    _last: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, records: Iterable[Counted]) -> None:
        """Take the next records of a partition."""
        for key, number, at in records:
            task = partition_for_key(key, self.tasks)
            expected = self._last[key] + 1
            if number > expected or (number < expected and not self.may_repeat):
                window = self._window_at(at)
                self.wrong[window] += 1
                last = self._last[key]
                self._note(f"{window}: task 0_{task}: {key!r}: {number} after {last} at {at:.3f}")
            self._last[key] = number
            self._times.setdefault(task, []).append(at)

    def end(self, sent: Mapping[bytes, int]) -> None:
        """Compare the last numbers with ``sent``; differences count as errors of the last
        window."""
        for key in sent.keys() | self._last.keys():
            count, last = sent.get(key, 0), self._last[key]
            if last < count or (last > count and not self.may_repeat):
                self.wrong[self.windows[-1].name] += 1
                self._note(f"at the end: {key!r}: {last} of {count}")

    def _note(self, example: str) -> None:
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(example)

    @property
    def records(self) -> int:
        """Records so far."""
        return sum(map(len, self._times.values()))

    @property
    def last_at(self) -> float:
        """When the first of all tasks had its last record."""
        return min((max(times) for times in self._times.values()), default=0.0)

    def gaps(self, window: Window) -> list[float]:
        """The longest time without output in the window, in seconds, for each task."""
        longest = [0.0] * self.tasks
        for gap in self.all_gaps(window):
            longest[gap.task] = max(longest[gap.task], gap.seconds)
        return longest

    def all_gaps(self, window: Window, at_least_s: float = 0.0) -> list[Gap]:
        """The times without output in the window of each task."""
        found = []
        for task in range(self.tasks):
            times = sorted(t for t in self._times.get(task, ()) if window.begins < t < window.ends)
            for begins, ends in pairwise([window.begins, *times, window.ends]):
                if ends - begins >= at_least_s:
                    found.append(Gap(task, begins, ends))
        return found

    def _window_at(self, at: float) -> str:
        for window in self.windows:
            if at < window.ends:
                return window.name
        return self.windows[-1].name


async def read_counts(bootstrap: str, topic: str, partitions: int, outcome: Outcome) -> None:
    """Read all committed records into ``outcome``. Raises as :func:`read_committed`."""

    def add(records: Sequence[Any]) -> None:
        outcome.add(Counted(r.key, int(r.value), r.timestamp / 1000) for r in records)

    await read_committed(bootstrap, topic, partitions, add)


async def read_committed(
    bootstrap: str, topic: str, partitions: int, take: Callable[[Sequence[Any]], None]
) -> None:
    """Call ``take`` with the committed records of partitions, as aiokafka's consumer has them, in
    the order of each partition.

    Raises TimeoutError if an open transaction keeps the consumer from the end.
    """
    module = import_module("aiokafka")
    wanted = [module.TopicPartition(topic, number) for number in range(partitions)]
    witness = module.AIOKafkaConsumer(bootstrap_servers=bootstrap)
    reader = module.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await witness.start()
    try:
        await reader.start()
        try:
            ends = await witness.end_offsets(wanted)
            reader.assign(wanted)
            async with asyncio.timeout(_READ_WITHIN_S):
                while any([await reader.position(each) < ends[each] for each in wanted]):
                    for records in (await reader.getmany(timeout_ms=200)).values():
                        take(records)
        finally:
            await reader.stop()
    finally:
        await witness.stop()
