"""One awaitable for many records: offsets, failures, splits, and what nobody looked at."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    AuthorizationError,
    BrokerConnectionError,
    BulkDeliveryError,
    BulkFailure,
    KafkaError,
)
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
from kafkaclient.types import BulkMetadata, OffsetRange

LOST = BrokerConnectionError("lost")


def receipt_of(
    partition: int, count: int, unseen: Any = None, held: int | None = None
) -> BatchResult:
    batch_result = BatchResult("t", unseen)
    batch_result.partition, batch_result.count = partition, count
    batch_result.live_deliveries = count if held is None else held
    return batch_result


def bulk_of(*runs: tuple[BatchResult, int, int]) -> BulkDelivery:
    delivery = BulkDelivery("t")
    delivery.add(runs)
    return delivery


def split_into(batch_result: BatchResult, *firsts: int) -> list[BatchResult]:
    ends = [*firsts[1:], batch_result.count]
    parts = [
        receipt_of(batch_result.partition, end - first, batch_result.on_unseen, held=0)
        for first, end in zip(firsts, ends, strict=True)
    ]
    batch_result.split_into(list(firsts), parts)
    return parts


async def test_offsets_by_partition_with_contiguous_ones_in_one_range() -> None:
    a, b, c, d = (receipt_of(p, n) for p, n in ((0, 10), (1, 5), (0, 4), (0, 1)))
    delivery = bulk_of((a, 0, 10), (b, 2, 3), (c, 0, 4), (d, 0, 1))
    assert delivery.records == 18
    with pytest.raises(asyncio.InvalidStateError):
        delivery.result()
    c.resolve(110)  # answers come in any order
    a.resolve(100)
    b.resolve(50)
    assert not delivery.done()
    assert "pending" in repr(delivery)
    d.resolve(200)
    assert delivery.done()
    expected = BulkMetadata(
        "t", 18, {0: (OffsetRange(100, 14), OffsetRange(200, 1)), 1: (OffsetRange(52, 3),)}
    )
    assert await delivery == delivery.result() == await delivery == expected
    assert expected.partitions[0][0].last == 113
    assert delivery.exception() is None


async def test_nothing_at_all_is_done() -> None:
    assert await BulkDelivery("t") == BulkMetadata("t", 0, {})


async def test_offsets_that_are_not_told() -> None:
    a, b = receipt_of(0, 3), receipt_of(0, 4)
    delivery = bulk_of((a, 0, 3), (b, 0, 4))
    a.resolve(-1)
    b.resolve(-1)
    (unknown,) = (await delivery).partitions[0]
    assert (unknown, unknown.last) == (OffsetRange(-1, 7), -1)


async def test_many_batches_are_summed_up_on_the_way() -> None:
    delivery = BulkDelivery("t")
    stuck = receipt_of(1, 1)
    delivery.add([(stuck, 0, 1)])
    for n in range(1000):
        batch_result = receipt_of(0, 2)
        delivery.add([(batch_result, 0, 1)])
        delivery.add([(batch_result, 1, 1)])
        batch_result.resolve(2 * n)
        assert len(delivery._pending) < 100
    stuck.resolve(7)
    assert (await delivery).partitions == {1: (OffsetRange(7, 1),), 0: (OffsetRange(0, 2000),)}


async def test_failures_are_told_in_one_error() -> None:
    a, b, c, d = (receipt_of(p, n) for p, n in ((0, 10), (1, 5), (0, 4), (-1, 2)))
    delivery = bulk_of((a, 0, 10), (b, 0, 5), (c, 0, 4), (d, 0, 2))
    denied = broker_error(29)
    a.resolve(0)
    c.fail(LOST)
    b.fail(denied)
    d.fail(BrokerConnectionError("lost again"))
    message = r"11 of 21 records .* none yet \(2\), 0 \(4\), 1 \(5\)"
    with pytest.raises(BulkDeliveryError, match=message) as caught:
        await delivery
    error = caught.value
    assert (error.failed, error.records, error.retriable) == (11, 21, False)
    assert error.__cause__ is denied
    assert isinstance(denied, AuthorizationError)
    assert error.failures[:2] == (BulkFailure(1, 5, denied), BulkFailure(0, 4, LOST))
    assert error.delivered == BulkMetadata("t", 10, {0: (OffsetRange(0, 10),)})
    assert delivery.exception() is error
    with pytest.raises(BulkDeliveryError):
        delivery.result()


async def test_failures_of_a_kind_are_counted_together() -> None:
    delivery = BulkDelivery("t")
    for n in range(500):
        batch_result = receipt_of(n % 2, 3)
        delivery.add([(batch_result, 0, 3)])
        batch_result.fail(BrokerConnectionError(f"lost {n}"))
    error = delivery.exception()
    assert error is not None
    assert error.retriable
    assert [(f.partition, f.records, str(f.error)) for f in error.failures] == [
        (0, 750, "lost 0"),
        (1, 750, "lost 1"),
    ]


async def test_the_culprit_is_the_cause() -> None:
    batch_result = receipt_of(0, 10)
    delivery, other = bulk_of((batch_result, 5, 5)), bulk_of((batch_result, 0, 5))
    culprit = broker_error(87, "number 7")
    batch_result.fail(broker_error(87), {7: culprit})
    error = delivery.exception()
    assert error is not None
    assert error.__cause__ is culprit
    error = other.exception()
    assert error is not None
    assert error.__cause__ is batch_result.error


async def test_records_that_change_places_are_counted_where_they_are() -> None:
    """KIP-467: one record of a batch fails, the others go on together."""
    whole = receipt_of(0, 6)
    delivery = bulk_of((whole, 1, 5))
    good, bad = receipt_of(0, 5, held=0), receipt_of(0, 1, held=0)
    whole.split_into([0, 3, 4], [good, bad, good], [0, 0, 3])
    bad.fail(LOST)
    assert not delivery.done()
    good.resolve(10)
    error = delivery.exception()
    assert error is not None
    assert error.failures == ((0, 1, LOST),)
    assert error.delivered.partitions == {0: (OffsetRange(11, 4),)}


async def test_awaiting_goes_on_in_the_parts_of_a_split() -> None:
    whole = receipt_of(2, 10)
    delivery = bulk_of((whole, 3, 5))  # records 3 to 7
    waiting = asyncio.ensure_future(delivery)
    await asyncio.sleep(0)
    first, second = split_into(whole, 0, 5)
    smaller, third = split_into(second, 0, 2)  # records 5 and 6; 7 to 9
    first.resolve(40)
    third.resolve(80)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    smaller.fail(LOST)
    with pytest.raises(BulkDeliveryError) as caught:
        await waiting
    assert caught.value.failures == (BulkFailure(2, 2, LOST),)
    delivered = {2: (OffsetRange(43, 2), OffsetRange(80, 1))}
    assert caught.value.delivered == BulkMetadata("t", 3, delivered)


async def test_several_may_wait_and_give_up() -> None:
    batch_result = receipt_of(0, 4)
    delivery = bulk_of((batch_result, 0, 4))
    tasks = [asyncio.ensure_future(delivery) for _ in range(3)]
    await asyncio.sleep(0)
    assert batch_result.waiting == 3
    tasks[0].cancel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.001)
    assert batch_result.waiting == 2
    batch_result.resolve(0)
    assert [m.records for m in await asyncio.gather(*tasks[1:])] == [4, 4]
    assert tasks[0].cancelled()


class Unseen:
    def __init__(self) -> None:
        self.reports: list[tuple[KafkaError, int]] = []

    def __call__(self, batch_result: BatchResult, error: KafkaError, count: int) -> None:
        self.reports.append((error, count))


async def test_failures_that_nobody_looks_at_are_reported() -> None:
    unseen = Unseen()
    before, after, fine = (receipt_of(0, n, unseen) for n in (3, 5, 7))
    delivery = bulk_of((before, 0, 3), (after, 0, 5), (fine, 0, 7))
    before.fail(LOST)
    fine.resolve(0)
    assert unseen.reports == []
    del delivery
    assert unseen.reports == [(LOST, 3)]
    after.fail(LOST)
    assert unseen.reports == [(LOST, 3), (LOST, 5)]


@pytest.mark.parametrize("look", ["exception", "await", "on_delivery"])
async def test_failures_that_somebody_looked_at_are_not(look: str) -> None:
    unseen = Unseen()
    batch_result = receipt_of(0, 3, unseen)
    if look == "on_delivery":
        batch_result.on_delivery = lambda delivery: None
    delivery = bulk_of((batch_result, 0, 3))
    batch_result.fail(LOST)
    if look == "exception":
        assert delivery.exception() is not None
    if look == "await":
        with pytest.raises(BulkDeliveryError):
            await delivery
    del delivery
    assert unseen.reports == []


async def test_failures_after_a_split_are_reported_once() -> None:
    unseen = Unseen()
    whole = receipt_of(0, 10, unseen)
    delivery = bulk_of((whole, 0, 10))
    first, second = split_into(whole, 0, 5)
    first.fail(LOST)
    del delivery
    assert unseen.reports == [(LOST, 5)]
    second.fail(LOST)
    assert unseen.reports == [(LOST, 5), (LOST, 5)]
