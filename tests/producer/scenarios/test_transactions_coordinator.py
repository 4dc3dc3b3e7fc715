"""Transactions and their coordinators: calls that fail, fencing, groups' offsets (S5)."""

from __future__ import annotations

import asyncio
import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BrokerError,
    KafkaError,
    ProducerFencedError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionTimeoutError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, DROP, DROP_ANSWER, ErrorCode, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from tests.producer.support import Look, StartProducer

GROUP = "readers"


# --- the coordinator --------------------------------------------------------------------------


CALLS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


@pytest.mark.parametrize("fault", [-1, 7, 14, 15, 16, 51, CLOSE_ANSWER, DROP, DROP_ANSWER])
@pytest.mark.parametrize("api", CALLS)
@virtual_time
async def test_every_call_is_made_again(
    fake: FakeCluster, transacting: StartProducer, api: ApiKey, fault: Any, look: Look
) -> None:
    """A coordinator that loads, moves, hangs up, or is silent before or after it has done it."""
    fake.control(api, fault)
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(2):
            async with producer.transaction():
                await producer.send("t", b"%d" % n, partition=0)
                await producer.send_offsets_to_transaction({("in", 0): n + 1}, GROUP)
    assert look.committed(fake) == [b"0", b"1"]
    assert fake.committed_offset(GROUP, "in", 0) == 2
    assert look.all_ended(fake)


@pytest.mark.parametrize("code", [-1, 42, 9999])
@virtual_time
async def test_a_commit_that_may_have_been_done(
    fake: FakeCluster, transacting: StartProducer, look: Look, code: int
) -> None:
    """Its answer was lost, and asked again the coordinator only says that something is wrong: that
    is not to be taken for "nothing was committed"."""
    async with transacting(fake, linger_ms=0) as producer:
        fake.control(ApiKey.END_TXN, CLOSE_ANSWER)
        fake.control(ApiKey.END_TXN, code)
        fake.control(ApiKey.FIND_COORDINATOR, lambda _: -1 if look.committed(fake) else None)
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
    assert look.committed(fake) == [b"1"]


@virtual_time
async def test_the_coordinator_moves_at_every_step(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(6):
            fake.move_coordinator("tx", n % 3)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % n, partition=0)
            fake.move_coordinator("tx", (n + 1) % 3)
            await (producer.abort_transaction() if n % 2 else producer.commit_transaction())
    assert look.committed(fake) == [b"0", b"2", b"4"]


