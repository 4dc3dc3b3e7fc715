"""Transactions with aiokafka's methods and errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import OffsetAndMetadata
from aiokafka import errors as theirs
from aiokafka.structs import TopicPartition

from kafkaclient import errors as ours
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from tests.aiokafka_dropin.support import dropin

if TYPE_CHECKING:
    from kafkaclient.aiokafka import AIOKafkaProducer

TP = TopicPartition("t", 0)


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def fake(request: pytest.FixtureRequest) -> FakeCluster:
    cluster = FakeCluster(transactions_v2=request.param)
    cluster.create_topic("t", 1)
    return cluster


def committed(fake: FakeCluster) -> list[bytes | None]:
    return [record.value for record in fake.committed_log("t", 0)]


@virtual_time
async def test_commit_and_abort(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"2")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"3")
        async with producer.transaction() as context:  # without records
            assert context is not None
    assert committed(fake) == [b"1", b"3"]


@virtual_time
async def test_the_bodys_error_aborts_and_gets_out(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        with pytest.raises(LookupError):  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait("t", b"1")
                raise LookupError
        async with producer.transaction():
            await producer.send("t", b"2")
    assert committed(fake) == [b"2"]


@virtual_time
async def test_a_newer_producer_fences_the_older_one(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx") as older:
        async with older.transaction():
            await older.send("t", b"1")
        async with dropin(fake, transactional_id="tx") as newer:
            with pytest.raises(theirs.ProducerFenced) as caught:
                async with older.transaction():
                    await older.send_and_wait("t", b"2")
            assert isinstance(caught.value, ours.KafkaError)
            with pytest.raises(theirs.ProducerFenced):
                await older.begin_transaction()
            async with newer.transaction():
                await newer.send("t", b"3")
    assert committed(fake) == [b"1", b"3"]


@virtual_time
async def test_the_bodys_error_gets_out_of_a_fenced_producer(fake: FakeCluster) -> None:
    """The next call tells of the fence."""
    async with dropin(fake, transactional_id="tx") as older:
        with pytest.raises(LookupError):  # noqa: PT012
            async with older.transaction():
                await older.send_and_wait("t", b"1")
                await fence(fake)
                raise LookupError
        with pytest.raises(theirs.ProducerFenced):
            await older.begin_transaction()
    assert not committed(fake)


async def fence(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx"):
        pass


@virtual_time
async def test_the_bodys_error_fails_records_without_an_outcome(fake: FakeCluster) -> None:
    """aiokafka sends them before the abort."""
    async with dropin(fake, transactional_id="tx", linger_ms=60_000) as producer:
        with pytest.raises(LookupError):  # noqa: PT012
            async with producer.transaction():
                future = await producer.send("t", b"1")
                raise LookupError
        with pytest.raises(ours.TransactionAbortedError, match="was aborted"):
            await future
    assert not fake.log("t", 0)


@virtual_time
async def test_a_block_whose_commit_fails_has_aborted(fake: FakeCluster) -> None:
    """aiokafka leaves the abort to the caller: it succeeds once here, too."""
    async with dropin(fake, transactional_id="tx") as producer:
        for call_abort in (True, False):
            fake.fail_produce("t", 0, 29)
            with pytest.raises(theirs.TopicAuthorizationFailedError):
                async with producer.transaction():
                    await producer.send("t", b"no")
            if call_abort:
                await producer.abort_transaction()
                with pytest.raises(theirs.IllegalOperation):
                    await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"v")
            with pytest.raises(theirs.IllegalOperation):
                await producer.abort_transaction()
    assert committed(fake) == [b"v", b"v"]


@virtual_time
async def test_an_abort_after_a_failed_block_aborts_the_next_transaction(
    fake: FakeCluster,
) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        fake.fail_produce("t", 0, 29)
        with pytest.raises(theirs.TopicAuthorizationFailedError):
            async with producer.transaction():
                await producer.send("t", b"no")
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        await producer.abort_transaction()
        with pytest.raises(theirs.IllegalOperation):
            await producer.abort_transaction()
    assert not committed(fake)


@virtual_time
async def test_a_transaction_that_has_failed_takes_nothing_more(fake: FakeCluster) -> None:
    """aiokafka's ``is_in_transaction()`` is False in this state."""
    async with dropin(fake, transactional_id="tx") as producer:
        await producer.begin_transaction()
        fake.fail_produce("t", 0, 29)
        with pytest.raises(theirs.TopicAuthorizationFailedError):
            await producer.send_and_wait("t", b"v")
        await nothing_can_be_sent(producer)
        await producer.abort_transaction()


