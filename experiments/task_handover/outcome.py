"""Gaps and counts in the output of the instances, which another client's consumer reads."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from experiments.task_handover.plan import Step

__all__ = ["Counted", "Outcome", "Window", "read_counts"]

_READ_WITHIN_S = 120.0
_MOST_EXAMPLES = 50


class Counted(NamedTuple):
    """A record of the output: the number of times that its key was counted."""

    key: bytes
    number: int
    at: float
    """When the broker appended the record, in seconds since 1970."""


class Window(NamedTuple):
    """The time of a step, in seconds since 1970."""

    step: Step
    begins: float
    ends: float


@dataclass(slots=True)
class Outcome:
    """Gaps and wrong counts by step. Records are added in the order of each partition's log."""

    tasks: int
    windows: Sequence[Window]
    wrong: defaultdict[Step, int] = field(default_factory=lambda: defaultdict(int))
    """Step -> records whose number does not follow the last number of the key."""
    examples: list[str] = field(default_factory=list)
    """The first wrong records, in words."""
    _times: dict[int, list[float]] = field(default_factory=dict)
    _last: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, records: Iterable[Counted]) -> None:
        for key, number, at in records:
            if number != self._last[key] + 1:
                step = self._step_at(at)
                self.wrong[step] += 1
                task = partition_for_key(key, self.tasks)
                last = self._last[key]
                self._note(f"{step}: task 0_{task}: {key!r}: {number} after {last} at {at:.3f}")
            self._last[key] = number
            self._times.setdefault(partition_for_key(key, self.tasks), []).append(at)

    def end(self, sent: Mapping[bytes, int]) -> None:
        """Compare the last numbers with ``sent``; differences count as errors of the last step."""
        for key in sent.keys() | self._last.keys():
            count, last = sent.get(key, 0), self._last[key]
            if last != count:
                self.wrong[self.windows[-1].step] += 1
                self._note(f"at the end: {key!r}: {last} of {count}")

    def _note(self, example: str) -> None:
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(example)

    def gaps(self, window: Window) -> list[float]:
        """The longest time without output in the window, in seconds, for each task."""
        longest = []
        for task in range(self.tasks):
            times = sorted(t for t in self._times.get(task, ()) if window.begins < t < window.ends)
            marks = [window.begins, *times, window.ends]
            longest.append(max(b - a for a, b in pairwise(marks)))
        return longest

    def _step_at(self, at: float) -> Step:
        for window in self.windows:
            if at < window.ends:
                return window.step
        return self.windows[-1].step


async def read_counts(bootstrap: str, topic: str, partitions: int, outcome: Outcome) -> None:
    """Read all committed records with aiokafka's consumer, into ``outcome``.

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
                        outcome.add(
                            Counted(r.key, int(r.value), r.timestamp / 1000) for r in records
                        )
        finally:
            await reader.stop()
    finally:
        await witness.stop()
