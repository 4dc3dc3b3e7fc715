"""Hands records to a producer in slices, and remembers which batch took which of them.

A load at the client's limit has no time for a callback per record. All records of a batch are
acknowledged together, so one callback for the records of a slice in one batch is enough.

``slices.pxd`` has the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.perf.traffic import KeyValue
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery import Delivery

__all__ = ["BatchShare", "Slice"]


class BatchShare:
    """Records of a slice that follow each other in a batch. ``last``: the delivery of the last one,
    which stands for the others as well."""

    __slots__ = ("count", "last", "nbytes")

    def __init__(self, last: Delivery, count: int = 0, nbytes: int = 0) -> None:
        self.last = last
        self.count = count
        self.nbytes = nbytes
        """Bytes of keys and values."""

    def extend(self, delivery: Delivery, nbytes: int) -> None:
        """Include the batch's next record."""
        if self.count:
            self.last.detach()
        self.last = delivery
        self.count += 1
        self.nbytes += nbytes


class Slice:
    """Records that are handed over one right after the other."""

    __slots__ = ("runs", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """How many records, from the first, were handed over."""
        self.runs: dict[BatchResult, BatchShare] = {}
        """The records that the producer accepted, by batch."""

    def hand_over(
        self,
        send_nowait: Callable[[str, bytes, bytes | None], Delivery],
        topic: str,
        records: list[KeyValue],
    ) -> None:
        """Call ``send_nowait`` for each record from number ``taken`` on.

        Raises what ``send_nowait`` raises for a record, which is not counted as taken.
        """
        run = None
        for at in range(self.taken, len(records)):
            key, value = records[at]
            delivery = send_nowait(topic, value, key)
            self.taken = at + 1
            if run is None or run.last._batch_result is not delivery._batch_result:
                run = self.runs.get(delivery._batch_result)
                if run is None:
                    run = self.runs[delivery._batch_result] = BatchShare(delivery)
            run.extend(delivery, len(value) + (0 if key is None else len(key)))
