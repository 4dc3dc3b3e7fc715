"""Failures that nobody looked at: counted, logged without flooding, and given to ``on_error``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.batches.delivery import BatchResult

__all__ = ["UnobservedFailures", "UnseenFailure"]

_log = logging.getLogger(__name__)

_LOG_EVERY = 10.0


class UnseenFailure(NamedTuple):
    """``records`` records of one batch failed with ``error``, and nobody awaited them.

    ``partition`` is -1 when none had been chosen yet.
    """

    topic: str
    partition: int
    records: int
    error: KafkaError


class _Window:
    """What is held back of one kind of failure, and until when."""

    __slots__ = ("ends", "last", "records")

    def __init__(self, ends: float, last: UnseenFailure) -> None:
        self.ends = ends
        self.last = last
        self.records = 0


class UnobservedFailures:
    """Logs at most one line per topic and kind of error in ten seconds; the line says how many
    records it stands for. What is held back is told with the first failure after that time, of
    whatever kind, or by :meth:`close`.
    """

    __slots__ = ("_clock", "_loop", "_on_error", "_windows")

    def __init__(
        self,
        clock: Callable[[], float],
        on_error: Callable[[UnseenFailure], object] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._clock = clock
        self._on_error = on_error
        self._loop = loop
        self._windows: dict[tuple[str, type[KafkaError], int | None], _Window] = {}  # in order

    def report(self, batch_result: BatchResult, error: KafkaError, records: int) -> None:
        """May be called from anywhere: deliveries are dropped in the middle of other work, and
        by a garbage collection in whatever thread. The telling is done in a turn of its own."""
        failure = UnseenFailure(batch_result.topic, batch_result.partition, records, error)
        try:
            self._loop.call_soon_threadsafe(self._tell, failure)
        except RuntimeError:  # the loop is closed
            self._tell(failure)

    def close(self) -> None:
        """Tell what is still held back."""
        for window in self._windows.values():
            if window.records:
                _log_failure(window.last, window.records)
        self._windows.clear()

    def _tell(self, failure: UnseenFailure) -> None:
        self._limit(failure, self._clock())
        if self._on_error is not None:
            try:
                self._on_error(failure)
            except Exception:  # noqa: BLE001 - a hook's fault must not become the producer's
                _log.exception("the on_error hook failed on %r", failure)

    def _limit(self, failure: UnseenFailure, now: float) -> None:
        windows = self._windows
        kind = (failure.topic, type(failure.error), failure.error.code)
        window = windows.get(kind)
        if window is None:
            _log_failure(failure, failure.records)
            windows[kind] = _Window(now + _LOG_EVERY, failure)
        else:
            window.records += failure.records
            window.last = failure
        while windows and (first := next(iter(windows))) and windows[first].ends <= now:
            ended = windows.pop(first)
            if ended.records:
                _log_failure(ended.last, ended.records)
                windows[first] = _Window(now + _LOG_EVERY, ended.last)


def _log_failure(failure: UnseenFailure, records: int) -> None:
    _log.error(
        "%d records to topic %s failed and nobody looked at their deliveries: %s",
        records,
        failure.topic,
        failure.error,
    )
