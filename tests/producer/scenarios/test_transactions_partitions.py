"""Which partitions are part of a transaction v1, and when: what has held up Java's producer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import DeliveryTimeoutError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, DROP, ErrorCode, FakeCluster, delay, delay_answer
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now

if TYPE_CHECKING:
    from tests.producer.support import Look, StartProducer


def v1(partitions: int = 6) -> FakeCluster:
    fake = FakeCluster(transactions_v2=False)
    fake.round_trip_s = 0.001
    fake.create_topic("t", partitions, 3)
    return fake


@pytest.mark.parametrize("partitioner", ["sticky", "uniform-sticky", "kip794", "round-robin"])
@virtual_time
async def test_the_partition_that_a_record_moves_on_to_is_added(
    transacting: StartProducer, look: Look, partitioner: str
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
async def test_a_throttled_coordinator_still_adds_partitions(
    transacting: StartProducer, look: Look
) -> None:
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
    transacting: StartProducer, look: Look
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


def calls(fake: FakeCluster, *apis: ApiKey) -> list[ApiKey]:
    return [ApiKey(r.api_key) for r in fake.requests if r.api_key in apis]


async def invited(fake: FakeCluster, producer: Any, fault: Any) -> Any:
    """A transaction on topic ``t`` all of whose records are written, while one of its partitions,
    for which no record is left, is being added. The control that has it take a while is returned.
    """
    fake.stop_broker(1, elect=False)
    await asyncio.sleep(0.1)
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"first")  # only broker 0 can be reached
    fake.start_broker(1)
    slow = fake.control(ApiKey.ADD_PARTITIONS_TO_TXN, fault, keep=isinstance(fault, int))
    while not slow.hits:  # until broker 1 is back: one of its partitions is invited
        await producer.send_and_wait("t", b"second")
        await asyncio.sleep(0.001)
    return slow


FAULTS = [14, 51, 16, 3, delay(1.0), delay_answer(1.0), DROP, CLOSE]


@pytest.mark.parametrize("how", ["commit", "prepare", "abort"])
@pytest.mark.parametrize("fault", FAULTS)
@virtual_time
async def test_no_partition_is_added_after_the_end(
    transacting: StartProducer, look: Look, fault: Any, how: str
) -> None:
    """Transactions v1: a partition that is still being added when the transaction ends, for which
    there is no record any more, would begin a transaction that no producer knows of: it times out,
    and the producer is fenced by it."""
    fake = FakeCluster(brokers=2, transactions_v2=False, profile="kafka-3")
    fake.round_trip_s = 0.001
    fake.create_topic("t", 2)
    fake.move_coordinator("tx", 0)
    async with transacting(fake, linger_ms=0) as producer:
        async with producer.transaction():
            for partition in (0, 1):  # connect
                await producer.send_and_wait("t", b"warm", partition=partition)
        slow = await invited(fake, producer, fault)
        began = now()
        if how == "prepare":
            await producer.prepare_transaction()
            slow.remove()
            asked = len(calls(fake, ApiKey.ADD_PARTITIONS_TO_TXN))
            await asyncio.sleep(10)
            assert len(calls(fake, ApiKey.ADD_PARTITIONS_TO_TXN)) == asked
            await producer.commit_transaction()
        elif how == "commit":
            await producer.commit_transaction()
            if fault is not DROP:  # nothing else is answered either on that connection
                assert now() - began < 2, "a partition that is not needed holds up no commit"
            slow.remove()
        else:
            await producer.abort_transaction()
            slow.remove()
        await asyncio.sleep(10)
        ends = calls(fake, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
        assert ends[-1] is ApiKey.END_TXN
        assert fake.transaction("tx").state.name in ("COMPLETE_COMMIT", "COMPLETE_ABORT", "EMPTY")
        for n in range(2):
            began = now()
            async with producer.transaction():
                await producer.send("t", b"third %d" % n, partition=n)
            assert now() - began < 1
    assert look.all_ended(fake, 2)


@pytest.mark.parametrize("answered", [True, False])
@virtual_time
async def test_an_abort_waits_for_what_expired_on_the_wire(
    transacting: StartProducer, look: Look, answered: bool
) -> None:
    """Transactions v1: a batch that arrives after the end of its transaction, under the same epoch,
    opens another one in the partition, which nobody ends."""
    fake = FakeCluster(brokers=2, transactions_v2=False, profile="kafka-3")
    fake.create_topic("t", 1, assignments=[[1]])
    fake.move_coordinator("tx", 0)
    options = {"linger_ms": 0, "request_timeout_ms": 4000, "delivery_timeout_ms": 5000}
    async with transacting(fake, **options) as producer:
        async with producer.transaction():
            await producer.send_and_wait("t", b"warm")
        await producer.begin_transaction()
        slow = fake.control(ApiKey.PRODUCE, delay(3.0 if answered else 60.0), keep=True)
        began = now()
        delivery = await producer.send("t", b"late")
        await asyncio.sleep(2.5)
        fake.drop_connections(1)  # the second attempt is on the wire when the delivery expires
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        expired = now()
        assert expired - began == pytest.approx(5, abs=0.1)
        await producer.abort_transaction()
        assert now() - began == pytest.approx(5.6 if answered else 6.6, abs=0.15)
        produced = [r.at for r in fake.requests if r.api_key == ApiKey.PRODUCE]
        (*_, end) = [r.at for r in fake.requests if r.api_key == ApiKey.END_TXN]
        assert end >= max(produced) + (3 if answered else 4)
        slow.remove()
        async with producer.transaction():
            await producer.send("t", b"next")
    assert look.committed(fake, 1) == [b"next", b"warm"]
    assert look.all_ended(fake, 1)
