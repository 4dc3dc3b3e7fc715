"""Transactions on the fake cluster, v1 and v2: all or nothing, whatever happens in between (S5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    KafkaError,
    ProducerFencedError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimeoutError,
    UnsupportedVersionError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.producer.sequence import MAX_EPOCH
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, DROP, DROP_ANSWER, ErrorCode, FakeCluster
from kafkaclient.wire.api import ApiKey

GROUP = "readers"


@pytest.fixture(params=["v1", "v2"])
def fake(request: pytest.FixtureRequest) -> FakeCluster:
    cluster = FakeCluster(transactions_v2=request.param == "v2")
    cluster.round_trip_s = 0.001
    cluster.create_topic("t", 6, 3)
    return cluster


def is_v2(fake: FakeCluster) -> bool:
    return fake._state.transactions_v2


@pytest.fixture
def transacting(producing: Any) -> Any:
    """``async with transacting(fake) as producer``: one with a transactional id."""

    def made(fake: FakeCluster, **options: Any) -> Any:
        options.setdefault("transactional_id", "tx")
        return producing(fake, **options)

    return made


def committed(fake: FakeCluster, partitions: int = 6) -> list[bytes]:
    """What consumers of committed records see, sorted."""
    return sorted(r.value or b"" for p in range(partitions) for r in fake.committed_log("t", p))


def written(fake: FakeCluster, partitions: int = 6) -> list[bytes]:
    return sorted(r.value or b"" for p in range(partitions) for r in fake.log("t", p))


def nothing_hangs(fake: FakeCluster, partitions: int = 6) -> bool:
    """No log has an open transaction."""
    ends = [fake._partition("t", p).log.end_offset for p in range(partitions)]
    return ends == [fake.last_stable_offset("t", p) for p in range(partitions)]


# --- commit -----------------------------------------------------------------------------------


@virtual_time
async def test_a_block_commits(fake: FakeCluster, transacting: Any) -> None:
    """Keyed, explicit and late-bound records become visible together, at the end."""
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(3):
            async with producer.transaction():
                await producer.send_and_wait("t", b"%d unkeyed" % n)
                await producer.send_and_wait("t", b"%d keyed" % n, key=b"k")
                await producer.send_and_wait("t", b"%d explicit" % n, partition=5)
                assert len(written(fake)) == 3 * n + 3
                assert len(committed(fake)) < 3 * n + 3
            assert len(committed(fake)) == 3 * n + 3
    assert nothing_hangs(fake)


@virtual_time
async def test_a_commit_does_not_linger(fake: FakeCluster, transacting: Any) -> None:
    """L3: it sends what is there at once."""
    async with transacting(fake, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        began = asyncio.get_running_loop().time()
        async with producer.transaction():
            for n in range(10):
                await producer.send("t", b"%d" % n)
        assert asyncio.get_running_loop().time() - began < 1
    assert len(committed(fake)) == 10


@virtual_time
async def test_what_the_requests_say(fake: FakeCluster, transacting: Any) -> None:
    """v1: partitions are added before anything goes to them, Produce below 12; v2: Produce 12 and
    no AddPartitionsToTxn. Either way with the transactional id, the batches with their bit."""
    async with transacting(fake) as producer, producer.transaction():
        await producer.send("t", b"1", partition=0)
        await producer.send("t", b"2", partition=1)
    adds = fake.requests_of(ApiKey.ADD_PARTITIONS_TO_TXN)
    produces = fake.requests_of(ApiKey.PRODUCE)
    if is_v2(fake):
        assert not adds
        assert {r.version for r in produces} == {12}
    else:
        assert len(adds) == 1
        assert max(r.version for r in produces) == 11
        assert fake.requests.index(adds[0]) < fake.requests.index(produces[0])
    assert {r.message.transactional_id for r in produces} == {"tx"}
    assert all(h.is_transactional for p in (0, 1) for h in fake.batches("t", p))
    (end,) = fake.requests_of(ApiKey.END_TXN)
    assert end.version == (5 if is_v2(fake) else 4)


@virtual_time
async def test_late_binding_adds_few_partitions(transacting: Any) -> None:
    """v1: a partition of each free broker, not all of the topic's: each costs a marker."""
    fake = FakeCluster(transactions_v2=False)
    fake.create_topic("t", 60, 1)
    async with transacting(fake, linger_ms=0, batch_size=200) as producer:
        async with producer.transaction():
            for n in range(200):
                await producer.send("t", b"%d" % n)
    assert len(committed(fake, 60)) == 200
    assert sum(len(fake.markers("t", p)) for p in range(60)) == 3