@virtual_time
async def test_the_coordinator_is_stopped(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        fake.stop_broker(fake.coordinator("tx"))
        await producer.commit_transaction()
    assert look.committed(fake) == [b"1"]


@pytest.mark.parametrize("api", [ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN])
@pytest.mark.parametrize("code", [48, 59, 120])
@virtual_time
async def test_a_refusal_that_can_be_aborted(
    fake: FakeCluster, transacting: StartProducer, api: ApiKey, code: int, look: Look
) -> None:
    """Also when the coordinator refuses the abort: the next epoch ends whatever is open."""
    if api is ApiKey.ADD_PARTITIONS_TO_TXN and look.is_v2(fake):
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
    assert look.committed(fake) == [b"3"]
    assert look.all_ended(fake)


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
async def test_a_topic_that_may_not_be_written(transacting: StartProducer, look: Look) -> None:
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
    assert look.committed(fake, 1) == [b"2"]


@virtual_time
async def test_a_cluster_that_is_too_old(transacting: StartProducer) -> None:
    """Recovery needs InitProducerId v3 (Kafka 2.5); the error says what is missing."""
    fake = FakeCluster(transactions_v2=False)
    fake.set_versions(ApiKey.INIT_PRODUCER_ID, 0, 2)
    with pytest.raises(UnsupportedVersionError, match="INIT_PRODUCER_ID"):
        async with transacting(fake):
            pass


# --- fencing ----------------------------------------------------------------------------------


@virtual_time
async def test_a_second_producer_fences_the_first(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """What the first had written stays invisible; it is told at its next step, for good."""
    async with transacting(fake, linger_ms=0) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"zombie", partition=0)
        async with transacting(fake, linger_ms=0) as second:
            async with second.transaction():
                await second.send("t", b"new", partition=0)
            with pytest.raises(ProducerFencedError):
                await first.commit_transaction()
            for call in (first.send("t", b"x"), first.begin_transaction()):
                with pytest.raises(ProducerFencedError):
                    await call
            await first.flush()  # there is nothing left
            async with second.transaction():
                await second.send("t", b"newer", partition=0)
    assert look.committed(fake) == [b"new", b"newer"]
    assert look.all_ended(fake)


@virtual_time
async def test_a_fenced_producer_that_sends(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """A leader cannot tell fenced from timed out: the record fails, the abort tells which it is."""
    async with transacting(fake, linger_ms=0) as first, transacting(fake) as second:
        with pytest.raises(ProducerFencedError):
            async with first.transaction():
                await first.send("t", b"zombie", partition=0)
        with pytest.raises(ProducerFencedError):
            await first.begin_transaction()
        async with second.transaction():
            await second.send("t", b"new", partition=0)
    assert look.committed(fake) == [b"new"]


@virtual_time
async def test_a_transaction_that_took_too_long(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """KIP-588: with v2 the producer recovers by itself. With v1 the coordinator fences it, which
    cannot be told from another producer's doing."""
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"slow", partition=0)
        fake.expire_transaction("tx")
        with pytest.raises((TransactionAbortableError, ProducerFencedError)):
            await producer.commit_transaction()
        if look.is_v2(fake):
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"quick", partition=0)
        else:
            with pytest.raises(ProducerFencedError):
                await producer.abort_transaction()
    assert look.committed(fake) == ([b"quick"] if look.is_v2(fake) else [])


@virtual_time
async def test_a_transaction_that_took_too_long_before_its_offsets(
    transacting: StartProducer, look: Look
) -> None:
    """The group's coordinator cannot tell a time-out from fencing: the abort tells. With v2 the
    producer goes on."""
    fake = FakeCluster()
    fake.create_topic("t", 6, 3)
    async with transacting(fake, linger_ms=0) as producer:
        for code in (None, ErrorCode.INVALID_PRODUCER_EPOCH):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"slow", partition=0)
            fake.expire_transaction("tx")
            if code is not None:  # as real brokers say it
                fake.control(ApiKey.TXN_OFFSET_COMMIT, code)
            with pytest.raises(TransactionAbortableError) as caught:
                await producer.send_offsets_to_transaction({("in", 0): 1}, GROUP)
            assert isinstance(caught.value.__cause__, ProducerFencedError)
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"quick", partition=0)
    assert look.committed(fake) == [b"quick"]


