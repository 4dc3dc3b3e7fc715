"""Transactions on real brokers, v2 and v1, as consumers of committed records see them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from kafkaclient import Producer
from kafkaclient.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

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


# --- v2, on the common cluster ------------------------------------------------------------------


async def everything(cluster: LocalCluster, topic: str, name: str, *, v2: bool) -> None:
    """Commits, aborts, offsets, fencing, a coordinator that is killed: one story."""
    async with Producer(cluster.bootstrap, transactional_id=name, linger_ms=5) as producer:
        assert producer._core is not None
        assert producer._core.transactions is not None
        assert producer._core.transactions.calls.v2 is v2
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


async def time_out(cluster: LocalCluster, topic: str, name: str, *, v2: bool) -> None:
    """The coordinator aborts what takes too long. With v2 so does the producer, and goes on; with
    v1 it is fenced (KIP-588)."""
    options = {"transactional_id": name, "transaction_timeout_ms": 1000}
    async with Producer(cluster.bootstrap, **options) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"slow")
        await asyncio.sleep(13 if v2 else 3)
        with pytest.raises(TransactionAbortableError if v2 else ProducerFencedError):
            await producer.commit_transaction()
        if v2:
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"quick")
    assert await read(cluster.bootstrap, topic) == ([b"quick"] if v2 else [])


async def test_transactions_v2(
    kafka_cluster: LocalCluster, topic: str, create_topic: Callable[..., Awaitable[None]]
) -> None:
    other = f"{topic}-slow"
    await create_topic(topic, PARTITIONS, 3)
    await create_topic(other, PARTITIONS, 3)
    async with asyncio.TaskGroup() as group:
        group.create_task(time_out(kafka_cluster, other, f"tx-{other}", v2=True))
        group.create_task(everything(kafka_cluster, topic, f"tx-{topic}", v2=True))
    seen = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", str(SEEN)),
    )
    lines = seen.stdout.splitlines()
    assert len(lines) == SEEN
    assert not any("zombie" in line or "aborted" in line for line in lines)


async def test_the_coordinator_is_killed(
    kafka_cluster: LocalCluster, topic: str, create_topic: Callable[..., Awaitable[None]]
) -> None:
    """What was committed is there once, the rest never; every transaction ends."""
    await create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    expected = []
    try:
        async with Producer(kafka_cluster.bootstrap, transactional_id=f"tx-{topic}") as producer:
            for n, (commit, kill_after) in enumerate([(True, 50), (False, 100)]):
                await producer.begin_transaction()
                for m in range(100):
                    if m == kill_after:
                        victim = await kill_coordinator(kafka_cluster, producer)
                    await producer.send(topic, b"%d %d" % (n, m))
                if kill_after == 100:
                    await producer.flush()
                    victim = await kill_coordinator(kafka_cluster, producer)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
                expected += [b"%d %d" % (n, m) for m in range(100)] if commit else []
                await kafka_cluster.start_broker(victim)
    finally:
        await kafka_cluster.heal()
    assert await read(kafka_cluster.bootstrap, topic) == sorted(expected)


async def kill_coordinator(cluster: LocalCluster, producer: Producer) -> int:
    assert producer._core is not None
    assert producer._core.transactions is not None
    (node,) = producer._core.transactions.calls._coordinators._nodes.values()
    await cluster.kill(node)
    return node


async def test_transactions_v1() -> None:
    """On a cluster whose feature level is that of before 4.0."""
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    async with LocalCluster(1, config=config, features={"transaction.version": 1}) as cluster:
        async with Producer(cluster.bootstrap) as producer:
            for topic in ("v1", "v1-slow"):
                await producer.partitions_for(topic)  # made with 6 partitions
        async with asyncio.TaskGroup() as group:
            group.create_task(time_out(cluster, "v1-slow", "tx-v1-slow", v2=False))
            group.create_task(everything(cluster, "v1", "tx-v1", v2=False))


# --- processes that are killed ------------------------------------------------------------------

KILLS = int(os.environ.get("KAFKACLIENT_KILLS", "3"))
RECORDS = 60
VICTIM = Path(__file__).with_name("transaction_victim.py")


@pytest.mark.timeout(180 + 10 * KILLS)
async def test_a_process_is_killed_in_the_middle(
    kafka_cluster: LocalCluster, topic: str, create_topic: Callable[..., Awaitable[None]]
) -> None:
    """Each transaction is there as a whole or not at all, each that was told committed is, nothing
    hangs, and a restart under the same id writes again within 2 s. KAFKACLIENT_KILLS: how often."""
    await create_topic(topic, PARTITIONS, 3)
    rng, told, waits = Random(7), set(), []
    for instance in range(KILLS + 1):
        lines = await one_life(
            kafka_cluster.bootstrap, topic, instance, rng.uniform(0.0, 0.5), instance < KILLS
        )
        told |= {f"{instance} {line.split()[1]}" for line in lines if line.startswith("committed")}
        waits += [float(line.split()[1]) for line in lines if line.startswith("wrote")]
    seen = Counter(
        value.rsplit(b" ", 1)[0].decode() for value in await read(kafka_cluster.bootstrap, topic)
    )
    restarts = sorted(waits[1:])  # the first life may have to wait for __transaction_state
    print(
        f"{KILLS} kills, {len(seen)} transactions seen, {len(told)} told committed; from a restart "
        f"to the first write {restarts[len(restarts) // 2]:.3f} s, at most {restarts[-1]:.3f} s"
    )
    assert set(seen.values()) == {RECORDS}, "partial or duplicated"
    assert told <= seen.keys(), "lost"
    assert len(seen.keys() - told) <= KILLS, "only the last of each life can be unknown"
    assert len(waits) == KILLS + 1
    assert restarts[-1] < 2


async def one_life(
    bootstrap: str, topic: str, instance: int, seconds: float, kill: bool
) -> list[str]:
    """Run the victim until it has written and some time has passed; what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(VICTIM),
        *(bootstrap, topic, str(instance), str(RECORDS), "" if kill else "1"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(60):
            while not any(line.startswith("wrote") for line in lines):
                line = await process.stdout.readline()
                assert line, lines
                lines.append(line.decode())
            if kill:
                await asyncio.sleep(seconds)
                process.kill()
            rest = await process.stdout.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    whole, _, _ = rest.decode().rpartition("\n")  # the last line may be cut off
    return lines + whole.splitlines()
