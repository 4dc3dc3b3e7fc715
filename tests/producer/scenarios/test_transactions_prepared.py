"""Transactions that are prepared in one producer, and ended there or by another client."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin import Admin, TxnState
from kafkaclient.errors import (
    AuthorizationError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionLostError,
    TransactionTimeoutError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, ErrorCode, FakeCluster
from kafkaclient.types import PreparedTransaction, TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from tests.producer.support import Look, StartProducer

TOPIC_DENIED, ID_DENIED, LOADING = 29, 53, 14


def new_admin(fake: FakeCluster) -> Admin:
    return Admin(fake.bootstrap, dialer=fake, rng=Random(1))


async def prepared(
    fake: FakeCluster, transacting: StartProducer, value: bytes = b"x", **options: Any
) -> PreparedTransaction:
    """By a producer that lingers, and has been stopped."""
    async with transacting(fake, linger_ms=10_000, **options) as producer:
        await producer.begin_transaction()
        await producer.send("t", value, partition=2)
        told = await producer.prepare_transaction()
    assert told is not None
    return told


@virtual_time
async def test_prepared_in_one_client_and_committed_by_another(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    told = await prepared(fake, transacting)
    assert told.transactional_id == "tx"
    assert (look.written(fake), look.committed(fake)) == ([b"x"], [])
    assert fake.last_stable_offset("t", 2) == 0
    async with new_admin(fake) as admin:
        described = (await admin.describe_transactions(["tx"]))["tx"]
        assert described is not None
        assert described.state is TxnState.ONGOING
        assert described.partitions == {TopicPartition("t", 2)}
        assert (described.producer_id, described.producer_epoch) == told[1:]
        for _ in range(2):  # whoever was not answered asks again
            await admin.end_transaction(told)
        with pytest.raises(TransactionLostError, match="the other way") as error:
            await admin.end_transaction(told, commit=False)
        assert error.value.name == "INVALID_TXN_STATE"
    assert look.committed(fake) == [b"x"]
    assert look.all_ended(fake)


@virtual_time
async def test_aborted_by_another(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    told = await prepared(fake, transacting)
    async with new_admin(fake) as admin:
        for _ in range(2):
            await admin.end_transaction(told, commit=False)
        with pytest.raises(TransactionLostError, match="the other way"):
            await admin.end_transaction(told)
    assert look.committed(fake) == []
    assert look.all_ended(fake)


@pytest.mark.parametrize("commit", [True, False])
@virtual_time
async def test_ended_by_who_has_prepared_it(
    fake: FakeCluster, transacting: StartProducer, look: Look, commit: bool
) -> None:
    async with transacting(fake) as producer:
        for n in range(2):
            await producer.begin_transaction()
            await producer.send("t", b"%d" % n)
            told = await producer.prepare_transaction()
            assert await producer.prepare_transaction() == told
            with pytest.raises(ProducerStateError, match="has prepared its transaction"):
                await producer.send("t", b"too late")
            with pytest.raises(ProducerStateError, match="has prepared its transaction"):
                producer.send_nowait("t", b"too late")
            with pytest.raises(ProducerStateError, match="it has to end first"):
                await producer.begin_transaction()
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    assert look.committed(fake) == ([b"0", b"1"] if commit else [])
    assert look.all_ended(fake)


@virtual_time
async def test_nothing_was_sent(fake: FakeCluster, transacting: StartProducer) -> None:
    async with transacting(fake) as producer:
        with pytest.raises(ProducerStateError, match="nothing to prepare"):
            await producer.prepare_transaction()
        await producer.begin_transaction()
        assert await producer.prepare_transaction() is None
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("in", 0): 1}, "readers")
            assert await producer.prepare_transaction() is not None
    assert fake.committed_offset("readers", "in", 0) == 1


@virtual_time
async def test_a_record_fails_meanwhile(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    fake.control(ApiKey.PRODUCE, TOPIC_DENIED, keep=True)
    async with transacting(fake, linger_ms=1000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"x")
        with pytest.raises(TransactionAbortableError, match="nothing was prepared"):
            await producer.prepare_transaction()
        with pytest.raises(AuthorizationError):
            await delivery
        with pytest.raises(TransactionAbortableError):
            await producer.prepare_transaction()
        await producer.abort_transaction()
    assert look.all_ended(fake)


@virtual_time
async def test_a_stop_in_the_middle_of_preparing_aborts(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """Nobody was told of it, so nobody could end it."""
    async with transacting(fake, max_block_ms=2000, request_timeout_ms=1000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"there")
        silent = fake.control(ApiKey.PRODUCE, DROP, keep=True)
        await producer.send("t", b"x")
        with pytest.raises(TransactionTimeoutError, match="prepare_transaction goes on"):
            await producer.prepare_transaction()
        silent.remove()
    assert look.committed(fake) == []
    assert look.all_ended(fake)


@pytest.mark.parametrize("how", ["timed out", "fenced", "forgotten"])
@virtual_time
async def test_lost_meanwhile(
    fake: FakeCluster, transacting: StartProducer, look: Look, how: str
) -> None:
    told = await prepared(fake, transacting)
    async with new_admin(fake) as admin:
        if how == "timed out":
            fake.expire_transaction("tx")
        elif how == "fenced":
            assert await admin.fence_producers(["tx", "new"]) == {"tx": None, "new": None}
            asked = fake.requests_of(ApiKey.INIT_PRODUCER_ID)[-1].message
            # Brokers give their own log as long, too (KAFKA-16047).
            assert asked.transaction_timeout_ms >= 1000
        else:
            told = told._replace(transactional_id="another")
        with pytest.raises(TransactionLostError, match="committing the transaction of"):
            await admin.end_transaction(told)
    assert look.committed(fake) == []


@virtual_time
async def test_listing_what_is_left(fake: FakeCluster, transacting: StartProducer) -> None:
    told = [await prepared(fake, transacting, transactional_id=f"job-{n}") for n in range(6)]
    async with new_admin(fake) as admin:
        for one in told[:2]:
            await admin.end_transaction(one)
        fake.control(ApiKey.LIST_TRANSACTIONS, LOADING)
        left = await admin.list_transactions("job-", states=[TxnState.ONGOING])
        assert [one[:2] for one in left] == [one[:2] for one in told[2:]]
        assert len(await admin.list_transactions()) == 6
        assert await admin.list_transactions("other") == []
        assert await admin.describe_transactions(["other"]) == {"other": None}


@virtual_time
async def test_coordinators_that_move_and_are_silent(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    told = await prepared(fake, transacting)
    async with new_admin(fake) as admin:
        await admin.describe_transactions(["tx"])
        fake.move_coordinator("tx", 2)
        fake.control(ApiKey.END_TXN, DROP)
        fake.control(ApiKey.END_TXN, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fake.control(ApiKey.END_TXN, ErrorCode.CONCURRENT_TRANSACTIONS)
        await admin.end_transaction(told)
    assert look.committed(fake) == [b"x"]


@virtual_time
async def test_refusals(fake: FakeCluster, transacting: StartProducer) -> None:
    told = await prepared(fake, transacting)
    denied = ID_DENIED
    async with new_admin(fake) as admin:
        for key in (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS):
            fake.control(key, denied)
        with pytest.raises(AuthorizationError, match="--operation Write --transactional-id tx"):
            await admin.end_transaction(told)
        with pytest.raises(AuthorizationError, match="--operation Describe"):
            await admin.describe_transactions(["tx"])
        assert isinstance((await admin.fence_producers(["tx"]))["tx"], AuthorizationError)
        fake.control(ApiKey.END_TXN, DROP, keep=True)
        with pytest.raises(TimeoutError, match=r"last cause: .*EndTxn|END_TXN"):
            await admin.end_transaction(told, timeout_s=10)


@virtual_time
async def test_a_call_under_way_when_the_admin_client_is_closed(fake: FakeCluster) -> None:
    fake.control(ApiKey.FIND_COORDINATOR, DROP, keep=True)
    before = asyncio.all_tasks()
    admin = new_admin(fake)
    await admin.start()
    call = asyncio.create_task(admin.describe_transactions(["tx"]))
    await asyncio.sleep(4)
    await admin.close()
    assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], Exception)
    assert asyncio.all_tasks() == before
