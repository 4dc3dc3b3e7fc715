"""How far a streaming query is: its lag, rows and bytes, also for tools that show groups.

Spark asks only JVM sources for metrics of their own (``ReportsSourceMetrics``). What
``KafkaMicroBatchStream.metrics`` would answer is computed from the offsets in Spark's progress.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkaclient.admin import Admin
from kafkaclient.config.reader import AdminConfig
from kafkaclient.spark.offsets import parse_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicPartition


# --- How far a streaming query is: its lag, rows and bytes, from the progress that Spark ... ---

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

    size = functions.lit(0)
    for name in ("key", "value"):
        if name in frame.columns:
            length = functions.coalesce(functions.octet_length(name), functions.lit(0))
            size = size + length
    return frame.observe(_OBSERVED, functions.sum(size).alias("bytes"))


def _source(given: Mapping[str, Any]) -> SourceProgress | None:
    """None for a source of another kind."""
    try:
        start, end, latest = (
            _offsets(given[name]) for name in ("startOffset", "endOffset", "latestOffset")
        )
    except (ValueError, AttributeError):
        return None
    if not end and given["endOffset"] != "{}":  # it is of a source whose pattern has no match
        return None
    read = None
    if all(tp in start or not offset for tp, offset in end.items()):
        # A topic that was created again may end before its start, and is not read.
        read = sum(max(0, offset - start.get(tp, 0)) for tp, offset in end.items())
    behind = {tp: max(0, offset - end.get(tp, offset)) for tp, offset in latest.items()}
    return SourceProgress(given["numInputRows"], read, behind or None)


def _offsets(given: Any) -> dict[TopicPartition, int]:
    decoded = json.loads(given) if isinstance(given, str) and given not in ("", "null") else given
    return parse_offsets(decoded) if decoded and decoded != "null" else {}


# --- Commits how far a streaming read is to a consumer group, for tools that show the ... ---

_log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0  # of a commit
_PAUSE_S = 10.0  # after a failed commit

# The admin client accepts no fetch options.
_FOR_ADMIN = frozenset(
    name for declared in AdminConfig.OPTIONS.values() for name in declared.spellings
)


def new_admin(options: Mapping[str, str], dialer: Dialer | None) -> Admin:
    """An admin client with a reader's options."""
    shared = {name: value for name, value in options.items() if name in _FOR_ADMIN}
    return Admin(shared, dialer=dialer)


class GroupProgress:
    """Commits in the background, one commit at a time: the newest offsets follow a slow commit.

    The offsets are only for display: a query continues from its checkpoint. A failed commit is
    therefore a warning. The next one is tried 10 s later, or by :meth:`finish`.
    """

    def __init__(
        self, admin: Admin, group: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin
        self._group = group
        self._clock = clock
        self._paused_until = float("-inf")
        self._wanted: Mapping[TopicPartition, int] = {}
        self._committed: Mapping[TopicPartition, int] = {}
        self._running: asyncio.Task[None] | None = None
        self._warned = ""

    async def start(self) -> None:
        await self._admin.start()

    async def close(self) -> None:
        """Also after a failed start."""
        try:
            await self.finish()
        finally:
            await self._admin.close()

    def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets, unless the last commit was the same. Must be called in the event
        loop."""
        self._wanted = offsets
        if self._clock() >= self._paused_until:
            self._run()

    async def finish(self) -> None:
        """Commit what is not committed yet, and wait for it: at most 10 s for a commit."""
        await self._run()

    def _run(self) -> asyncio.Task[None]:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._commit(), name="kafkaclient-group-progress")
        return self._running

    async def _commit(self) -> None:
        while (offsets := self._wanted) != self._committed:
            try:
                await self._admin.alter_offsets(self._group, offsets, timeout_s=_TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - the query must go on
                self._warn(error)
                self._paused_until = self._clock() + _PAUSE_S
                return
            self._committed, self._warned = offsets, ""

    def _warn(self, error: Exception) -> None:
        """Once for failures of a kind in succession."""
        if type(error).__name__ != self._warned:
            self._warned = type(error).__name__
            _log.warning(
                "offsets cannot be committed to group %s (option commitOffsetsToGroup); the query "
                "is not affected, but the group's lag is not up to date: %s. No consumer may be a "
                "member of the group, and the client needs the permission Read of the group",
                self._group,
                error,
            )
