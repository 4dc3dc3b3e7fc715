"""Partitions that become part of a transaction v1, asked for as few times as possible."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import KafkaError
from kafkaclient.producer.transactions.participants import AddedPartitions
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    from kafkaclient.types import TopicPartition
    from tests.producer.support import Bench


class Coordinator:
    """Adds partitions when it is told to."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.let = asyncio.Event()
        self.let.set()
        self.error: Exception | None = None
        self.told: list[KafkaError] = []
        self.added = 0

    async def add(self, partitions: tuple[TopicPartition, ...], over: asyncio.Event) -> None:
        self.over = over
        self.asked.append([tp.partition for tp in partitions])
        await self.let.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def enlisted(bench: type[Bench]) -> Any:
    """``enlistment, bench, coordinator = enlisted()``, with a transaction begun."""

    def made() -> tuple[AddedPartitions, Any, Coordinator]:
        made, coordinator = bench([0, 0, 1, 1, 2, 2], idempotent=True, late=True), Coordinator()

        def added() -> None:
            coordinator.added += 1

        enlistment = AddedPartitions(
            made.lines,
            coordinator.add,
            clock=lambda: 0.0,
            on_added=added,
            on_failed=coordinator.told.append,
        )
        made.lines.gate = enlistment
        made.accumulator.update_topic(made.view(), 0.0)
        enlistment.begin()
        return enlistment, made, coordinator

    return made


@virtual_time
async def test_a_batch_leaves_once_its_partition_was_added(enlisted: Any) -> None:
    enlistment, bench, coordinator = enlisted()
    bench.put(0)
    assert not bench.drain(0)
    await asyncio.sleep(0.1)
    assert coordinator.asked == [[0]]
    assert enlistment.allows(bench.queue(0))
    assert len(bench.drain(0)) == 1


@virtual_time
async def test_what_comes_together_is_asked_for_together(enlisted: Any) -> None:
    _, bench, coordinator = enlisted()
    coordinator.let.clear()
    for partition in (0, 1, 2, 0, 1):
        bench.put(partition)
    await asyncio.sleep(0.1)
    bench.put(3)  # while the first request is under way
    bench.put(4)
    coordinator.let.set()
    await asyncio.sleep(0.1)
    assert coordinator.asked == [[0, 1, 2], [3, 4]]
    assert coordinator.added == 2


@virtual_time
async def test_any_partition_is_one_of_each_broker(enlisted: Any) -> None:
    enlistment, bench, coordinator = enlisted()
    for leaders in ([0, 1], [0, 1], [0, 2]):
        enlistment.request_one_of(bench.topic, leaders)
        await asyncio.sleep(0.1)
    brokers = [bench.queue(p).leader for asked in coordinator.asked for p in asked]
    assert brokers == [0, 1, 2]


@virtual_time
async def test_nothing_is_added_after_the_end(enlisted: Any) -> None:
    enlistment, bench, coordinator = enlisted()
    enlistment.end()
    enlistment.request(bench.queue(0))
    await asyncio.sleep(0.1)
    assert not coordinator.asked
    assert enlistment.task is None


@virtual_time
async def test_every_transaction_begins_without_partitions(enlisted: Any) -> None:
    enlistment, bench, coordinator = enlisted()
    for _ in range(2):
        enlistment.request(bench.queue(0))
        await asyncio.sleep(0.1)
        enlistment.end()
        enlistment.begin()
        assert not enlistment.allows(bench.queue(0))
    assert coordinator.asked == [[0], [0]]


@pytest.mark.parametrize("error", [broker_error(29), ZeroDivisionError()])
@virtual_time
async def test_a_refusal_is_told(enlisted: Any, error: Exception) -> None:
    enlistment, bench, coordinator = enlisted()
    coordinator.error = error
    enlistment.request(bench.queue(0))
    await asyncio.sleep(0.1)
    assert len(coordinator.told) == 1
    assert isinstance(coordinator.told[0], KafkaError)
    assert not enlistment.allows(bench.queue(0))


@virtual_time
async def test_the_end_waits_for_the_request_under_way(enlisted: Any) -> None:
    """What is handled after the end of the transaction would begin another one."""
    enlistment, bench, coordinator = enlisted()
    coordinator.let.clear()
    enlistment.request(bench.queue(0))
    await asyncio.sleep(0.1)
    ending = asyncio.create_task(enlistment.finish())
    await asyncio.sleep(0.1)
    assert coordinator.over.is_set(), "it is not asked again"
    assert not ending.done()
    coordinator.let.set()
    await ending
    enlistment.begin()
    assert not enlistment.allows(bench.queue(0)), "it belongs to the transaction before"
    enlistment.request(bench.queue(0))
    await asyncio.sleep(0.1)
    assert coordinator.asked == [[0], [0]]
    assert enlistment.allows(bench.queue(0))


@virtual_time
async def test_a_refusal_after_the_end_concerns_nobody(enlisted: Any) -> None:
    enlistment, bench, coordinator = enlisted()
    coordinator.let.clear()
    coordinator.error = broker_error(29)
    enlistment.request(bench.queue(0))
    await asyncio.sleep(0.1)
    ending = asyncio.create_task(enlistment.finish())
    await asyncio.sleep(0.1)
    coordinator.let.set()
    await ending
    assert not coordinator.told