@pytest.mark.parametrize("partitioner", ["kip794", "round-robin", "late"])
@virtual_time
async def test_every_choice_of_partition(
    fake: FakeCluster, transacting: Any, partitioner: str
) -> None:
    adaptive = partitioner != "late"  # "late" without it: bound by rotation
    options = {"partitioner": partitioner, "adaptive_partitioning_enable": adaptive}
    async with transacting(fake, batch_size=100, **options) as producer:
        for _ in range(3):
            async with producer.transaction():
                for n in range(100):
                    await producer.send("t", b"%d" % n)
    assert len(committed(fake)) == 300
    assert nothing_hangs(fake)


@virtual_time
async def test_an_empty_transaction_asks_nobody(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert not fake.requests_of(ApiKey.END_TXN)


@virtual_time
async def test_records_in_bulk(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            await producer.send_many("t", [b"%d" % n for n in range(5000)])
        with pytest.raises(ProducerStateError):
            await producer.send_many("t", [b"x"])
    assert len(committed(fake)) == 5000


# --- abort ------------------------------------------------------------------------------------


@virtual_time
async def test_a_block_that_raises_aborts(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"never", partition=0)
                _ = 1 / 0
        async with producer.transaction():
            await producer.send("t", b"seen", partition=0)
    assert written(fake) == [b"never", b"seen"]
    assert committed(fake) == [b"seen"]
    assert [m.commit for m in fake.markers("t", 0)] == [False, True]


@virtual_time
async def test_an_abort_drops_what_was_not_sent(fake: FakeCluster, transacting: Any) -> None:
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
async def test_an_abort_and_what_is_on_the_wire(fake: FakeCluster, transacting: Any) -> None:
    """v1 waits for its answer, v2 leaves it to the epoch; neither lets it into what comes after."""
    async with transacting(fake, linger_ms=0) as producer:
        for node in range(3):
            fake.delay_produce(node, 5.0)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"old", partition=0)
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await producer.abort_transaction()
        took = asyncio.get_running_loop().time() - began
        assert (took < 1) == is_v2(fake)
        for node in range(3):
            fake.delay_produce(node, 0.0)
        if is_v2(fake):
            with pytest.raises(TransactionAbortedError):
                await delivery
        async with producer.transaction():
            await producer.send("t", b"new", partition=0)
    assert committed(fake) == [b"new"]
    assert nothing_hangs(fake)


@virtual_time
async def test_a_late_batch_of_an_aborted_transaction(transacting: Any) -> None:
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
    assert written(fake, 1) == committed(fake, 1) == [b"new"]
    assert nothing_hangs(fake, 1)


@virtual_time
async def test_an_abort_brings_a_new_epoch(fake: FakeCluster, transacting: Any) -> None:
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
async def test_used_up_epochs_bring_a_new_producer_id(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        first = fake.transaction("tx").producer_id
        fake.transaction("tx").epoch = producer._core.accumulator.identity.epoch = MAX_EPOCH
        for n in range(3):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % n, partition=0)
            await (producer.commit_transaction() if n else producer.abort_transaction())
        assert fake.transaction("tx").producer_id != first
    assert committed(fake) == [b"1", b"2"]


# --- errors within ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 45, 47, 59, 87, 120])
@virtual_time
async def test_a_failed_record_dooms_its_transaction_alone(
    fake: FakeCluster, transacting: Any, code: int
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
    assert committed(fake) == [b"good"]
    assert nothing_hangs(fake)


@virtual_time
async def test_a_block_with_a_failed_record(fake: FakeCluster, transacting: Any) -> None:
    """The commit raises, and the transaction has been aborted by then."""
    async with transacting(fake) as producer:
        fake.fail_produce("t", 0, ErrorCode.INVALID_RECORD)
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction():
                await producer.send("t", b"bad", partition=0)
                await producer.send("t", b"innocent", partition=1)
        async with producer.transaction():
            await producer.send("t", b"good", partition=0)
    assert committed(fake) == [b"good"]


@virtual_time
async def test_what_waits_is_given_up_with_the_transaction(
    fake: FakeCluster, transacting: Any
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
    assert committed(fake) == written(fake) == []


@virtual_time
async def test_a_retry_within_a_transaction(fake: FakeCluster, transacting: Any) -> None:
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


# --- the coordinator --------------------------------------------------------------------------


CALLS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


@pytest.mark.parametrize("fault", [14, 15, 16, 51, 7, CLOSE_ANSWER, DROP, DROP_ANSWER])
@pytest.mark.parametrize("api", CALLS)
@virtual_time
async def test_every_call_is_made_again(
    fake: FakeCluster, transacting: Any, api: ApiKey, fault: Any
) -> None:
    """A coordinator that loads, moves, hangs up, or is silent before or after it has done it."""
    fake.control(api, fault)
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(2):
            async with producer.transaction():
                await producer.send("t", b"%d" % n, partition=0)
                await producer.send_offsets_to_transaction({("in", 0): n + 1}, GROUP)
    assert committed(fake) == [b"0", b"1"]
    assert fake.committed_offset(GROUP, "in", 0) == 2
    assert nothing_hangs(fake)


@virtual_time
async def test_the_coordinator_moves_at_every_step(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(6):
            fake.move_coordinator("tx", n % 3)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % n, partition=0)
            fake.move_coordinator("tx", (n + 1) % 3)
            await (producer.abort_transaction() if n % 2 else producer.commit_transaction())
    assert committed(fake) == [b"0", b"2", b"4"]


@virtual_time
async def test_the_coordinator_is_stopped(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        fake.stop_broker(fake.coordinator("tx"))
        await producer.commit_transaction()
    assert committed(fake) == [b"1"]


@pytest.mark.parametrize("api", [ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN])
@pytest.mark.parametrize("code", [48, 49, 59, 120, -1])
@virtual_time
async def test_a_refusal_that_can_be_aborted(
    fake: FakeCluster, transacting: Any, api: ApiKey, code: int
) -> None:
    """Also when the coordinator refuses the abort: the next epoch ends whatever is open."""
    if api is ApiKey.ADD_PARTITIONS_TO_TXN and is_v2(fake):
        pytest.skip("there is no such call")
    fake.control(api, code)
    async with transacting(fake) as producer:
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction():
                await producer.send("t", b"1", partition=0)
        fake.control(ApiKey.END_TXN, code)
        await producer.begin_transaction()
        await producer.send("t", b"2", partition=0)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"3", partition=0)
    assert committed(fake) == [b"3"]
    assert nothing_hangs(fake)


@pytest.mark.parametrize("code", [53, 50, 31])
@virtual_time
async def test_a_producer_that_is_not_allowed_does_not_start(fake: FakeCluster, code: int) -> None:
    fake.control(ApiKey.INIT_PRODUCER_ID, code)
    producer = Producer(fake.bootstrap, dialer=fake, transactional_id="tx")
    with pytest.raises(BrokerError) as caught:
        await producer.start()
    assert caught.value.code == code
    assert "'tx'" in str(caught.value)


@virtual_time
async def test_a_topic_that_may_not_be_written(transacting: Any) -> None:
    """v1: the answer to AddPartitionsToTxn names the topic; the producer goes on."""
    fake = FakeCluster(transactions_v2=False)
    fake.create_topic("t", 1)
    code = 29
    fake.control(ApiKey.ADD_PARTITIONS_TO_TXN, code)
    async with transacting(fake) as producer:
        with pytest.raises(TransactionAbortableError, match="t-0"):
            async with producer.transaction():
                await producer.send("t", b"1")
        async with producer.transaction():
            await producer.send("t", b"2")
    assert committed(fake, 1) == [b"2"]


@virtual_time
async def test_a_cluster_that_is_too_old(transacting: Any) -> None:
    """Recovery needs InitProducerId v3 (Kafka 2.5); the error says what is missing."""
    fake = FakeCluster(transactions_v2=False)
    fake.set_versions(ApiKey.INIT_PRODUCER_ID, 0, 2)
    with pytest.raises(UnsupportedVersionError, match="INIT_PRODUCER_ID"):
        async with transacting(fake):
            pass


# --- fencing ----------------------------------------------------------------------------------


@virtual_time
async def test_a_second_producer_fences_the_first(fake: FakeCluster, transacting: Any) -> None:
    """What the first had written stays invisible; it is told at its next step, for good."""
    async with transacting(fake, linger_ms=0) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"zombie", partition=0)
        async with transacting(fake, linger_ms=0) as second:
            async with second.transaction():
                await second.send("t", b"new", partition=0)
            with pytest.raises(ProducerFencedError):
                await first.commit_transaction()
            for call in (first.send("t", b"x"), first.begin_transaction(), first.flush()):
                with pytest.raises(ProducerFencedError):
                    await call
                    raise first._core.fatal
            async with second.transaction():
                await second.send("t", b"newer", partition=0)
    assert committed(fake) == [b"new", b"newer"]
    assert nothing_hangs(fake)


@virtual_time
async def test_a_fenced_producer_that_sends(fake: FakeCluster, transacting: Any) -> None:
    """A leader cannot tell fenced from timed out: the record fails, the abort tells which it is."""
    async with transacting(fake, linger_ms=0) as first, transacting(fake) as second:
        with pytest.raises(ProducerFencedError):
            async with first.transaction():
                await first.send("t", b"zombie", partition=0)
        with pytest.raises(ProducerFencedError):
            await first.begin_transaction()
        async with second.transaction():
            await second.send("t", b"new", partition=0)
    assert committed(fake) == [b"new"]


@virtual_time
async def test_a_transaction_that_took_too_long(fake: FakeCluster, transacting: Any) -> None:
    """KIP-588: with v2 the producer recovers by itself. With v1 the coordinator fences it, which
    cannot be told from another producer's doing."""
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"slow", partition=0)
        fake.expire_transaction("tx")
        with pytest.raises((TransactionAbortableError, ProducerFencedError)):
            await producer.commit_transaction()
        if is_v2(fake):
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"quick", partition=0)
        else:
            with pytest.raises(ProducerFencedError):
                await producer.abort_transaction()
    assert committed(fake) == ([b"quick"] if is_v2(fake) else [])


