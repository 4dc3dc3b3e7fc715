"""Commit and abort of a batch, one case at a time, in a model of Spark and Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import (
    CheckpointMismatchError,
    KafkaError,
    ProducerFencedError,
    TransactionLostError,
)
from kafkaclient.spark import commit as commit_module
from kafkaclient.spark.commit import abort_batch, commit_batch
from kafkaclient.spark.ledger import Decision, State
from tests.spark.commit_model import TIMEOUT_S, Driver, Kafka, batch, commit

if TYPE_CHECKING:
    from kafkaclient.types import PreparedTransaction


async def test_a_decision_without_committed_transactions_is_revoked() -> None:
    """After a long outage of driver and brokers, the repeated batch replaces it completely."""
    kafka = Kafka()
    old, new = batch(kafka, 0, [1], [2]), batch(kafka, 0, [1, 2])
    kafka.written.append(old)
    kafka.state[old.transactions[0]] = State.ABORTED
    await commit(Driver(kafka), new)
    assert kafka.visible() == Counter([1, 2])
    assert kafka.written[-1] == replace(new, done=True)


async def test_an_old_run_cannot_commit_a_revoked_decision() -> None:
    kafka = Kafka()
    old = batch(kafka, 0, [1], [2])
    kafka.written.append(old)
    kafka.state[old.transactions[0]] = State.ABORTED

    class Disturbed(Driver):
        async def write(self, decision: Decision) -> None:
            assert not await Driver(kafka).end(old.transactions[1], commit=True)
            await super().write(decision)

    await commit(Disturbed(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])


@pytest.mark.parametrize("other", [State.COMMITTED, State.UNKNOWN])
async def test_a_decision_that_may_be_visible_in_part_fails_the_query(other: State) -> None:
    kafka = Kafka()
    old, new = batch(kafka, 0, [1], [2]), batch(kafka, 0, [1, 2])
    kafka.written.append(old)
    first, second = old.transactions
    kafka.state[first], kafka.state[second] = State.ABORTED, other
    driver = Driver(kafka)
    with pytest.raises(TransactionLostError, match="q-0-0"):
        await commit(driver, new)
    await abort_batch(driver, driver, 0, new.transactions)
    assert not kafka.open()
    await commit(driver, replace(new, transactions=()), accept_loss=True)
    assert kafka.written[-1].done


async def test_an_old_run_can_neither_decide_nor_abort() -> None:
    kafka = Kafka()
    old, new = Driver(kafka), Driver(kafka)
    of_old, of_new = batch(kafka, 0, [1]), batch(kafka, 0, [1])
    await old.claim()
    await commit(new, of_new)
    with pytest.raises(ProducerFencedError):
        await old.write(of_old)
    next_of_new = batch(kafka, 1, [2])
    await commit(old, of_old)  # from the start again
    await commit(new, next_of_new)
    with pytest.raises(CheckpointMismatchError, match="batch 1 of this query has been decided"):
        await commit(old, of_old)
    assert kafka.visible() == Counter([1, 2])


async def test_reading_and_aborting_do_not_fence_a_committing_run() -> None:
    kafka = Kafka()
    await commit(Driver(kafka), batch(kafka, 0, [1]))
    stale = batch(kafka, 0, [1])

    class Disturbed(Driver):
        async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
            old = Driver(kafka)
            await abort_batch(old, old, 0, stale.transactions)
            with pytest.raises(CheckpointMismatchError):
                await commit_batch(old, old, stale)
            return await super().end(prepared, commit=commit)

    await commit(Disturbed(kafka), batch(kafka, 1, [2]))
    assert kafka.written[-1].done
    assert kafka.visible() == Counter([1, 2])


async def test_a_batch_lost_before_its_decision_is_repeated() -> None:
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])
    kafka.expire(*wanted.transactions)
    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        await commit(Driver(kafka), wanted)
    assert kafka.written == []


async def test_nothing_is_decided_shortly_before_a_time_out() -> None:
    kafka = Kafka()
    first = kafka.prepare(0, [1])
    kafka.pass_time(0.95 * TIMEOUT_S)
    wanted = Decision(0, (first, kafka.prepare(0, [2])))
    with pytest.raises(
        TransactionLostError, match=f"{first.transactional_id} is about to time out"
    ):
        await commit(Driver(kafka), wanted)
    assert kafka.written == []


@pytest.mark.parametrize("late", ["expired", "slow"])
async def test_a_decision_written_too_slowly_is_revoked(late: str) -> None:
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])
    kafka.pass_time(0.85 * TIMEOUT_S)

    class Slow(Driver):
        async def write(self, decision: Decision) -> None:
            await super().write(decision)
            if late == "expired":
                kafka.expire(wanted.transactions[0])
            else:
                kafka.pass_time(0.12 * TIMEOUT_S)

    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        await commit(Slow(kafka), wanted)
    assert not kafka.open()
    assert not kafka.visible()
    await commit(Driver(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])


@pytest.mark.parametrize("call", ["open_up_to", "end", "never"])
async def test_cleaning_up_fails_no_batch(call: str, monkeypatch) -> None:
    monkeypatch.setattr(commit_module, "_CLEAN_UP_TIMEOUT_S", 0.05)
    kafka = Kafka()
    wanted, lost = batch(kafka, 0, [1]), kafka.prepare(0, [1])

    class Broken(Driver):
        async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
            if call == "open_up_to":
                raise KafkaError("one broker does not answer")
            if call == "never":
                await asyncio.Event().wait()
            return await super().open_up_to(batch)

        async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
            if prepared == lost:
                raise KafkaError("its coordinator does not answer")
            return await super().end(prepared, commit=commit)

    await commit(Broken(kafka), wanted)
    assert kafka.visible() == Counter([1])
    assert kafka.written[-1].done


async def test_a_failing_coordinator_blocks_no_other_commit() -> None:
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])

    class Broken(Driver):
        async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
            if prepared == wanted.transactions[0]:
                raise KafkaError("its coordinator does not answer")
            await asyncio.sleep(0)
            return await super().end(prepared, commit=commit)

    with pytest.raises(KafkaError, match="does not answer"):
        await commit(Broken(kafka), wanted)
    assert kafka.visible() == Counter([2])
    await commit(Driver(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])


async def test_nothing_is_aborted_while_a_decision_is_being_written() -> None:
    """The commit's process was killed. Its decision may arrive after Spark's abort."""
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])
    kafka.on_its_way = wanted
    driver = Driver(kafka)
    await abort_batch(driver, driver, 0, wanted.transactions)
    assert len(kafka.open()) == 2
    kafka.arrive()
    await commit(driver, batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])
