"""What the caller gets: a light handle per record, and one result per batch behind it.

A record costs no asyncio future. Its :class:`Delivery` points at the :class:`BatchResult` of the
batch that the record went into. All tasks that await deliveries of one batch are woken together.
Compiled (``_delivery.pyx``), or its pure-Python twin (``_delivery_py.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.producer.batches._delivery_py import BatchResult, Callback, Delivery
else:
    _twin, _ = load_twin("kafkaclient.producer.batches._delivery")
    Callback, Delivery, BatchResult = _twin.Callback, _twin.Delivery, _twin.BatchResult

__all__ = ["BatchResult", "Callback", "Delivery", "Run"]

Run: TypeAlias = "tuple[BatchResult, int, int]"
"""Records that follow each other in a batch: the batch's result, the index of the first, their
count."""
