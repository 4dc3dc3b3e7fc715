"""Transactions: calls out of place, cancelled, too slow; the end of the producer (S5, L1).

Ids such as ``L1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, ErrorCode, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now

if TYPE_CHECKING:
    from tests.producer.support import Look, Outcomes, StartProducer

GROUP = "readers"


# --- calls out of place -----------------------------------------------------------------------


@virtual_time
async def test_sends_outside_of_a_transaction(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
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
    assert look.committed(fake) == [b"in it"] * 2


@virtual_time
async def test_a_producer_without_a_transactional_id(producing: StartProducer) -> None:
    async with producing(FakeCluster()) as producer:
        with pytest.raises(ProducerStateError, match=r"transactional\.id"):
            producer.transaction()
        with pytest.raises(ProducerStateError, match=r"transactional\.id"):
            await producer.begin_transaction()


@virtual_time
async def test_a_send_that_waits_does_not_slip_into_the_next_transaction(
    fake: FakeCluster, transacting: StartProducer
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
    began = now()
    with pytest.raises(TransactionTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
        await producer.start()
    assert now() - began == pytest.approx(5, abs=0.5)


@pytest.mark.parametrize("how", ["commit_transaction", "abort_transaction"])
@virtual_time
async def test_an_end_that_takes_too_long_has_one_outcome(
    fake: FakeCluster, transacting: StartProducer, how: str, look: Look
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
    assert look.committed(fake) == seen


@pytest.mark.parametrize("how", ["commit_transaction", "abort_transaction"])
@pytest.mark.parametrize("after", [0.0, 0.0005, 0.002, 0.004, 0.01])
@virtual_time
async def test_a_cancelled_end_may_be_awaited_again(
    fake: FakeCluster, transacting: StartProducer, how: str, after: float, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        for n in range(3):
            await producer.begin_transaction()
            await producer.send("t", b"%d" % n, partition=0)
            ending = asyncio.create_task(getattr(producer, how)())
            await asyncio.sleep(after)
            cancelled = ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            if (cancelled and after) or inspect(producer).transactions.abortable:
                await getattr(producer, how)()
            async with producer.transaction():
                pass
    assert look.committed(fake) == ([b"0", b"1", b"2"] if how == "commit_transaction" else [])
    assert look.all_ended(fake)


@virtual_time
async def test_an_outcome_that_came_while_nobody_waited(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    """Told once to who asks later, and then forgotten."""
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        await asyncio.sleep(5)
        assert look.committed(fake) == [b"1"]
        await producer.commit_transaction()
        with pytest.raises(ProducerStateError, match="nothing to commit"):
            await producer.commit_transaction()


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.01, 1.0])
@virtual_time
async def test_a_cancelled_block_aborts_or_commits(
    fake: FakeCluster, transacting: StartProducer, after: float, look: Look
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
    seen = look.committed(fake)
    assert seen in ([b"z"], [b"%d" % n for n in range(6)] + [b"z"])
    if after == 1.0:
        assert len(seen) == 7
    assert look.all_ended(fake)


@virtual_time
async def test_an_abort_instead_of_a_commit_that_cannot_flush(
    fake: FakeCluster, transacting: StartProducer, look: Look
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
    assert look.committed(fake) == [b"3"]
    assert look.all_ended(fake)


@virtual_time
async def test_a_block_whose_commit_cannot_flush_is_aborted(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0, max_block_ms=5000) as producer:
        fake.move_leader("t", 0, -1)
        with pytest.raises(TransactionTimeoutError):
            async with producer.transaction():
                await producer.send("t", b"2", partition=0)
        async with producer.transaction():
            await producer.send("t", b"3", partition=1)
    assert look.committed(fake) == [b"3"]


@virtual_time
async def test_a_record_that_expires_dooms_the_transaction(
    fake: FakeCluster, transacting: StartProducer
) -> None:
    options = {"delivery_timeout_ms": 3000, "request_timeout_ms": 1000, "linger_ms": 0}
    async with transacting(fake, **options) as producer:
        await producer.begin_transaction()
        fake.move_leader("t", 0, -1)
        await producer.send("t", b"2", partition=0)
        with pytest.raises(TransactionAbortableError, match=r"delivery\.timeout\.ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()


@pytest.mark.parametrize("code", [6, 10])
@virtual_time
async def test_a_batch_refused_behind_the_one_that_dooms_the_transaction(
    fake: FakeCluster, transacting: StartProducer, outcomes: Outcomes, code: int
) -> None:
    """The batch fails. Otherwise the producer would send it again, whole (6) or in halves (10)."""
    async with transacting(fake, linger_ms=5, max_block_ms=30_000) as producer:
        await producer.begin_transaction()
        for partition in range(6):
            await producer.send_and_wait("t", b"first", partition=partition)
        leaders = {p.partition: p.leader for p in await producer.partitions_for("t") or ()}
        late = next(p for p in range(6) if leaders[p] != leaders[0])
        fake.fail_produce("t", 0, 10)
        fake.delay_produce(leaders[late], 0.5)
        waiting = [await producer.send("t", b"%d" % n, partition=late) for n in range(2)]
        fake.fail_produce("t", late, code)
        doomed = await producer.send("t", b"too large", partition=0)
        began = now()
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        assert now() - began < 3
        assert all(isinstance(each, Exception) for each in await outcomes([doomed, *waiting]))
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"next")
        assert now() - began < 5


@virtual_time
async def test_stop_aborts_what_is_open(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        waiting = await producer.send("t", b"2", partition=1)
        assert await producer.stop() == 0
        await asyncio.gather(waiting, return_exceptions=True)
    assert look.committed(fake) == []
    assert look.all_ended(fake)


@virtual_time
async def test_stop_waits_for_a_commit(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake, linger_ms=0) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        await producer.stop()
        await committing
    assert look.committed(fake) == [b"1"]


@pytest.mark.parametrize("timeout", [2, None])
@virtual_time
async def test_stop_without_coordinator_ends(
    fake: FakeCluster, transacting: StartProducer, timeout: float | None
) -> None:
    """L1: by its own timeout, or by max.block.ms."""
    async with transacting(fake, linger_ms=0, max_block_ms=5000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        fake.control(ApiKey.END_TXN, DROP, keep=True)
        fake.control(ApiKey.INIT_PRODUCER_ID, DROP, keep=True)
        began = now()
        await producer.stop(timeout=timeout)
        took = now() - began
        assert took == pytest.approx(timeout or 5, abs=1.1)


@virtual_time
async def test_a_group_that_may_not_be_read(fake: FakeCluster, transacting: StartProducer) -> None:
    code = 30
    async with transacting(fake) as producer:
        fake.control(ApiKey.FIND_COORDINATOR, code)
        with pytest.raises(AuthorizationError, match=GROUP):
            await producer.committed(GROUP, [("in", 0)])
