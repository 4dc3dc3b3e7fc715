"""What happens to transactions and is seen by consumers of committed records, on any cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from kafkaclient import Producer
from kafkaclient.admin import Admin, TxnState
from kafkaclient.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionLostError,
)
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafkaclient import PreparedTransaction
    from kafkaclient.testing.cluster import LocalCluster

PARTITIONS = 6
SEEN = 153
"""How many records of the story below are committed."""


async def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The values of a topic, sorted; TimeoutError if an open transaction is in the way."""
    async with reader(bootstrap, "read_uncommitted") as witness, reader(bootstrap, isolation) as it:
        while not await it._client._wait_on_metadata(topic):
            await asyncio.sleep(0.1)
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = await witness.end_offsets(partitions)
        it.assign(partitions)
        await it.seek_to_beginning(*partitions)
        values: list[bytes] = []
        async with asyncio.timeout(30):
            while any([await it.position(tp) < ends[tp] for tp in partitions]):
                for messages in (await it.getmany(timeout_ms=200)).values():
                    values += [message.value for message in messages]
        return sorted(values)


@asynccontextmanager
async def reader(bootstrap: str, isolation: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def everything(cluster: LocalCluster, topic: str, name: str, *, v2: bool) -> None:
    """Commits, aborts, offsets, fencing, a coordinator that is killed: one story."""
    async with Producer(cluster.bootstrap, transactional_id=name, linger_ms=5) as producer:
        assert inspect(producer) is not None
        assert inspect(producer).transactions is not None
        assert inspect(producer).transactions.requests.v2 is v2
        for n in range(3):
            async with producer.transaction():
                for m in range(50):
                    await producer.send(topic, b"%d %d" % (n, m), b"k" if m % 2 else None)
        with pytest.raises(ZeroDivisionError):
            await fail_after(producer, topic)
        await producer.begin_transaction()
        dropped = [await producer.send(topic, b"dropped") for _ in range(100)]
        await producer.abort_transaction()
        outcomes = await asyncio.gather(*dropped, return_exceptions=True)
        assert any(isinstance(outcome, TransactionAbortedError) for outcome in outcomes)
        async with producer.transaction():
            await producer.send(topic, b"with offsets")
            await producer.send_offsets_to_transaction({(topic, 0): 5}, name)
        assert (await producer.committed(name, [(topic, 0)]))[topic, 0].offset == 5
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"of a zombie")
        async with Producer(cluster.bootstrap, transactional_id=name) as successor:
            async with successor.transaction():
                await successor.send(topic, b"of the successor")
            with pytest.raises(ProducerFencedError):
                await producer.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await producer.send(topic, b"more of a zombie")
            async with successor.transaction():
                await successor.send(topic, b"more of the successor")
    expected = [b"%d %d" % (n, m) for n in range(3) for m in range(50)]
    expected += [b"with offsets", b"of the successor", b"more of the successor"]
    assert await read(cluster.bootstrap, topic) == sorted(expected)
    assert len(expected) == SEEN
    assert len(await read(cluster.bootstrap, topic, "read_uncommitted")) > len(expected)


async def fail_after(producer: Producer, topic: str) -> None:
    async with producer.transaction():
        for _ in range(20):
            await producer.send(topic, b"aborted")
        await producer.flush()
        _ = 1 / 0


_ABORTED_S = 3.0
"""Seconds until the coordinator has aborted a transaction with a timeout of 1 s. It looks for such
transactions every ``transaction.abort.timed.out.transaction.cleanup.interval.ms``, 500 here."""


async def time_out(cluster: LocalCluster, topic: str, name: str, *, v2: bool) -> None:
    """The coordinator aborts what takes too long. With v2 so does the producer, and goes on; with
    v1 it is fenced (KIP-588)."""
    options = {"transactional_id": name, "transaction_timeout_ms": 1000}
    async with Producer(cluster.bootstrap, **options) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"slow")
        await asyncio.sleep(_ABORTED_S)
        with pytest.raises(TransactionAbortableError if v2 else ProducerFencedError):
            await producer.commit_transaction()
        if v2:
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"quick")
    assert await read(cluster.bootstrap, topic) == ([b"quick"] if v2 else [])