# --- offsets ----------------------------------------------------------------------------------


@virtual_time
async def test_offsets_are_committed_with_the_records(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            await producer.send("t", b"1")
            await producer.send_offsets_to_transaction({("in", 0): 7, ("in", 1): 9}, GROUP)
            assert fake.committed_offset(GROUP, "in", 0) is None
        found = await producer.committed(GROUP, [("in", 0), ("in", 1), ("in", 2)])
        assert [o and o.offset for o in found.values()] == [7, 9, None]
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({("in", 0): 8}, GROUP)
                _ = 1 / 0
        assert fake.committed_offset(GROUP, "in", 0) == 7


@virtual_time
async def test_offsets_of_a_member_that_was_given_up(fake: FakeCluster, transacting: Any) -> None:
    """KIP-447: the group's generation has moved on, so the transaction can only be aborted."""
    from kafkaclient.types import ConsumerGroupMetadata

    fake.rebalance(GROUP, 5)
    async with transacting(fake) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1")
        with pytest.raises(TransactionAbortableError, match="ILLEGAL_GENERATION"):
            await producer.send_offsets_to_transaction(
                {("in", 0): 1}, ConsumerGroupMetadata(GROUP, 4, "me")
            )
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction(
                {("in", 0): 2}, ConsumerGroupMetadata(GROUP, 5, "me")
            )
    assert committed(fake) == []
    assert fake.committed_offset(GROUP, "in", 0) == 2


@virtual_time
async def test_committed_waits_for_stable_offsets(fake: FakeCluster, transacting: Any) -> None:
    """An offset that an open transaction is about to change is not handed out before its end."""
    async with transacting(fake, transactional_id="other") as other:
        async with transacting(fake) as producer:
            await other.begin_transaction()
            await other.send_offsets_to_transaction({("in", 0): 3}, GROUP)
            reading = asyncio.create_task(producer.committed(GROUP, [("in", 0)]))
            await asyncio.sleep(5)
            assert not reading.done()
            await other.commit_transaction()
            assert [o and o.offset for o in (await reading).values()] == [3]


@virtual_time
async def test_nobody_ends_the_transaction_that_changes_the_offset(
    fake: FakeCluster, transacting: Any
) -> None:
    async with transacting(fake, transactional_id="other") as other:
        async with transacting(fake, max_block_ms=2000) as producer:
            await other.begin_transaction()
            await other.send_offsets_to_transaction({("in", 0): 3}, GROUP)
            with pytest.raises(TransactionTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
                await producer.committed(GROUP, [("in", 0)])


@pytest.mark.parametrize("offset", [-1, "5", 1.5, True, None])
@virtual_time
async def test_offsets_that_are_none(transacting: Any, offset: Any) -> None:
    fake = FakeCluster()
    async with transacting(fake) as producer:
        await producer.begin_transaction()
        with pytest.raises((ValueError, TypeError, AttributeError)):
            await producer.send_offsets_to_transaction({("in", 0): offset}, GROUP)
        await producer.commit_transaction()


# --- calls out of place -----------------------------------------------------------------------


@virtual_time
async def test_sends_outside_of_a_transaction(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake) as producer:
        for _ in range(2):
            for call in (producer.send("t", b"x"), producer.send_and_wait("t", b"x")):
                with pytest.raises(ProducerStateError, match="begin_transaction"):
                    await call
            with pytest.raises(ProducerStateError, match="begin_transaction"):
                producer.send_nowait("t", b"x")
            with pytest.raises(ProducerStateError, match="begin_transaction"):
                await producer.send_offsets_to_transaction({("in", 0): 1}, GROUP)
            for name in ("commit_transaction", "abort_transaction"):
                with pytest.raises(ProducerStateError, match="no transaction open"):
                    await getattr(producer, name)()
            async with producer.transaction():
                producer.send_nowait("t", b"in it")
                with pytest.raises(ProducerStateError, match="has a transaction open"):
                    await producer.begin_transaction()
    assert committed(fake) == [b"in it"] * 2


@virtual_time
async def test_a_producer_without_a_transactional_id(producing: Any) -> None:
    async with producing(FakeCluster()) as producer:
        with pytest.raises(ProducerStateError, match=r"transactional\.id"):
            producer.transaction()
        with pytest.raises(ProducerStateError, match=r"transactional\.id"):
            await producer.begin_transaction()


@virtual_time
async def test_a_send_that_waits_does_not_slip_into_the_next_transaction(
    fake: FakeCluster, transacting: Any
) -> None:
    """It waits for metadata while its transaction is aborted and another begun."""
    async with transacting(fake) as producer:
        await producer.begin_transaction()
        gate = fake.control(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, keep=True)
        sending = asyncio.create_task(producer.send("later", b"x"))
        await asyncio.sleep(0.5)
        await producer.abort_transaction()
        await producer.begin_transaction()
        gate.remove()
        fake.create_topic("later", 1)
        with pytest.raises(ProducerStateError, match="the transaction ended while"):
            await sending
        await producer.commit_transaction()
    assert fake.log("later", 0) == []


# --- time, cancellation, the end --------------------------------------------------------------


@virtual_time
async def test_a_start_without_coordinator_ends(fake: FakeCluster) -> None:
    fake.control(ApiKey.FIND_COORDINATOR, 15, keep=True)
    producer = Producer(fake.bootstrap, dialer=fake, transactional_id="tx", max_block_ms=5000)
    began = asyncio.get_running_loop().time()
    with pytest.raises(TransactionTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
        await producer.start()
    assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.5)


@pytest.mark.parametrize("how", ["commit_transaction", "abort_transaction"])
@virtual_time
async def test_an_end_that_takes_too_long_has_one_outcome(
    fake: FakeCluster, transacting: Any, how: str
) -> None:
    """The call gives up, the end does not; called again it tells. Meanwhile nothing else goes."""
    options = {"max_block_ms": 5000, "request_timeout_ms": 2000, "linger_ms": 0}
    async with transacting(fake, **options) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        silent = fake.control(ApiKey.END_TXN, DROP, keep=True)
        with pytest.raises(TransactionTimeoutError, match=f"{how} goes on"):
            await getattr(producer, how)()
        with pytest.raises(TransactionTimeoutError):
            await getattr(producer, how)()
        if how == "commit_transaction":
            with pytest.raises(ProducerStateError, match="its commit is on its way"):
                await producer.abort_transaction()
        with pytest.raises(ProducerStateError):
            await producer.send("t", b"2")
        silent.remove()
        await getattr(producer, how)()
        async with producer.transaction():
            await producer.send("t", b"3", partition=0)
    seen = [b"1", b"3"] if how == "commit_transaction" else [b"3"]
    assert committed(fake) == seen


@pytest.mark.parametrize("how", ["commit_transaction", "abort_transaction"])
@pytest.mark.parametrize("after", [0.0, 0.0005, 0.002, 0.004, 0.01])
@virtual_time
async def test_a_cancelled_end_may_be_awaited_again(
    fake: FakeCluster, transacting: Any, how: str, after: float
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(3):
            await producer.begin_transaction()
            await producer.send("t", b"%d" % n, partition=0)
            ending = asyncio.create_task(getattr(producer, how)())
            await asyncio.sleep(after)
            cancelled = ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            if (cancelled and after) or producer._core.transactions.abortable:
                await getattr(producer, how)()
            async with producer.transaction():
                pass
    assert committed(fake) == ([b"0", b"1", b"2"] if how == "commit_transaction" else [])
    assert nothing_hangs(fake)


@virtual_time
async def test_an_outcome_that_came_while_nobody_waited(
    fake: FakeCluster, transacting: Any
) -> None:
    """Told once to who asks later, and then forgotten."""
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        await asyncio.sleep(5)
        assert committed(fake) == [b"1"]
        await producer.commit_transaction()
        with pytest.raises(ProducerStateError, match="nothing to commit"):
            await producer.commit_transaction()


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.01, 1.0])
@virtual_time
async def test_a_cancelled_block_aborts_or_commits(
    fake: FakeCluster, transacting: Any, after: float
) -> None:
    """Whenever it is cancelled: all or nothing, and the producer goes on."""
    async with transacting(fake, linger_ms=0) as producer:

        async def work() -> None:
            async with producer.transaction():
                for partition in range(6):
                    await producer.send("t", b"%d" % partition, partition=partition)

        working = asyncio.create_task(work())
        await asyncio.sleep(after)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        async with producer.transaction():
            await producer.send("t", b"z", partition=0)
    seen = committed(fake)
    assert seen in ([b"z"], [b"%d" % n for n in range(6)] + [b"z"])
    if after == 1.0:
        assert len(seen) == 7
    assert nothing_hangs(fake)


@virtual_time
async def test_an_abort_instead_of_a_commit_that_cannot_flush(
    fake: FakeCluster, transacting: Any
) -> None:
    """Records wait for a dead partition: the application may change its mind, nothing was sent."""
    async with transacting(fake, linger_ms=0, max_block_ms=5000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=1)
        fake.move_leader("t", 0, -1)
        await producer.send("t", b"2", partition=0)
        with pytest.raises(TransactionTimeoutError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"3", partition=1)
    assert committed(fake) == [b"3"]
    assert nothing_hangs(fake)


@virtual_time
async def test_a_block_whose_commit_cannot_flush_is_aborted(
    fake: FakeCluster, transacting: Any
) -> None:
    async with transacting(fake, linger_ms=0, max_block_ms=5000) as producer:
        fake.move_leader("t", 0, -1)
        with pytest.raises(TransactionTimeoutError):
            async with producer.transaction():
                await producer.send("t", b"2", partition=0)
        async with producer.transaction():
            await producer.send("t", b"3", partition=1)
    assert committed(fake) == [b"3"]


@virtual_time
async def test_a_record_that_expires_dooms_the_transaction(
    fake: FakeCluster, transacting: Any
) -> None:
    options = {"delivery_timeout_ms": 3000, "request_timeout_ms": 1000, "linger_ms": 0}
    async with transacting(fake, **options) as producer:
        await producer.begin_transaction()
        fake.move_leader("t", 0, -1)
        await producer.send("t", b"2", partition=0)
        with pytest.raises(TransactionAbortableError, match="delivery.timeout.ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()


@virtual_time
async def test_stop_aborts_what_is_open(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        waiting = await producer.send("t", b"2", partition=1)
        assert await producer.stop() == 0
        await asyncio.gather(waiting, return_exceptions=True)
    assert committed(fake) == []
    assert nothing_hangs(fake)


@virtual_time
async def test_stop_waits_for_a_commit(fake: FakeCluster, transacting: Any) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        await producer.stop()
        await committing
    assert committed(fake) == [b"1"]


@pytest.mark.parametrize("timeout", [2, None])
@virtual_time
async def test_stop_without_coordinator_ends(
    fake: FakeCluster, transacting: Any, timeout: float | None
) -> None:
    """L1: by its own timeout, or by max.block.ms."""
    async with transacting(fake, linger_ms=0, max_block_ms=5000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        fake.control(ApiKey.END_TXN, DROP, keep=True)
        fake.control(ApiKey.INIT_PRODUCER_ID, DROP, keep=True)
        began = asyncio.get_running_loop().time()
        await producer.stop(timeout=timeout)
        took = asyncio.get_running_loop().time() - began
        assert took == pytest.approx(timeout or 5, abs=1.1)


@virtual_time
async def test_a_group_that_may_not_be_read(fake: FakeCluster, transacting: Any) -> None:
    code = 30
    async with transacting(fake) as producer:
        fake.control(ApiKey.FIND_COORDINATOR, code)
        with pytest.raises(AuthorizationError, match=GROUP):
            await producer.committed(GROUP, [("in", 0)])
