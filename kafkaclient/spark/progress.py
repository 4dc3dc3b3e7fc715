"""How far a streaming query is: its lag, rows and bytes, from the progress that Spark reports.

Spark asks only JVM sources for metrics of their own (``ReportsSourceMetrics``). What
``KafkaMicroBatchStream.metrics`` would answer is computed from the offsets in Spark's progress.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkaclient.spark.offsets import created_again, parse_offsets, topic_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import TopicPartition


_OBSERVED = "kafkaclient"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query after a trigger."""

    rows: int
    """Rows that the trigger read, according to Spark."""
    offsets: int | None
    """Offsets that the trigger read: more than rows in compacted topics, or with transactions. None
    if Spark does not report where a partition started: in a query's first batch, and in the first
    batch of a partition that was added."""
    behind: Mapping[TopicPartition, int] | None
    """By partition: offsets that the source knew and that are not read yet. None, as the three
    numbers below, if the source did not ask for the latest offsets: after a restart, in the trigger
    that repeats a batch."""

    @property
    def min_offsets_behind_latest(self) -> int | None:
        return min(self.behind.values()) if self.behind else None

    @property
    def max_offsets_behind_latest(self) -> int | None:
        return max(self.behind.values()) if self.behind else None

    @property
    def avg_offsets_behind_latest(self) -> float | None:
        return sum(self.behind.values()) / len(self.behind) if self.behind else None


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query after a trigger."""

    batch: int
    sources: tuple[SourceProgress, ...]
    """The query's sources that read Kafka, in Spark's order."""
    bytes: int | None
    """Bytes of keys and values that the trigger read. None without :func:`count_bytes`."""


def progress(query: Any) -> QueryProgress | None:
    """The progress of a query's last trigger, with the metrics of spark-sql-kafka.

    ``query`` is a ``StreamingQuery``, the ``progress`` of a listener's ``QueryProgressEvent``, or
    an item of ``recentProgress``. None before the first trigger. "Latest" is what the source knew
    when it planned the trigger (Java: ``KafkaMicroBatchStream.metrics``).
    """
    given = query.lastProgress if hasattr(query, "lastProgress") else query
    if given is None:
        return None
    sources = (_source(each) for each in given["sources"])
    observed = (given["observedMetrics"] or {}).get(_OBSERVED)
    return QueryProgress(
        given["batchId"],
        tuple(each for each in sources if each is not None),
        None if observed is None else observed["bytes"] or 0,
    )


def count_bytes(frame: Any) -> Any:
    """The frame, which counts the bytes of its columns ``key`` and ``value`` for :func:`progress`.

    Call it on what ``load()`` returned, once per query. Uses ``DataFrame.observe``, so the count is
    also in Spark's ``observedMetrics``, as ``kafkaclient``. With the option ``columns`` only the
    columns that are read are counted.
    """
    from pyspark.sql import functions  # noqa: PLC0415 - the rest works on stored progress

    none = functions.lit(0)
    names = {"key", "value"} & {*frame.columns}
    size = sum((functions.coalesce(functions.octet_length(n), none) for n in names), none)
    return frame.observe(_OBSERVED, functions.sum(size).alias("bytes"))


def _source(given: Mapping[str, Any]) -> SourceProgress | None:
    """None for a source of another kind."""
    try:
        names = ("startOffset", "endOffset", "latestOffset")
        decoded = [_decoded(given[name]) for name in names]
        start, end, latest = (parse_offsets(each) if each else {} for each in decoded)
        again = created_again(*map(topic_ids, decoded[:2]))
    except (ValueError, AttributeError):
        return None
    if not end and given["endOffset"] != "{}":  # it is of a source whose pattern has no match
        return None
    read = None
    if all((tp in start and tp.topic not in again) or not offset for tp, offset in end.items()):
        # The log may have become shorter: it is not read then.
        read = sum(max(0, offset - start.get(tp, 0)) for tp, offset in end.items())
    behind = {tp: max(0, offset - end.get(tp, offset)) for tp, offset in latest.items()}
    return SourceProgress(given["numInputRows"], read, behind or None)


def _decoded(given: Any) -> Any:
    return json.loads(given or "null") if isinstance(given, str) else given
