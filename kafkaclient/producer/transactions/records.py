"""The records of the open transaction, which are sent or dropped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.pending_sends import PendingSends

__all__ = ["TransactionRecords"]


class TransactionRecords:
    """Outside of a transaction there are none, so they are all that the producer has.

    ``drained()`` sends all of them without lingering and waits for their outcome.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        waiting: PendingSends,
        drained: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self.lines = accumulator.ready_queues
        self.drained = drained
        self._incomplete = accumulator.incomplete
        self._waiting = waiting
        self._clock = clock

    async def landed(self) -> None:
        """Wait until nothing is on the wire any more, what has expired there included."""
        await self.drained()
        await self._incomplete.wait_failed_landed()

    def drop_waiting(self, error: KafkaError) -> None:
        """Fail what is not on the wire."""
        self._waiting.fail_all(error)
        self._drop(error, on_wire=False)

    def drop(self, error: KafkaError) -> None:
        """Fail everything; the answers to what is on the wire come to nobody."""
        self._waiting.fail_all(error)
        self._drop(error, on_wire=True)

    def _drop(self, error: KafkaError, *, on_wire: bool) -> None:
        now = self._clock()
        for batch in list(self._incomplete):
            if on_wire or not batch.in_flight:
                self._incomplete.abandon(batch, error, now)
