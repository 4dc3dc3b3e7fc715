"""Offsets as Spark has them: their JSON, where a read begins and ends, and how it is divided.

Pure. The rules are those of spark-sql-kafka (``JsonUtils``, ``KafkaOffsetRangeCalculator``,
``KafkaMicroBatchStream.rateLimit``), so that a checkpoint's limits mean the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EARLIEST",
    "LATEST",
    "ByOffset",
    "ByTime",
    "Edge",
    "Everywhere",
    "OffsetRange",
    "limited",
    "offsets_from",
    "offsets_to",
    "partitions_from",
    "split",
]

EARLIEST, LATEST = -2, -1
"""In place of an offset, as in Kafka's ListOffsets."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """All partitions begin, or end, at ``EARLIEST`` or ``LATEST``."""

    offset: int


@dataclass(frozen=True, slots=True)
class ByOffset:
    """Each partition has an offset of its own, or ``EARLIEST`` or ``LATEST``."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ByTime:
    """Each partition begins, or ends, at the first record that is not older than a time."""

    times: int | Mapping[TopicPartition, int]
    """Milliseconds since the epoch: for all, or for each."""
    otherwise: Literal["error", "latest"]
    """What it is where no record is as young."""


Edge: TypeAlias = Everywhere | ByOffset | ByTime


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A part of a partition, from ``start`` up to ``end``, excluded."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


# --- JSON -------------------------------------------------------------------------------------


def offsets_from(given: str | Mapping[str, Any]) -> dict[TopicPartition, int]:
    """From ``{"topic": {"0": 23, "1": -2}}``, as text or decoded. Raises ValueError."""
    decoded = _decoded(given, '{"topic": {"0": 23, "1": -2}}')
    offsets = {}
    for topic, numbers in decoded.items():
        if not isinstance(numbers, Mapping):
            raise ValueError(f"topic {topic} has {numbers!r} instead of offsets by partition")  # noqa: TRY004
        for number, offset in numbers.items():
            if not number.isdecimal():
                raise ValueError(f"topic {topic} has no partition {number!r}: it is a number")
            if not _is_int(offset) or offset < EARLIEST:
                raise ValueError(f"partition {topic}-{number} has {offset!r} instead of an offset")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def offsets_to(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The way back; in order, because Spark compares offsets by their text."""
    told: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        told.setdefault(topic, {})[str(number)] = offset
    return told


def partitions_from(given: str) -> tuple[TopicPartition, ...]:
    """From ``{"topic": [0, 1]}``. Raises ValueError."""
    decoded = _decoded(given, '{"topic": [0, 1]}')
    found = set()
    for topic, numbers in decoded.items():
        if not isinstance(numbers, list) or not all(_is_int(n) and n >= 0 for n in numbers):
            raise ValueError(f"topic {topic} has {numbers!r} instead of a list of partitions")
        found |= {TopicPartition(topic, number) for number in numbers}
    return tuple(sorted(found))


def _decoded(given: str | Mapping[str, Any], form: str) -> Mapping[str, Any]:
    try:
        decoded = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); give {form}") from None
    if not isinstance(decoded, Mapping) or not decoded:
        raise ValueError(f"give {form}")
    return decoded


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- dividing ---------------------------------------------------------------------------------


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """One task for each, as Spark's ``KafkaOffsetRangeCalculator`` makes them: none larger than
    ``max_records``, then at least about ``min_partitions`` of them, by dividing the large ones."""
    whole = [each for each in ranges if each.size]
    if max_records is not None:
        whole = [
            piece for each in whole for piece in _divided(each, math.ceil(each.size / max_records))
        ]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    small = [each for each in whole if _share(each.size, total, min_partitions) == 1]
    # What is left whole must not take part in the proportions of what is divided.
    rest = total - sum(each.size for each in small)
    parts = max(min_partitions - len(small), 1)
    pieces: list[OffsetRange] = []
    for each in whole:
        divided = each not in small
        pieces += _divided(each, _share(each.size, rest, parts)) if divided else [each]
    return pieces


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)  # Java's Math.round


def _divided(given: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [given.start + given.size * number // parts for number in range(parts + 1)]
    return [
        OffsetRange(given.topic, given.partition, start, end)
        for start, end in pairwise(bounds)
        if end > start
    ]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends of a read of about ``most`` offsets, in proportion to what the partitions have; one
    that has any moves on by one at least. ``start`` has each partition of ``end``."""
    sizes = {tp: max(0, offset - start[tp]) for tp, offset in end.items()}
    total = sum(sizes.values())
    return {
        tp: min(offset, start[tp] + max(1, most * sizes[tp] // total)) if sizes[tp] else offset
        for tp, offset in end.items()
    }
