"""Transactions on the fake cluster, v1 and v2: commits, aborts, failures within (S5).

Ids such as ``L3`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BrokerError,
    KafkaError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kafkaclient.producer.batches.idempotence import MAX_EPOCH
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, ErrorCode, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now

if TYPE_CHECKING:
    from tests.producer.support import Look, StartProducer

# --- commit -----------------------------------------------------------------------------------


@virtual_time
async def test_a_block_commits(fake: FakeCluster, transacting: StartProducer, look: Look) -> None:
    """Keyed, explicit and late-bound records become visible together, at the end."""
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(3):
            async with producer.transaction():
                await producer.send_and_wait("t", b"%d unkeyed" % n)
                await producer.send_and_wait("t", b"%d keyed" % n, key=b"k")
                await producer.send_and_wait("t", b"%d explicit" % n, partition=5)
                assert len(look.written(fake)) == 3 * n + 3
                assert len(look.committed(fake)) < 3 * n + 3
            assert len(look.committed(fake)) == 3 * n + 3
        assert producer.metrics().producer["txn-commit-time-ns-total"] > 0
    assert look.all_ended(fake)


@virtual_time
async def test_a_commit_does_not_linger(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """L3: it sends what is there at once."""
    async with transacting(fake, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        began = now()
        async with producer.transaction():
            for n in range(10):
                await producer.send("t", b"%d" % n)
        assert now() - began < 1
    assert len(look.committed(fake)) == 10


@virtual_time
async def test_what_the_requests_say(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """v1: partitions are added before anything goes to them, Produce below 12; v2: Produce 12 and
    no AddPartitionsToTxn. Either way with the transactional id, the batches with their bit."""
    async with transacting(fake) as producer, producer.transaction():
        await producer.send("t", b"1", partition=0)
        await producer.send("t", b"2", partition=1)
    adds = fake.requests_of(ApiKey.ADD_PARTITIONS_TO_TXN)
    produces = fake.requests_of(ApiKey.PRODUCE)
    if look.is_v2(fake):
        assert not adds
        assert min(r.version for r in produces) >= 12
    else:
        assert len(adds) == 1
        assert max(r.version for r in produces) == 11
        assert fake.requests.index(adds[0]) < fake.requests.index(produces[0])
    assert {r.message.transactional_id for r in produces} == {"tx"}
    assert all(h.is_transactional for p in (0, 1) for h in fake.batches("t", p))
    (end,) = fake.requests_of(ApiKey.END_TXN)
    assert end.version == (5 if look.is_v2(fake) else 4)


@virtual_time
async def test_late_binding_adds_few_partitions(transacting: StartProducer, look: Look) -> None:
    """v1: a partition of each free broker, not all of the topic's: each costs a marker."""
    fake = FakeCluster(transactions_v2=False)
    fake.create_topic("t", 60, 1)
    async with (
        transacting(fake, linger_ms=0, batch_size=200) as producer,
        producer.transaction(),
    ):
        for n in range(200):
            await producer.send("t", b"%d" % n)
    assert len(look.committed(fake, 60)) == 200
    assert sum(len(fake.markers("t", p)) for p in range(60)) == 3


@pytest.mark.parametrize("partitioner", ["kip794", "round-robin", "late"])
@virtual_time
async def test_every_choice_of_partition(
    fake: FakeCluster, transacting: StartProducer, partitioner: str, look: Look
) -> None:
    adaptive = partitioner != "late"  # "late" without it: bound by rotation
    options = {"partitioner": partitioner, "adaptive_partitioning_enable": adaptive}
    async with transacting(fake, batch_size=100, **options) as producer:
        for _ in range(3):
            async with producer.transaction():
                for n in range(100):
                    await producer.send("t", b"%d" % n)
    assert len(look.committed(fake)) == 300
    assert look.all_ended(fake)