@virtual_time
async def test_a_fenced_producer_that_sends_offsets(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    """However it finds out: the block says that it is fenced, and so does every later call."""
    async with transacting(fake) as first, transacting(fake):
        with pytest.raises(ProducerFencedError):
            async with first.transaction():
                await first.send_offsets_to_transaction({("in", 0): 1}, GROUP)
        with pytest.raises(ProducerFencedError):
            await first.begin_transaction()


# --- offsets ----------------------------------------------------------------------------------


@virtual_time
async def test_offsets_are_committed_with_the_records(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            await producer.send("t", b"1")
            await producer.send_offsets_to_transaction({("in", 0): 7, ("in", 1): 9}, GROUP)
            assert fake.committed_offset(GROUP, "in", 0) is None
        found = await producer.committed(GROUP, [("in", 0), ("in", 1), ("in", 2)])
        assert [o and o.offset for o in found.values()] == [7, 9, None]
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({("in", 0): 8}, GROUP)
        await producer.abort_transaction()
        assert fake.committed_offset(GROUP, "in", 0) == 7


@virtual_time
async def test_offsets_of_a_member_that_was_given_up(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """KIP-447: the group's generation has moved on, so the transaction can only be aborted."""
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
    assert look.committed(fake) == []
    assert fake.committed_offset(GROUP, "in", 0) == 2


@virtual_time
async def test_committed_waits_for_stable_offsets(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    """An offset that an open transaction is about to change is not handed out before its end."""
    async with transacting(fake, transactional_id="b") as other, transacting(fake) as producer:
        await other.begin_transaction()
        await other.send_offsets_to_transaction({("in", 0): 3}, GROUP)
        reading = asyncio.create_task(producer.committed(GROUP, [("in", 0)]))
        await asyncio.sleep(5)
        assert not reading.done()
        await other.commit_transaction()
        assert [o and o.offset for o in (await reading).values()] == [3]


@virtual_time
async def test_nobody_ends_the_transaction_that_changes_the_offset(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    async with (
        transacting(fake, transactional_id="b") as other,
        transacting(fake, max_block_ms=2000) as producer,
    ):
        await other.begin_transaction()
        await other.send_offsets_to_transaction({("in", 0): 3}, GROUP)
        with pytest.raises(TransactionTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            await producer.committed(GROUP, [("in", 0)])


NO_OFFSETS = [
    *[({("in", 0): offset}, GROUP) for offset in (-1, "5", 1.5, True, None, 2**63)],
    *[
        ({("in", 0): OffsetAndMetadata(*given)}, GROUP)
        for given in ((5, b"m"), (5, "\ud800"), (5, "", 2**40))
    ],
    *[({where: 5}, GROUP) for where in (("in", "0"), ("in", -1), ("in", 2**31), ("a b", 0), "in")],
    *[({("in", 0): 5}, group) for group in ("\ud800", None, 5, ConsumerGroupMetadata("g", 2**40))],
]


@pytest.mark.parametrize("case", range(len(NO_OFFSETS)))
@virtual_time
async def test_offsets_that_are_none(
    fake: FakeCluster, transacting: StartProducer, look: Look, case: int
) -> None:
    """Committed without them, what was read would be processed again. The producer goes on."""
    offsets, group = NO_OFFSETS[case]
    async with transacting(fake) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"made of it")
        with pytest.raises((ValueError, TypeError, TransactionAbortableError)):
            await asyncio.wait_for(producer.send_offsets_to_transaction(offsets, group), 5)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"next")
            await producer.send_offsets_to_transaction({("in", 0): 6}, GROUP)
    assert look.committed(fake) == [b"next"]
    assert fake.committed_offset(GROUP, "in", 0) == 6


@virtual_time
async def test_no_offsets_are_asked_for_out_of_a_transaction(transacting: StartProducer) -> None:
    async with transacting(FakeCluster()) as producer:
        with pytest.raises(ProducerStateError):
            await producer.send_offsets_to_transaction({("in", 0): "5"}, GROUP)
        async with producer.transaction():
            pass


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (None, "offsets must be a mapping, not None"),
        ([("in", 0)], "offsets must be a mapping"),
        ({"in": 1}, "a pair of topic and number, as ('orders', 0), not 'in'"),
        ({("in", "0"): 1}, "as ('orders', 0), not ('in', '0')"),
        ({("in",): 1}, "as ('orders', 0), not ('in',)"),
        ({("in", None): 1}, "as ('orders', 0), not ('in', None)"),
        ({("in", True): 1}, "as ('orders', 0), not ('in', True)"),
        ({("in", 2**31): 1}, "from 0 to 2**31 - 1, not 2147483648"),
        ({("in", 0): (5,)}, "a pair (offset, metadata), or have offset and metadata, not (5,)"),
        ({("in", 0): (5, "m", 1)}, "have offset and metadata, not (5, 'm', 1)"),
        ({("in", 0): ("5", "m")}, "an offset must be an int from 0 to 2**63 - 1, not '5'"),
        ({("in", 0): (5, b"m")}, "an offset's metadata must be a str, not b'm'"),
        ({("in", 0): OffsetAndMetadata(5, "", "1")}, "a leader epoch must be an int"),  # type: ignore[arg-type]
        ({("in", 0): OffsetAndMetadata(5, topic_id="1")}, "a topic id must be a UUID, not '1'"),  # type: ignore[arg-type]
    ],
)
@virtual_time
async def test_the_error_names_what_is_wrong_with_offsets(
    fake: FakeCluster, transacting: StartProducer, offsets: Any, message: str
) -> None:
    async with transacting(fake) as producer:
        await producer.begin_transaction()
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            await producer.send_offsets_to_transaction(offsets, GROUP)
        await producer.abort_transaction()


@virtual_time
async def test_offsets_of_a_topic_that_does_not_exist_are_no_endless_wait(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    """A late repetition could write them into a topic that is created again."""
    for _ in range(5):
        fake.control(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    async with transacting(fake) as producer:
        await producer.begin_transaction()
        with pytest.raises(TransactionAbortableError) as caught:
            await producer.send_offsets_to_transaction({("in", 0): 5}, GROUP)
        assert isinstance(caught.value.__cause__, UnknownTopicError)
        assert "in-0 does not exist" in str(caught.value.__cause__)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("in", 0): 5}, GROUP)
        assert fake.committed_offset(GROUP, "in", 0) == 5


@virtual_time
async def test_an_offset_may_be_a_subclass_of_int(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    class Position(IntEnum):
        NEXT = 4

    async with transacting(fake) as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("in", 0): Position.NEXT}, GROUP)
        assert fake.committed_offset(GROUP, "in", 0) == 4


@pytest.mark.parametrize(
    ("given", "committed"),
    [
        ((5, "mine"), OffsetAndMetadata(5, "mine")),
        ((5, None), OffsetAndMetadata(5)),
        (OffsetAndMetadata(5, "mine", None), OffsetAndMetadata(5, "mine")),  # type: ignore[arg-type]
    ],
)
@virtual_time
async def test_an_offset_may_be_a_pair_or_have_no_epoch(
    fake: FakeCluster, transacting: StartProducer, given: Any, committed: OffsetAndMetadata
) -> None:
    async with transacting(fake) as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("in", 0): given}, GROUP)
        found = await producer.committed(GROUP, [("in", 0)])
    assert found == {("in", 0): committed}


