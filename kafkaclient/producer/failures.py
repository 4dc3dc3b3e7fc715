"""Failures that nobody looked at: counted, logged without flooding, and given to ``on_error``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.delivery import Receipt

__all__ = ["UnseenFailure", "UnseenFailures"]

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


class UnseenFailures:
    """Logs at most one line per topic and kind of error in ten seconds; the line says how many
    records it stands for."""

    __slots__ = ("_clock", "_logged_at", "_on_error", "_silent", "total")

    def __init__(
        self, clock: Callable[[], float], on_error: Callable[[UnseenFailure], object] | None
    ) -> None:
        self.total = 0
        """Records so far."""
        self._clock = clock
        self._on_error = on_error
        self._logged_at: dict[tuple[str, type[KafkaError], int | None], float] = {}
        self._silent: dict[tuple[str, type[KafkaError], int | None], int] = {}

    def report(self, receipt: Receipt, error: KafkaError, records: int) -> None:
        self.total += records
        self._log(receipt, error, records)
        if self._on_error is not None:
            failure = UnseenFailure(receipt.topic, receipt.partition, records, error)
            try:
                self._on_error(failure)
            except Exception:  # noqa: BLE001 - a hook's fault must not become the producer's
                _log.exception("the on_error hook failed on %r", failure)

    def _log(self, receipt: Receipt, error: KafkaError, records: int) -> None:
        kind = (receipt.topic, type(error), error.code)
        now = self._clock()
        records += self._silent.pop(kind, 0)
        if now - self._logged_at.get(kind, -_LOG_EVERY) < _LOG_EVERY:
            self._silent[kind] = records
            return
        self._logged_at[kind] = now
        _log.error(
            "%d records to topic %s failed and nobody looked at their deliveries: %s",
            records,
            receipt.topic,
            error,
        )
