"""Transactions on real brokers, v2 and v1, as consumers of committed records see them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from integration.transaction_stories import (
    PARTITIONS,
    SEEN,
    everything,
    nothing_after_the_end,
    prepared_and_ended,
    read,
    time_out,
)
from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.inspect import inspect

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

# --- v2, on the common cluster ------------------------------------------------------------------


async def test_offsets_of_a_deleted_topic(kafka_cluster, topic, create_topic) -> None:
    """They do not become those of a topic with the same name (KIP-1319)."""
    await create_topic(topic, 1)
    options = {"transactional_id": f"tx-{topic}", "max_block_ms": 10_000}
    async with (
        Admin(kafka_cluster.bootstrap) as admin,
        Producer(kafka_cluster.bootstrap, **options) as producer,
    ):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"1")
            await producer.send_offsets_to_transaction({(topic, 0): 1}, topic)
        assert (await producer.committed(topic, [(topic, 0)]))[topic, 0].offset == 1
        await admin.delete_topics([topic])
        await asyncio.sleep(0.5)
        await create_topic(topic, 1)
        await producer.begin_transaction()
        with pytest.raises(KafkaError, match=f"{topic}-0 does not exist"):
            await producer.send_offsets_to_transaction({(topic, 0): 2}, topic)
        await producer.abort_transaction()
        assert (await producer.committed(topic, [(topic, 0)]))[topic, 0] is None


async def test_offsets_are_of_the_topic_that_was_read(kafka_cluster, topic, create_topic) -> None:
    """Though the producer has only known the new topic, and does not know another one."""
    await create_topic(topic, 1)
    await create_topic(f"{topic}-2", 1)
    async with Producer(kafka_cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"1")
    options = {"transactional_id": f"tx-{topic}", "max_block_ms": 10_000}
    async with (
        Admin(kafka_cluster.bootstrap) as admin,
        Producer(kafka_cluster.bootstrap, **options) as producer,
        Consumer(kafka_cluster.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([(topic, 0)])
        batch = await anext(aiter(consumer.batches()))
        for expected in (1, None):
            await producer.begin_transaction()
            outcome = nullcontext() if expected else pytest.raises(KafkaError, match="not exist")
            with outcome:
                offsets = {(f"{topic}-2", 0): 3, **batch.next_offsets}
                await producer.send_offsets_to_transaction(offsets, topic)
            await (producer.commit_transaction if expected else producer.abort_transaction)()
            found = (await producer.committed(topic, [(topic, 0)]))[topic, 0]
            assert (found and found.offset) == expected
            await admin.delete_topics([topic])
            await asyncio.sleep(0.5)
            await create_topic(topic, 1)
            await producer.partitions_for(topic)


async def test_transactions_v2(kafka_cluster, topic, create_topic) -> None:
    await create_topic(topic, PARTITIONS, 3)
    await everything(kafka_cluster, topic, f"tx-{topic}", v2=True)
    seen = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", str(SEEN)),
    )
    lines = seen.stdout.splitlines()
    assert len(lines) == SEEN
    assert not any("zombie" in line or "aborted" in line for line in lines)


@pytest.mark.full
async def test_the_coordinator_is_killed(kafka_cluster, topic, create_topic) -> None:
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
    assert inspect(producer) is not None
    assert inspect(producer).transactions is not None
    (node,) = inspect(producer).transactions.requests._coordinators._nodes.values()
    await cluster.kill(node)
    return node


@pytest.mark.full
async def test_transactions_v1() -> None:
    """On a cluster whose feature level is that of before 4.0."""
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    async with LocalCluster(2, config=config, features={"transaction.version": 1}) as cluster:
        async with Producer(cluster.bootstrap) as producer:
            for topic in ("v1", "v1-slow", "v1-prepared"):
                await producer.partitions_for(topic)  # made with 6 partitions
        async with asyncio.TaskGroup() as group:
            group.create_task(time_out(cluster, "v1-slow", "tx-v1-slow", v2=False))
            group.create_task(prepared_and_ended(cluster, "v1-prepared", "tx-v1-prepared"))
            group.create_task(everything(cluster, "v1", "tx-v1", v2=False))
            group.create_task(nothing_after_the_end(cluster, "v1-after"))


# --- processes that are killed ------------------------------------------------------------------

KILLS = int(os.environ.get("KAFKACLIENT_KILLS", "3"))
RECORDS = 60
VICTIM = Path(__file__).with_name("transaction_victim.py")


@pytest.mark.timeout(180 + 10 * KILLS)
async def test_a_process_is_killed_in_the_middle(kafka_cluster, topic, create_topic) -> None:
    """Each transaction is there as a whole or not at all, each that was told committed is, nothing
    hangs, and a restart under the same id writes again soon (within 2 s on a quiet machine), far
    before transaction.timeout.ms. KAFKACLIENT_KILLS: how often."""
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
    assert restarts[-1] < 10


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