async def nothing_after_the_end(cluster: LocalCluster, topic: str) -> None:
    """v1: when the transaction is committed, a partition for which no record is left is still being
    added, and the request has to be made again. Made after the end it would begin a transaction
    that no producer knows of, and that fences the producer when it times out."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, replica_assignment=[[0], [1]])
        name = await _coordinated_by(cluster, 0, topic)
        options = {"linger_ms": 0, "transaction_timeout_ms": 3000, "transactional_id": name}
        async with Producer(cluster.proxied_bootstrap, **options) as producer:
            assert inspect(producer) is not None
            assert inspect(producer).transactions is not None
            async with producer.transaction():
                for partition in (0, 1):
                    await producer.send_and_wait(topic, b"warm", partition=partition)
            await cluster.proxy(1).stall()
            await cluster.proxy(1).cut()
            await asyncio.sleep(0.5)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"first")
            await cluster.proxy(1).resume()
            await cluster.proxy(0).cut_before(ApiKey.ADD_PARTITIONS_TO_TXN)
            adding = inspect(producer).transactions._added_partitions.task
            while adding is None or adding.done():
                await producer.send_and_wait(topic, b"second")
                adding = inspect(producer).transactions._added_partitions.task
                await asyncio.sleep(0.001)
            await producer.commit_transaction()
            await asyncio.sleep(1)
            described = (await admin.describe_transactions([name]))[name]
            assert described is not None
            assert described.state is TxnState.COMPLETE_COMMIT
            await asyncio.sleep(4)
            async with producer.transaction():
                await producer.send(topic, b"third", partition=0)


async def _coordinated_by(cluster: LocalCluster, node: int, prefix: str) -> str:
    """A transactional id that the broker coordinates."""
    for n in range(100):
        name = f"{prefix}-{n}"
        async with Producer(cluster.bootstrap, transactional_id=name) as producer:
            assert inspect(producer) is not None
            assert inspect(producer).transactions is not None
            if set(inspect(producer).transactions.requests._coordinators._nodes.values()) == {node}:
                return name
    raise AssertionError("one of two brokers coordinates nothing")


async def prepared_and_ended(cluster: LocalCluster, topic: str, name: str) -> None:
    """Prepared by producers that are gone, and ended by an admin client; or lost meanwhile."""

    async def prepare(which: str, **options: object) -> PreparedTransaction:
        names = {"transactional_id": f"{name}-{which}", "linger_ms": 1000}
        async with Producer(cluster.bootstrap, **names, **options) as producer:
            await producer.begin_transaction()
            for n in range(20):
                await producer.send(topic, f"{which} {n}".encode())
            told = await producer.prepare_transaction()
        assert told is not None
        return told

    slow = await prepare("slow", transaction_timeout_ms=1000)
    began = asyncio.get_running_loop().time()
    good, bad, fenced = [await prepare(which) for which in ("good", "bad", "fenced")]
    async with Admin(cluster.bootstrap) as admin:
        left = await admin.list_transactions(f"{name}-", states=[TxnState.ONGOING])
        mine = {good.transactional_id, bad.transactional_id, fenced.transactional_id}
        assert mine <= {one.transactional_id for one in left}
        described = (await admin.describe_transactions([good[0], "nobody"]))[good[0]]
        assert described is not None
        assert described[:4] == (good[0], TxnState.ONGOING, *good[1:])
        assert {tp.topic for tp in described.partitions} == {topic}
        assert await admin.fence_producers([fenced[0]]) == {fenced[0]: None}
        for _ in range(2):
            await admin.end_transaction(good)
            await admin.end_transaction(bad, commit=False)
        for lost, commit in ((good, False), (bad, True), (fenced, True)):
            with pytest.raises(TransactionLostError):
                await admin.end_transaction(lost, commit=commit)
        await asyncio.sleep(began + _ABORTED_S - asyncio.get_running_loop().time())
        with pytest.raises(TransactionLostError):
            await admin.end_transaction(slow)
        assert await admin.list_transactions(f"{name}-", states=[TxnState.ONGOING]) == []
    assert await read(cluster.bootstrap, topic) == sorted(f"good {n}".encode() for n in range(20))
