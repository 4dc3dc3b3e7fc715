"""Failures that no caller has checked: logged at a limited rate, and given to ``on_error``."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.log_fields import log_fields
from kafkaclient.producer.user_code import text_of_user_error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.batches.batch_result import BatchResult

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0  # seconds between two log lines for one topic and kind of error


class UnseenFailure(NamedTuple):
    """``records`` records of one batch failed with ``error``, and no caller awaited them.

    ``partition`` is -1 if no partition had been chosen yet.
    """

    topic: str
    partition: int
    records: int
    error: KafkaError


@dataclass(slots=True)
class _Window:
    """Failures of one kind that are not logged until the time ``ends``."""

    ends: float
    last: UnseenFailure
    records: int = 0


class UnobservedFailures:
    """Logs at most one line per topic and kind of error in ten seconds, with the number of records.

    A timer, or :meth:`close`, logs the failures held back.
    """

    __slots__ = ("_clock", "_loop", "_on_error", "_timer", "_windows")

    def __init__(
        self,
        clock: Callable[[], float],
        on_error: Callable[[UnseenFailure], object] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._clock = clock
        self._on_error = on_error
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._windows: dict[tuple[str, type[KafkaError], int | None], _Window] = {}  # oldest first

    def report(self, batch_result: BatchResult, error: KafkaError, records: int) -> None:
        """Report a failure; safe to call from any thread, and in the middle of other work: a
        garbage collection may drop a delivery anywhere. The report runs in the event loop."""
        failure = UnseenFailure(batch_result.topic, batch_result.partition, records, error)
        try:
            self._loop.call_soon_threadsafe(self._handle, failure)
        except RuntimeError:  # the loop is closed
            self._handle(failure)

    def close(self) -> None:
        """Log the failures that are still held back."""
        if self._timer is not None:
            self._timer.cancel()
        for window in self._windows.values():
            if window.records:
                _log_failure(window.last, window.records)
        self._windows.clear()

    def _handle(self, failure: UnseenFailure) -> None:
        self._limit(failure, self._clock())
        if self._on_error is not None:
            try:
                self._on_error(failure)
            except BaseException as error:  # noqa: BLE001 - it must not stop the producer
                _log.exception(
                    "the on_error hook failed on %r: %s",
                    failure,
                    text_of_user_error(error),
                    extra=_fields(failure),
                )

    def _limit(self, failure: UnseenFailure, now: float) -> None:
        windows = self._windows
        kind = (failure.topic, type(failure.error), failure.error.code)
        window = windows.get(kind)
        if window is None:
            _log_failure(failure, failure.records)
            windows[kind] = _Window(now + _LOG_EVERY_S, failure)
            if self._timer is None:
                self._set_timer(_LOG_EVERY_S)
        else:
            window.records += failure.records
            window.last = failure

    def _set_timer(self, delay_s: float) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._timer = self._loop.call_later(delay_s, self._end_windows)

    def _end_windows(self) -> None:
        """Log what the windows that have ended held back."""
        windows, now, self._timer = self._windows, self._clock(), None
        while windows and (first := next(iter(windows))) and windows[first].ends <= now:
            ended = windows.pop(first)
            if ended.records:
                _log_failure(ended.last, ended.records)
                windows[first] = _Window(now + _LOG_EVERY_S, ended.last)
        if windows:
            self._set_timer(max(0.001, next(iter(windows.values())).ends - now))


def _log_failure(failure: UnseenFailure, records: int) -> None:
    _log.error(
        "%d records to topic %s failed, and no caller checked their deliveries: %s",
        records,
        failure.topic,
        failure.error,
        extra=_fields(failure),
    )


def _fields(failure: UnseenFailure) -> dict[str, object]:
    error = failure.error
    return log_fields(
        error,
        topic=failure.topic,
        partition=failure.partition,
        maybe_written=error.maybe_written,
    )