@virtual_time
async def test_a_producer_whose_id_expired_writes_no_more(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """It may have been fenced before the coordinator forgot its transactional id (KAFKA-18019)."""
    async with transacting(fake, linger_ms=0) as old:
        async with old.transaction():
            await old.send("t", b"1", partition=0)
        async with transacting(fake, linger_ms=0) as new:
            async with new.transaction():
                await new.send("t", b"2", partition=0)
            del fake._state.transactions.ids["tx"]
            with pytest.raises(KafkaError):
                async with old.transaction():
                    await old.send_and_wait("t", b"3", partition=0)
            with pytest.raises(ProducerFencedError, match="only a new producer can go on"):
                await old.begin_transaction()
            assert "tx" not in fake._state.transactions.ids, "it would have fenced the new one"
    assert look.committed(fake) == [b"1", b"2"]


@virtual_time
async def test_a_new_producer_id_is_told_again(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """The epochs are used up, and the answer with the new producer id is lost."""
    async with transacting(fake) as producer:
        for lost in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
            for epoch in range(32764, 32767):
                known = fake.transaction("tx")
                known.epoch = epoch
                inspect(producer).transactions.requests._identity.assign(known.producer_id, epoch)
                fake.control(lost, CLOSE_ANSWER)
                await producer.begin_transaction()
                await producer.send("t", b"1", partition=0)
                await producer.flush()
                await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"2", partition=0)
    assert look.committed(fake) == [b"2"]