async def nothing_can_be_sent(producer: AIOKafkaProducer) -> None:
    for call in (
        producer.send_batch(producer.create_batch(), "t", partition=0),
        producer.send_offsets_to_transaction({TP: 1}, "g"),
        producer.send_offsets_to_transaction({TP: 1}, None),  # type: ignore[arg-type]
    ):
        with pytest.raises(theirs.IllegalOperation, match="no transaction is open") as caught:
            await call
        assert isinstance(caught.value, ours.ProducerStateError)


@virtual_time
async def test_calls_that_need_a_transaction(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None)
        for call in (
            producer.send("t", b"v"),
            producer.send_batch(batch, "t", partition=0),
            producer.commit_transaction(),
            producer.abort_transaction(),
            producer.send_offsets_to_transaction({}, "g"),
        ):
            with pytest.raises(theirs.IllegalOperation):
                await call
        await producer.begin_transaction()
        with pytest.raises(theirs.IllegalOperation):
            await producer.begin_transaction()
        await producer.send_batch(batch, "t", partition=0)
        await producer.commit_transaction()
    assert committed(fake) == [b"v"]


@virtual_time
async def test_without_a_transactional_id(fake: FakeCluster) -> None:
    async with dropin(fake) as producer:
        for call in (
            producer.begin_transaction(),
            producer.commit_transaction(),
            producer.abort_transaction(),
            producer.send_offsets_to_transaction({TP: 1}, "g"),
            producer.transaction().__aenter__(),
        ):
            with pytest.raises(theirs.IllegalOperation, match="configure transaction_id"):
                await call


@pytest.mark.parametrize(
    "offset", [5, (5, "note"), OffsetAndMetadata(5, "note")], ids=["int", "pair", "aiokafka"]
)
@virtual_time
async def test_offsets(fake: FakeCluster, offset: Any) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: offset}, "g")
        found = await producer._producer.committed("g", [TP])
    kept = found[TP]
    assert kept is not None
    assert (kept.offset, kept.metadata) == (5, "" if offset == 5 else "note")


@pytest.mark.parametrize(
    ("offsets", "group", "kind"),
    [
        ({TP: 1}, None, ValueError),
        ({TP: 1}, "", ValueError),
        ({TP: 1}, 5, ValueError),
        ({}, "g", ValueError),
        ([(TP, 1)], "g", ValueError),
        ({TP: (1, 2, 3)}, "g", ValueError),
        ({TP: (1, b"note")}, "g", TypeError),
        ({("t", 0): 1}, "g", TypeError),
    ],
    ids=str,
)
@virtual_time
async def test_offsets_that_are_refused(
    fake: FakeCluster, offsets: Any, group: Any, kind: type[Exception]
) -> None:
    """The transaction goes on, as in aiokafka."""
    async with dropin(fake, transactional_id="tx") as producer, producer.transaction():
        with pytest.raises(kind):
            await producer.send_offsets_to_transaction(offsets, group)
        await producer.send("t", b"v")
    assert committed(fake) == [b"v"]


@virtual_time
async def test_a_failed_record_ends_in_an_abort(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        await producer.begin_transaction()
        fake.fail_produce("t", 0, 29)
        future = await producer.send("t", b"v")
        with pytest.raises(theirs.TopicAuthorizationFailedError):
            await future
        with pytest.raises(theirs.TopicAuthorizationFailedError) as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value, ours.TransactionAbortableError)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"w")
    assert committed(fake) == [b"w"]


@virtual_time
async def test_stop_aborts_an_open_transaction(fake: FakeCluster) -> None:
    async with dropin(fake, transactional_id="tx") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
    log = inspect(fake).partition("t", 0).log
    assert log.end_offset == fake.last_stable_offset("t", 0)
    assert not committed(fake)


@virtual_time
async def test_a_cancelled_commit_goes_on(fake: FakeCluster) -> None:
    """As in aiokafka, which shields it."""
    fake.round_trip_s = 0.05
    async with dropin(fake, transactional_id="tx") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.01)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        await asyncio.sleep(1)
        await nothing_can_be_sent(producer)
    assert committed(fake) == [b"v"]
