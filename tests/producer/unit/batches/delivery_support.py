"""Batch results and deliveries for the tests of deliveries."""

from __future__ import annotations

from typing import Any

from kafkaclient.errors import BrokerConnectionError, KafkaError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import Delivery, delivery_for_last

LOST = BrokerConnectionError("lost")


def told(outcomes: list[Any]) -> list[Any]:
    """Each caller gets an error of its own."""
    return [str(o) if isinstance(o, BrokerConnectionError) else o for o in outcomes]


class Unseen:
    """Collects the reports of unseen failures."""

    def __init__(self) -> None:
        self.reports: list[tuple[KafkaError, int]] = []

    def __call__(self, batch_result: BatchResult, error: KafkaError, count: int) -> None:
        self.reports.append((error, count))

    @property
    def total(self) -> int:
        return sum(count for _, count in self.reports)


def result_of(
    count: int, unseen: Any = None, hook: Any = None
) -> tuple[BatchResult, list[Delivery]]:
    """The result of a batch with ``count`` records, and their deliveries."""
    batch_result = BatchResult("t", unseen)
    batch_result.partition, batch_result.on_delivery = 3, hook
    deliveries = []
    for n in range(count):
        batch_result.count += 1
        deliveries.append(delivery_for_last(batch_result, 1000 + n))
    return batch_result, deliveries


def split_into(batch_result: BatchResult, *firsts: int) -> list[BatchResult]:
    """Split the batch; each part begins at one of ``firsts``."""
    ends = [*firsts[1:], batch_result.count]
    parts = []
    for first, end in zip(firsts, ends, strict=True):
        part = BatchResult(batch_result.topic, batch_result.on_unseen)
        part.partition, part.count = batch_result.partition, end - first
        parts.append(part)
    batch_result.split_into(list(firsts), parts)
    return parts


async def offset_of(delivery: Delivery) -> int:
    return (await delivery).offset
