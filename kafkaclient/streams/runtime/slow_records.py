"""Detects records whose processing blocks the event loop for longer than the session timeout."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaclient.reader.batch import FetchedRecord
    from kafkaclient.streams.tasks import TaskId

_log = logging.getLogger(__name__)


class SlowRecords:
    """The detector of one task. Pure: the time is an argument.

    A processor may await as long as it likes: nothing of its record is in a transaction before it
    has returned.
    """

    def __init__(self, task: TaskId, session_timeout_s: float) -> None:
        self._task = task
        self._session_timeout_s = session_timeout_s
        self._record: FetchedRecord | None = None
        """The record that is being processed. None: there is none."""
        self._loop_seen_at = 0.0
        """When the event loop last ran during this record."""

    def start(self, record: FetchedRecord, now: float) -> None:
        """The processing of a record begins."""
        self._record, self._loop_seen_at = record, now

    def end(self, now: float) -> None:
        """The processing of the record ends."""
        if now - self._loop_seen_at > self._session_timeout_s:
            self.check(now)
        self._record = None

    def stop(self) -> None:
        """The task stops running."""
        self._record = None

    def check(self, now: float) -> None:
        """Log the current record if it has blocked the event loop."""
        if self._record is None:
            return
        blocked_s, self._loop_seen_at = now - self._loop_seen_at, now
        if blocked_s > self._session_timeout_s:
            _log.warning(
                "task %s: while the record at %s-%d, offset %d, was processed, the event loop was "
                "blocked for %.1f s, longer than session.timeout.ms, %g s: without heartbeats the "
                "group removes this instance and reassigns its tasks. Run blocking code with "
                "asyncio.to_thread or in a process pool, or raise session_timeout_ms",
                self._task,
                self._record.topic,
                self._task.partition,
                self._record.offset,
                blocked_s,
                self._session_timeout_s,
            )
