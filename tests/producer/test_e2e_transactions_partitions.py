"""Which partitions are part of a transaction v1, and when: what has held up Java's producer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import ErrorCode, FakeCluster
from kafkaclient.wire.api import ApiKey


def now() -> float:
    return asyncio.get_running_loop().time()


def v1(partitions: int = 6) -> FakeCluster:
    fake = FakeCluster(transactions_v2=False)
    fake.round_trip_s = 0.001
    fake.create_topic("t", partitions, 3)
    return fake


@pytest.mark.parametrize("partitioner", ["sticky", "uniform-sticky", "kip794", "round-robin"])
@virtual_time
async def test_the_partition_that_a_record_moves_on_to_is_added(
    transacting: Any, look: Any, partitioner: str
) -> None:
    """KAFKA-13782: a record without key that opens a new batch changes its partition on the way;
    Java's added the one that it left, and waited for ever to send to the other."""
    fake = v1()
    options = {"partitioner": partitioner, "batch_size": 200, "linger_ms": 0}
    async with transacting(fake, **options) as producer:
        for n in range(5):
            began, seen = now(), len(fake.requests)
            async with producer.transaction():
                for m in range(60):
                    await producer.send("t", b"%d %d " % (n, m) * 8)
            assert now() - began < 1
            added: set[int] = set()
            for request in fake.requests[seen:]:
                if request.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
                    (topic,) = request.message.v3_and_below_topics
                    added |= set(topic.partitions)
                elif request.api_key == ApiKey.PRODUCE:
                    assert {partition for _, partition, _ in request.batches} <= added
            assert len(added) > 1, "records have moved on"
    assert len(look.committed(fake)) == 300
    assert look.all_ended(fake)


@virtual_time
async def test_a_throttled_coordinator_still_adds_partitions(transacting: Any, look: Any) -> None:
    """KAFKA-17455, C7: Produce to a broker rests for 3 s by its quota (KIP-219), while it is asked
    to add partitions as their coordinator; Java's sender was stuck."""
    fake = v1()
    fake.move_coordinator("tx", 0)
    mine = [p for p in range(6) if fake.leader("t", p) == 0]
    others = [p for p in range(6) if p not in mine]
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        fake.throttle(3000, node_id=0)
        await producer.send_and_wait("t", b"throttled", partition=mine[0])
        fake.throttle(0)
        began = now()
        waiting = [await producer.send("t", b"%d" % p, partition=p) for p in mine]
        await asyncio.gather(*[await producer.send("t", b"%d" % p, partition=p) for p in others])
        assert now() - began < 0.1
        await asyncio.gather(*waiting)
        assert now() - began == pytest.approx(3.0, abs=0.1)
        await producer.commit_transaction()
        assert now() - began < 3.2
    assert len(look.committed(fake)) == 7
    assert look.all_ended(fake)


@virtual_time
async def test_a_partition_that_cannot_be_added_yet_holds_up_no_retry(
    transacting: Any, look: Any
) -> None:
    """KAFKA-17455: one partition's batch is sent again while another waits to be added."""
    fake = v1()
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"0", partition=0)
        fake.fail_produce("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS, times=3)
        busy = fake.control(
            ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS, keep=True
        )
        began = now()
        retried = await producer.send("t", b"1", partition=0)
        held_up = await producer.send("t", b"2", partition=1)
        await retried
        assert now() - began < 2
        assert not held_up.done()
        await asyncio.sleep(5)
        assert busy.hits > 3
        busy.remove()
        await producer.commit_transaction()
        assert (await held_up).offset == 0
    assert [record.value for record in fake.committed_log("t", 0)] == [b"0", b"1"]
    assert look.all_ended(fake)
