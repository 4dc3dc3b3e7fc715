"""Detects records whose processing takes too long.

The limit is the transaction timeout. For a processor that blocks the event loop, it is also the
group's session timeout.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.errors import StreamsError
from kafkaclient.streams.runtime.task_states import is_abort_error

if TYPE_CHECKING:
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

At: TypeAlias = "tuple[TopicPartition, int]"
"""A record: its partition and its offset."""


class SlowRecords:
    """The slow record detector of one task. Pure: the time is an argument.

    Brokers abort a transaction that is open for longer than ``transaction.timeout.ms``, and the
    task restarts at its committed offset. The record that exceeded the timeout then gets its own
    transaction. If that one is aborted, too, every retry would be, and the application must fail.
    """

    def __init__(
        self,
        task: TaskId,
        timeout_s: float | None,
        session_timeout_s: float,
    ) -> None:
        self._task = task
        self._timeout_s = timeout_s
        self._session_timeout_s = session_timeout_s
        self._slow: At | None = None
        """The last record reported as slow."""
        self._at: At | None = None
        self._started_at: float | None = None
        """When the processing of the record at ``_at`` began. None: no record."""
        self._loop_seen_at = 0.0
        """When the event loop last ran during the current record."""
        self._has_own_transaction = False
        """Whether the transaction contains only a record that was slow before."""
        self._exceeded_timeout = False
        """Whether a record has exceeded this transaction's timeout."""

    def restart(self) -> None:
        """The task restarts at its committed offset."""
        self._started_at = None
        self._has_own_transaction = self._exceeded_timeout = False

    def needs_own_transaction(self, at: At) -> bool:
        """Whether the record ``at`` was slow before."""
        return at == self._slow

    def begin(self, at: At) -> None:
        """A transaction begins with the record ``at``."""
        self._has_own_transaction = at == self._slow
        self._exceeded_timeout = False

    def start(self, at: At, now: float) -> None:
        """The processing of the record ``at`` begins."""
        if at != self._slow:
            self._has_own_transaction = False  # a second record shares it
        self._at = at
        self._started_at = self._loop_seen_at = now

    def end(self, now: float) -> None:
        """The processing of the record ends."""
        self.check(now)
        self._started_at = None

    def check(self, now: float) -> None:
        """Log the current record if it takes too long."""
        if self._started_at is None:
            return
        blocked_s, self._loop_seen_at = now - self._loop_seen_at, now
        if blocked_s > self._session_timeout_s:
            _log.warning(
                "task %s: while %s was processed, the event loop was blocked for %.1f s, longer "
                "than session.timeout.ms, %g s: without heartbeats the group removes this instance "
                "and reassigns its tasks. Run blocking code with asyncio.to_thread or in a process "
                "pool, or raise session_timeout_ms",
                *(self._task, self._record, blocked_s, self._session_timeout_s),
            )
        if self._timeout_s is None or self._exceeded_timeout:
            return
        if now - self._started_at <= self._timeout_s:
            return
        self._exceeded_timeout = True
        if self._at != self._slow:
            self._slow = self._at
            _log.warning("task %s: %s", self._task, self._warning())

    def explain_error(self, error: Exception) -> Exception:
        """The error to report: a StreamsError if a retry cannot help, else ``error`` itself."""
        if not (self._has_own_transaction and self._exceeded_timeout and is_abort_error(error)):
            return error
        replacement = StreamsError(f"{self._warning()} It already had its own transaction: {error}")
        replacement.__cause__ = error
        return replacement

    @property
    def _record(self) -> str:
        assert self._at is not None
        (topic, partition), offset = self._at
        return f"the record at {topic}-{partition}, offset {offset},"

    def _warning(self) -> str:
        return (
            f"processing {self._record} takes longer than a transaction may be open, "
            f"{self._timeout_s:g} s (transaction.timeout.ms). If brokers abort its transaction, "
            "the record is processed again. Raise producer_options={'transaction_timeout_ms': "
            "...}, up to the brokers' transaction.max.timeout.ms, or make the processor faster."
        )