@virtual_time
async def test_an_empty_transaction_asks_nobody(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert not fake.requests_of(ApiKey.END_TXN)


@virtual_time
async def test_records_in_bulk(fake: FakeCluster, transacting: StartProducer, look: Look) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            await producer.send_many("t", [b"%d" % n for n in range(5000)])
        with pytest.raises(ProducerStateError):
            await producer.send_many("t", [b"x"])
    assert len(look.committed(fake)) == 5000


@virtual_time
@pytest.mark.parametrize("commits", [True, False])
async def test_a_send_many_does_not_outlive_its_transaction(
    fake: FakeCluster, transacting: StartProducer, look: Look, commits: bool
) -> None:
    """Its serializer works until the next transaction is open."""

    def serialize(value: bytes) -> Any:
        async def slow() -> bytes:
            await asyncio.sleep(2)
            return value

        return slow() if value == b"slow" else value

    async with transacting(fake, value_serializer=serialize) as producer:
        with suppress(LookupError):
            async with producer.transaction():
                await producer.send("t", b"first")
                late = asyncio.create_task(producer.send_many("t", [b"slow", b"second"]))
                await asyncio.sleep(0.01)
                if not commits:
                    raise LookupError
        async with producer.transaction():
            await producer.send("t", b"next")
            with pytest.raises(ProducerStateError, match="ended while the call waited"):
                await late
    assert sorted(look.committed(fake)) == ([b"first"] if commits else []) + [b"next"]


# --- abort ------------------------------------------------------------------------------------


@virtual_time
async def test_a_block_that_raises_aborts(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"never", partition=0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        async with producer.transaction():
            await producer.send("t", b"seen", partition=0)
    assert look.written(fake) == [b"never", b"seen"]
    assert look.committed(fake) == [b"seen"]
    assert [m.commit for m in fake.markers("t", 0)] == [False, True]


@virtual_time
async def test_an_abort_drops_what_was_not_sent(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    """S5: abort with 1,000 queued records: no Produce request after it, and no failure is told."""
    failures: list[Any] = []
    async with transacting(
        fake, linger_ms=60_000, delivery_timeout_ms=120_000, on_error=failures.append
    ) as producer:
        await producer.begin_transaction()
        await producer.send_many("t", [b"x" * 10 for _ in range(1000)], partition=0)
        delivery = await producer.send("t", b"y", partition=1)
        parked = producer.send_nowait("unknown", b"z")
        await producer.abort_transaction()
        for dropped in (delivery, parked):
            with pytest.raises(TransactionAbortedError):
                await dropped
    assert not fake.requests_of(ApiKey.PRODUCE)
    assert not failures


@virtual_time
async def test_an_abort_and_what_is_on_the_wire(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """v1 waits for its answer, v2 leaves it to the epoch; neither lets it into what comes after."""
    async with transacting(fake, linger_ms=0) as producer:
        for node in range(3):
            fake.delay_produce(node, 5.0)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"old", partition=0)
        await asyncio.sleep(0.1)
        began = now()
        await producer.abort_transaction()
        took = now() - began
        assert (took < 1) == look.is_v2(fake)
        for node in range(3):
            fake.delay_produce(node, 0.0)
        if look.is_v2(fake):
            with pytest.raises(TransactionAbortedError):
                await delivery
        async with producer.transaction():
            await producer.send("t", b"new", partition=0)
    assert look.committed(fake) == [b"new"]
    assert look.all_ended(fake)


@virtual_time
async def test_a_late_batch_of_an_aborted_transaction(
    transacting: StartProducer, look: Look
) -> None:
    """v2: it arrives after the end, is refused for its epoch, and harms nothing."""
    fake = FakeCluster()
    fake.round_trip_s = 0.001
    fake.create_topic("t", 1, 3)
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        fake.stall_broker(0)
        fake.move_coordinator("tx", 1)
        await producer.send("t", b"late", partition=0)
        await asyncio.sleep(0.1)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"new", partition=0)
        fake.resume_broker(0)
        await producer.commit_transaction()
    assert look.written(fake, 1) == look.committed(fake, 1) == [b"new"]
    assert look.all_ended(fake, 1)


@virtual_time
async def test_an_abort_brings_a_new_epoch(fake: FakeCluster, transacting: StartProducer) -> None:
    """KIP-360: also with v1, so that nothing that is lost leaves a gap."""
    async with transacting(fake, linger_ms=0) as producer:
        epochs = []
        for _ in range(3):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x", partition=0)
            await producer.abort_transaction()
            epochs.append(fake.transaction("tx").epoch)
        assert epochs == [1, 2, 3]


@virtual_time
async def test_used_up_epochs_bring_a_new_producer_id(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        first = fake.transaction("tx").producer_id
        fake.transaction("tx").epoch = inspect(producer).accumulator.identity.epoch = MAX_EPOCH
        for n in range(3):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % n, partition=0)
            await (producer.commit_transaction() if n else producer.abort_transaction())
        assert fake.transaction("tx").producer_id != first
    assert look.committed(fake) == [b"1", b"2"]


# --- errors within ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 45, 47, 59, 87, 120])
@virtual_time
async def test_a_failed_record_dooms_its_transaction_alone(
    fake: FakeCluster, transacting: StartProducer, code: int, look: Look
) -> None:
    """Nothing is committed, sends and the commit say why, an abort leads back to work."""
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"lost", partition=1)
        fake.fail_produce("t", 0, code)
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"bad", partition=0)
        for call in (producer.send("t", b"more"), producer.commit_transaction()):
            with pytest.raises(TransactionAbortableError) as caught:
                await call
            assert caught.value.__cause__ is not None
            assert caught.value.__cause__.code == code
        with pytest.raises(TransactionAbortableError):
            await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"good", partition=0)
    assert look.committed(fake) == [b"good"]
    assert look.all_ended(fake)


