"""In the producer's thread: gives each future its outcome.

An entry that the thread has taken is in one of three states. *Queued*: the feeder has it.
*Appended*: :class:`Outcomes` has its delivery. *Settled*: its future has the outcome.
:meth:`Outcomes.taken`, :meth:`~Outcomes.appended` (or :meth:`~Outcomes.appended_many`) and
``_settle``, which :meth:`~Outcomes.refuse` calls at once, are the transitions. No other code counts
records or finishes futures.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.sync.futures import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.sync.futures import FutureState, Outcome, SendFuture


class Outcomes:
    """The futures of one producer thread that have no outcome yet.

    ``unsettled``: how many records that is; a ``send_many`` counts once until it is appended.
    ``report_unobserved(batch_result, error, records)`` is called for refused records whose future
    is freed before its outcome was read.
    """

    def __init__(
        self,
        state: FutureState,
        report_unobserved: Callable[[BatchResult, KafkaError, int], None],
    ) -> None:
        self._state = state
        self._report_unobserved = report_unobserved
        self._loop = asyncio.get_running_loop()
        self._batches: dict[BatchResult, list[tuple[SendFuture[Any], Delivery]]] = {}
        """The records of each batch. They have one callback together."""
        self._bulk: set[asyncio.Task[None]] = set()
        """One task for each ``send_many``."""
        self.unsettled = 0

    def taken(self, records: int) -> None:
        """The thread has taken entries; each of them is one record, or one ``send_many``."""
        self.unsettled += records

    def appended(
        self, future: SendFuture[Any], delivery: Delivery, *, awaited: bool = False
    ) -> None:
        """The record is in a batch, which may be done already."""
        batch_result = delivery.batch_result
        members = self._batches.get(batch_result)
        if members is None:
            members = self._batches[batch_result] = []
            delivery.when_settled(self._on_batch_done, batch_result, awaited)
        members.append((future, delivery))

    def appended_many(
        self,
        future: SendFuture[Any],
        topic: str,
        delivery: BulkDelivery,
        broken_off: KafkaError | None = None,
    ) -> None:
        """The records of a ``send_many`` are in batches. ``broken_off``: why these are only a part
        of its records."""
        self.unsettled += delivery.records - 1
        waiting = self._loop.create_task(self._wait_many(future, topic, delivery, broken_off))
        self._bulk.add(waiting)
        waiting.add_done_callback(self._bulk.discard)

    def refuse(self, future: SendFuture[Any], topic: str, error: Exception) -> None:
        """The record was not appended. Like a delivery, its error is reported if unread."""
        self._settle([(future, self._refused(topic, error))], 1)

    async def wait_settled(self) -> None:
        """After the producer's stop: wait until each future has its outcome."""
        while self._bulk:
            await asyncio.wait(self._bulk)
        await asyncio.sleep(0)  # most batches have their callback in this iteration of the loop
        for batch_result in list(self._batches):
            self._on_batch_done(batch_result)

    def _on_batch_done(self, batch_result: BatchResult) -> None:
        members = self._batches.pop(batch_result, [])
        if not batch_result.done:  # the batch was split, or the record was held
            for future, delivery in members:
                if not delivery.done():
                    self.appended(future, delivery)
            members = [member for member in members if member[1].done()]
        self._settle(members, len(members))

    async def _wait_many(
        self,
        future: SendFuture[Any],
        topic: str,
        delivery: BulkDelivery,
        broken_off: KafkaError | None,
    ) -> None:
        await delivery.wait()
        if broken_off is None:
            self._settle([(future, delivery)], delivery.records)
            return
        failures, delivered = delivery.peek()
        broken_off.maybe_written = delivered.records > 0 or any(
            failure.error.maybe_written for failure in failures
        )
        self._settle([(future, self._refused(topic, broken_off))], delivery.records)

    def _refused(self, topic: str, error: Exception) -> Delivery:
        """A delivery that has failed with the error."""
        refused = BatchResult(topic, self._report_unobserved)
        refused.count = 1
        delivery = delivery_for_last(refused, 0)
        if not isinstance(error, KafkaError):
            error = KafkaError(repr(error))
        # The traceback has the frames that hold the future: the garbage collector does not visit a
        # compiled delivery, so this cycle would keep them, and all records of the call, for ever.
        refused.fail(error.with_traceback(None))
        return delivery

    def _settle(self, futures: Sequence[tuple[SendFuture[Any], Outcome]], records: int) -> None:
        self.unsettled -= records
        finish(self._state, futures)
