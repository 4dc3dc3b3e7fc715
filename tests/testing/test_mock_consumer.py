"""MockConsumer: records, rebalances and failures that a test gives, on the consumer's own code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Consumer
from kafkaclient.consumer import RebalanceListener
from kafkaclient.errors import (
    BootstrapError,
    BrokerError,
    ConfigError,
    ConsumerStateError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
)
from kafkaclient.hooks import FinishedCommit, Hooks
from kafkaclient.testing import MockConsumer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Set

P = [TopicPartition("orders", number) for number in range(4)]


def mock(**options: Any) -> MockConsumer:
    return MockConsumer(**{"group_id": "g", "topics": ["orders"], **options})


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.told: list[tuple[str, set[TopicPartition]]] = []

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        self.told.append(("assigned", set(partitions)))

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        self.told.append(("revoked", set(partitions)))

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        self.told.append(("lost", set(partitions)))


@virtual_time
async def test_records_are_consumed_and_committed() -> None:
    consumer = mock(value_deserializer=bytes.decode)
    assert isinstance(consumer, Consumer)
    for n in range(2):
        assert consumer.add_record("orders", b"%d" % n, b"k", headers={"h": b"x"}) == n
    async with consumer:
        async for record in consumer:
            assert (record.key, record.headers) == (b"k", (("h", b"x"),))
            if record.value == "1":
                break
        assert await consumer.committed(P[:1]) == {P[0]: None}
        await consumer.commit()
        assert consumer.commits == [{P[0]: 2}]
        assert consumer.lag() == {P[0]: 0}
        assert await consumer.healthy()
        await consumer.seek_to("earliest")
        assert (await consumer.getone()).value == "0"
        consumer.pause(P[0])
        assert await consumer.getmany(timeout_ms=50) == {}
        consumer.resume(P[0])
        assert (await consumer.getone()).offset == 1
    assert consumer.commits[-1] == {P[0]: 1}, "the record in hand is not committed at the end"
    assert consumer.cluster.committed_offset("g", *P[0]) == 1


@virtual_time
async def test_a_record_that_is_added_wakes_who_waits() -> None:
    async with mock() as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(1)
        consumer.add_record("orders", None, timestamp_ms=7)
        record = await waiting
        assert (record.value, record.timestamp) == (None, 7)


@virtual_time
async def test_the_test_assigns_partitions() -> None:
    listener = Listener()
    consumer = mock(partitions={"orders": 4}, assign_all=False, listener=listener)
    for number in range(4):
        consumer.add_record("orders", b"%d" % number, partition=number)
    async with consumer:
        assert await consumer.wait_assigned() == set()
        await consumer.rebalance(P[:2])
        assert consumer.assignment == set(P[:2])
        taken = {(await consumer.getone()).value for _ in range(2)}
        assert taken == {b"0", b"1"}
        assert await consumer.getmany() == {}  # all is finished
        await consumer.rebalance([P[1], ("orders", 3)])
        assert consumer.commits == [{P[0]: 1}]
        assert consumer.assignment == {P[1], P[3]}
        assert (await consumer.getone()).value == b"3"
        with pytest.raises(ValueError, match="orders"):
            await consumer.rebalance([("orders", 4)])
    assert listener.told == [
        ("assigned", set(P[:2])),
        ("revoked", {P[0]}),
        ("assigned", {P[3]}),
        ("revoked", {P[1], P[3]}),
    ]


@virtual_time
async def test_a_rebalance_waits_for_the_record_in_hand() -> None:
    async with mock(partitions=2) as consumer:
        consumer.add_record("orders", b"1")
        record = await consumer.getone()
        rebalance = asyncio.create_task(consumer.rebalance([P[1]]))
        await asyncio.sleep(10)
        assert not rebalance.done()
        record.done()
        await rebalance
        assert consumer.commits[-1] == {P[0]: 1}


@virtual_time
async def test_partitions_are_lost() -> None:
    listener = Listener()
    async with mock(listener=listener) as consumer:
        consumer.add_record("orders", b"1")
        await consumer.getone()
        await consumer.lose()
        assert listener.told[-1] == ("lost", {P[0]})
        with pytest.raises(ConsumerStateError, match="not assigned"):
            await consumer.commit({P[0]: 1})
        await consumer.rebalance([P[0]])
        assert (await consumer.getone()).offset == 0
    assert consumer.cluster.committed_offset("g", *P[0]) == 0


@virtual_time
async def test_an_error_of_the_listener_ends_the_loop() -> None:
    class Failing(Listener):
        async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
            raise RuntimeError("no disk")

    consumer = mock(listener=Failing())
    await consumer.start()
    await consumer.wait_assigned()
    with pytest.raises(RuntimeError, match="no disk"):
        await consumer.rebalance([])
    with pytest.raises(RuntimeError, match="no disk"):
        await consumer.getone()
    await consumer.stop()


@virtual_time
async def test_calls_fail_as_the_test_says() -> None:
    refused = mock()
    refused.fail("start", BootstrapError("no broker"))
    with pytest.raises(BootstrapError):
        await refused.start()
    async with mock() as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(1)
        consumer.fail("poll", BrokerError("a"))
        with pytest.raises(BrokerError):
            await waiting
        consumer.add_record("orders", b"1")
        consumer.fail("poll", BrokerError("b"), times=2)
        with pytest.raises(BrokerError):
            await anext(aiter(consumer))
        with pytest.raises(BrokerError):
            await consumer.getmany()
        assert (await consumer.getone()).value == b"1"
        consumer.fail("commit", KafkaTimeoutError("late"))
        with pytest.raises(KafkaTimeoutError):
            await consumer.commit()
        assert consumer.commits == []
        await consumer.commit()
        assert consumer.commits == [{P[0]: 1}]
    with pytest.raises(ValueError, match="start, poll, commit"):
        consumer.fail("send", BrokerError("c"))  # type: ignore[arg-type]


@virtual_time
async def test_subscriptions_patterns_and_partitions_by_hand() -> None:
    consumer = mock(topics=(), pattern="or.*", partitions={"orders": 2})
    consumer.add_record("orders", b"1")
    consumer.add_record("others", b"2")
    async with consumer:
        assert await consumer.wait_assigned() == set(P[:2])
        consumer.subscribe(["others"])
        assert await consumer.wait_assigned() == {TopicPartition("others", 0)}
        assert (await consumer.getone()).value == b"2"
        consumer.unsubscribe()
        with pytest.raises(ConsumerStateError, match="subscribe"):
            await consumer.rebalance(P[:1])
        consumer.assign([("new", 0)])
        consumer.add_record("new", b"3")
        assert (await consumer.getone()).value == b"3"
    async with MockConsumer() as alone:
        alone.assign([P[0]])
        alone.add_record("orders", b"1")
        assert (await alone.getone()).value == b"1"
    with pytest.raises(ConfigError):
        MockConsumer(topics=["orders"])


@virtual_time
async def test_options_of_the_service_are_kept_and_its_brokers_are_not_asked() -> None:
    seen = list[FinishedCommit]()

    class Own(Hooks):
        def on_commit(self, commit: FinishedCommit) -> None:
            seen.append(commit)

    consumer = MockConsumer(
        {
            "bootstrap.servers": "kafka.example:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
            "group.id": "g",
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
        },
        topics=["orders"],
        hooks=Own(),
    )
    assert consumer.config.auto_offset_reset == "none"
    for n in range(5):
        consumer.add_record("orders", b"%d" % n)
    consumer.cluster.delete_records("orders", 0, 3)
    async with consumer:
        await consumer.wait_assigned()
        consumer.seek(P[0], 1)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.getone()
        await consumer.seek_to("earliest")
        assert (await consumer.getone()).value == b"3"
        await consumer.commit()
    assert [commit.offsets for commit in seen] == consumer.commits == [{P[0]: 4}]