@virtual_time
async def test_a_block_with_a_failed_record(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """The commit raises, and the transaction has been aborted by then."""
    async with transacting(fake) as producer:
        fake.fail_produce("t", 0, ErrorCode.INVALID_RECORD)

        async def work() -> None:
            async with producer.transaction():
                await producer.send("t", b"bad", partition=0)
                await producer.send("t", b"innocent", partition=1)

        with pytest.raises(TransactionAbortableError):
            await work()
        async with producer.transaction():
            await producer.send("t", b"good", partition=0)
    assert look.committed(fake) == [b"good"]


@virtual_time
async def test_what_waits_is_given_up_with_the_transaction(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """As soon as it cannot be committed, nothing more is sent for it."""
    async with transacting(fake, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        await producer.begin_transaction()
        waiting = await producer.send("t", b"waits", partition=1)
        fake.fail_produce("t", 0, ErrorCode.INVALID_RECORD)
        await asyncio.gather(
            producer.send_many("t", [b"x" * 1000] * 17, partition=0), return_exceptions=True
        )
        with pytest.raises(TransactionAbortedError) as caught:
            await waiting
        assert isinstance(caught.value.__cause__, BrokerError)
        await producer.abort_transaction()
    assert look.committed(fake) == look.written(fake) == []


@virtual_time
async def test_a_retry_within_a_transaction(fake: FakeCluster, transacting: StartProducer) -> None:
    """Lost answers, moved leaders and missing replicas are nothing to a transaction."""
    async with transacting(fake, linger_ms=0) as producer, producer.transaction():
        await producer.send_and_wait("t", b"0", partition=0)
        fake.control(ApiKey.PRODUCE, CLOSE_ANSWER)
        await producer.send_and_wait("t", b"1", partition=0)
        fake.move_leader("t", 0, (fake.leader("t", 0) + 1) % 3)
        await producer.send_and_wait("t", b"2", partition=0)
        fake.fail_produce("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS, times=3)
        await producer.send_and_wait("t", b"3", partition=0)
    assert [r.value for r in fake.committed_log("t", 0)] == [b"0", b"1", b"2", b"3"]


@virtual_time
async def test_a_topic_that_is_created_anew(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """Between or within transactions: an abort at worst, and the producer goes on."""
    async with transacting(fake, linger_ms=0, metadata_max_age_ms=1000) as producer:
        async with producer.transaction():
            await producer.send_and_wait("t", b"gone", partition=0)
        fake.delete_topic("t")
        fake.create_topic("t", 6, 3)
        await asyncio.sleep(3)
        began = now()
        await producer.begin_transaction()
        try:
            await producer.send_and_wait("t", b"1", partition=0)
            await producer.commit_transaction()
        except KafkaError:
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait("t", b"1", partition=0)
        assert now() - began < 5
    assert look.committed(fake) == [b"1"]


# --- in_transaction -----------------------------------------------------------------------------


@virtual_time
async def test_in_transaction_follows_the_transaction(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    """Also where its end has no caller left, or where it can only be aborted."""
    fake.round_trip_s = 0.05
    assert not Producer(fake.bootstrap, dialer=fake, transactional_id="tx").in_transaction
    async with transacting(fake, linger_ms=0) as producer:
        assert not producer.in_transaction
        await producer.begin_transaction()
        assert producer.in_transaction
        await producer.send("t", b"v")
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.01)
        assert not producer.in_transaction
        commit.cancel()
        await asyncio.sleep(1)
        assert not producer.in_transaction
        await producer.begin_transaction()
        fake.fail_produce("t", 0, 29)
        with pytest.raises(BrokerError):
            await producer.send_and_wait("t", b"v", partition=0)
        assert not producer.in_transaction
        await producer.abort_transaction()
        async with producer.transaction():
            assert producer.in_transaction
        await producer.begin_transaction()
        await producer.prepare_transaction()
        assert not producer.in_transaction
    assert not producer.in_transaction
