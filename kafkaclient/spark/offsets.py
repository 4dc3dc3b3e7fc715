"""Spark's offsets: their JSON, checkpoints, the start and end of a read, the division into tasks.

Pure. The rules are those of spark-sql-kafka (``JsonUtils``, ``KafkaOffsetRangeCalculator``,
``KafkaMicroBatchStream.rateLimit``), so options and checkpoints have the same meaning.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID


EARLIEST, LATEST = -2, -1  # in place of an offset, as in ListOffsets requests

_TOPIC_IDS = "@topicIds"  # beside the topics; no topic's name has an @


@dataclass(frozen=True, slots=True)
class ByOffset:
    """Each partition starts or ends at an offset, at ``EARLIEST`` or at ``LATEST``."""

    offsets: int | Mapping[TopicPartition, int]
    """One for all partitions, or one for each."""


@dataclass(frozen=True, slots=True)
class ByTime:
    """Each partition starts or ends at its first record with at least the given timestamp."""

    times: int | Mapping[TopicPartition, int]
    """Milliseconds since the epoch: one for all partitions, or one for each."""
    otherwise: Literal["error", "latest"]
    """What to do with a partition without such a record."""


OffsetLimit: TypeAlias = ByOffset | ByTime


@dataclass(frozen=True, slots=True, order=True)
class ReadRange:
    """Offsets ``start`` to ``end`` of a partition, ``end`` excluded."""

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


def parse_offsets(given: str | Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Offsets from ``{"topic": {"0": 23, "1": -2}}``, as text or decoded. Raises ValueError. The
    topics' ids are skipped."""
    decoded = _decode_json(given, '{"topic": {"0": 23, "1": -2}}')
    offsets = {}
    for topic, numbers in decoded.items():
        if topic == _TOPIC_IDS:
            continue
        if not isinstance(numbers, Mapping):
            raise ValueError(f"topic {topic} has {numbers!r} instead of offsets by partition")  # noqa: TRY004
        for number, offset in numbers.items():
            if not number.isdecimal():
                raise ValueError(f"topic {topic} has partition {number!r}, which is not a number")
            if type(offset) is not int or not EARLIEST <= offset < 2**63:
                raise ValueError(f"partition {topic}-{number} has {offset!r} instead of an offset")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def offsets_as_json(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The inverse of :func:`parse_offsets`. Sorted, because Spark compares offsets as text.

    The known ``ids`` of the topics are included (:func:`id_text`). spark-sql-kafka has none.
    """
    nested: dict[str, Any] = {}
    for (topic, number), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    known = {topic: ids[topic] for topic in nested if topic in ids}
    return nested | {_TOPIC_IDS: known} if known else nested


def id_text(topic_id: UUID) -> str:
    """The id as Kafka's tools show it."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_ids(offsets: Mapping[str, Any] | None) -> Mapping[str, str]:
    """The ids by topic in the result of :func:`offsets_as_json`."""
    found: Mapping[str, str] = (offsets or {}).get(_TOPIC_IDS, {})
    return found


def created_again(ids: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """The topics that have another id now: they were deleted and created again."""
    return {topic for topic in ids.keys() & now.keys() if ids[topic] != now[topic]}


def parse_partitions(given: str) -> tuple[TopicPartition, ...]:
    """Partitions from ``{"topic": [0, 1]}``. Raises ValueError."""
    decoded = _decode_json(given, '{"topic": [0, 1]}')
    found = set()
    for topic, numbers in decoded.items():
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError(f"topic {topic} has {numbers!r} instead of a list of partitions")
        found |= {TopicPartition(topic, number) for number in numbers}
    return tuple(sorted(found))


def _decode_json(given: str | Mapping[str, Any], form: str) -> Mapping[str, Any]:
    try:
        decoded = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); give {form}") from None
    if not isinstance(decoded, Mapping) or not decoded:
        raise ValueError(f"give {form}")
    return decoded


def split(
    ranges: Iterable[ReadRange], min_partitions: int | None, max_records: int | None
) -> list[ReadRange]:
    """The ranges of the tasks, as Spark's ``KafkaOffsetRangeCalculator`` divides them: none larger
    than ``max_records``, and about ``min_partitions`` of them or more, by dividing large ranges."""
    whole = [each for each in ranges if each.size]
    if max_records is not None:
        whole = [
            piece for each in whole for piece in _divide(each, math.ceil(each.size / max_records))
        ]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    small = {each for each in whole if _share(each.size, total, min_partitions) == 1}
    # The proportions are computed over the divided ranges only.
    rest = total - sum(each.size for each in small)
    parts = max(min_partitions - len(small), 1)
    counts = [1 if each in small else _share(each.size, rest, parts) for each in whole]
    return [
        piece for each, count in zip(whole, counts, strict=True) for piece in _divide(each, count)
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)  # Java's Math.round


def _divide(given: ReadRange, parts: int) -> list[ReadRange]:
    bounds = [given.start + given.size * number // parts for number in range(parts + 1)]
    return [
        ReadRange(given.topic, given.partition, start, end)
        for start, end in pairwise(bounds)
        if end > start
    ]


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """End offsets of a read of about ``most`` records, in proportion to each partition's size. A
    partition with records advances by at least one. ``start`` has each partition of ``end``."""
    sizes = {tp: max(0, offset - start[tp]) for tp, offset in end.items()}
    total = sum(sizes.values())
    return {
        tp: min(offset, start[tp] + max(1, most * sizes[tp] // total)) if sizes[tp] else offset
        for tp, offset in end.items()
    }


def listed(named: Collection[object]) -> str:
    """At most five of the names, and how many more there are."""
    names = sorted(map(str, named))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# --- Reads a batch's end offsets from a query's checkpoint ----------------------------------------

_HEADER_LINES = 2  # the version and the metadata; then there is one line per source


def end_offsets(location: str | None, batch: int) -> str | None:
    """The end offsets of a batch, one line per source, as Spark wrote them before the batch ran.

    Spark reads the same file to repeat the batch (Java: ``OffsetSeqLog``). ``location`` is the
    option checkpointLocation. None if the file cannot be read: the checkpoint is in HDFS, in an
    object store or on another machine, or it was set by configuration.
    """
    folder = _local(location)
    if folder is None:
        return None
    try:
        lines = (folder / "offsets" / str(batch)).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    if len(lines) <= _HEADER_LINES or not lines[0].startswith("v"):
        return None
    return "\n".join(lines[_HEADER_LINES:])


def _local(location: str | None) -> Path | None:
    if not location:
        return None
    # Parsed as Java's org.apache.hadoop.fs.Path does: %20, ? and # have no special meaning.
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    if scheme != "file":
        return None
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return Path(slash + path) if host in ("", "localhost") else None
