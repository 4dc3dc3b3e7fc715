"""Where an instance writes, on the fake cluster."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    BrokerError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TransactionAbortableError,
    UnknownTopicError,
)
from kafkaclient.group.commit_gate import CommitGate
from kafkaclient.group.connection import GroupOffsets, group_connection
from kafkaclient.streams.runtime.outputs import (
    OutgoingRecord,
    RefusedChangeError,
    TransactionalOutput,
    Work,
    forget,
)
from kafkaclient.streams.runtime.plain_output import PlainOutput
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.fake.interceptors import delay_answer
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.streams.fakes import opened_gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SOURCE, CHANGELOG = TopicPartition("in", 0), TopicPartition("changes", 0)
BIG = OutgoingRecord("out", bytes(5000), None, 0, None, ())


class NoDeadTransactions:
    def search(self) -> None:
        """There is nothing to find."""


@asynccontextmanager
async def output(
    fake: FakeCluster, *, is_transactional: bool = True, gate: CommitGate | None = None
) -> AsyncIterator[TransactionalOutput | PlainOutput]:
    """An output that is running."""
    config = ProducerConfig.build({"bootstrap_servers": fake.bootstrap})
    async with group_connection("app", config, rebalance_timeout_s=1, dialer=fake) as connection:
        gate = gate or opened_gate()
        gate.begin_generation(-1, "")  # no member: the fake group has none
        offsets = GroupOffsets(connection, gate, lambda code, group: None, 60)
        made: TransactionalOutput | PlainOutput
        if is_transactional:
            new = partial(Producer, fake.bootstrap, dialer=fake, transactional_id="app-1")
            dead: Any = NoDeadTransactions()
            made = TransactionalOutput(config, new, offsets, gate, dead)
        else:
            made = PlainOutput(
                config, partial(Producer, fake.bootstrap, dialer=fake), offsets, gate
            )
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


def cluster() -> FakeCluster:
    fake = FakeCluster(1)
    fake.create_topic("in", 1)
    fake.create_topic("changes", 1)
    fake.create_topic("out", 1)
    return fake


@virtual_time
async def test_offsets_are_read_while_the_producer_is_replaced() -> None:
    """Another task's failed commit must not end the instance."""
    fake = cluster()
    async with output(fake) as made:
        fake.control(ApiKey.OFFSET_FETCH, delay_answer(20.0))
        fetching = asyncio.create_task(made.fetch_committed([SOURCE], {}))
        await asyncio.sleep(1)
        await made.abandon()
        await asyncio.sleep(1)
        await made.start()
        assert await fetching == {SOURCE: None}


@virtual_time
async def test_a_stores_position_does_not_count_on_the_transactions_marker() -> None:
    """Brokers write it later. A position behind the log's end means that the store is of another
    log, and restores it from the beginning."""
    fake = cluster()
    async with output(fake) as made:
        work = Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1", b"b": b"2"}})
        assert await made.commit([work], (), 0) == {CHANGELOG: 2}
        assert await made.fetch_committed([SOURCE], {}) == {SOURCE: 1}


async def ends(fake: FakeCluster) -> list[int]:
    """The end offsets of out and changes."""
    partitions = [TopicPartition("out", 0), CHANGELOG]
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        found = await admin.end_offsets(partitions)
    return [found[each] for each in partitions]


@virtual_time
async def test_changes_are_written_after_all_that_was_emitted() -> None:
    """At least once: changes that are written are applied again, if the commit fails."""
    fake = cluster()
    fake.fail_produce("out", 0, 10)
    work = Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1"}})
    async with output(fake, is_transactional=False) as made:
        for expected in ([0, 0], [1, 1]):
            await made.prepare([BIG])
            sent = [await made.send(BIG)]
            with pytest.raises(RecordTooLargeError) if expected[0] == 0 else nullcontext():
                await made.commit([work], sent, 0)
            assert await ends(fake) == expected
            await made.abandon()


@virtual_time
async def test_small_changes_are_written_after_the_large_ones() -> None:
    """A broker refuses none of them because of its size."""
    fake = cluster()
    fake.fail_produce("changes", 0, 10)
    changes = {b"a": b"1", b"big": bytes(5000), b"c": b"3"}
    async with output(fake, is_transactional=False) as made:
        with pytest.raises(RefusedChangeError, match="with the key b'big', is too large for chan"):
            await made.commit([Work({SOURCE: 1}, {CHANGELOG: changes})], (), 0)
        assert await ends(fake) == [0, 0]
        await made.abandon()
        assert await made.commit([Work({SOURCE: 1}, {CHANGELOG: changes})], (), 0) == {CHANGELOG: 3}
        assert await made.fetch_committed([SOURCE], {}) == {SOURCE: 1}


@virtual_time
async def test_an_offset_of_a_deleted_topic_does_not_reach_the_new_one() -> None:
    fake = cluster()
    async with output(fake, is_transactional=False) as made:
        old = {SOURCE: fake.topic_id("in")}
        await made.commit([Work({SOURCE: 1}, {}, old)], (), 0)
        fake.delete_topic("in")
        fake.create_topic("in", 1)
        new = {"in": fake.topic_id("in")}
        with pytest.raises(UnknownTopicError, match="in-0 does not exist"):
            await made.commit([Work({SOURCE: 2}, {}, old)], (), 0)
        with pytest.raises(UnknownTopicError, match="reading the application's offsets: in-0"):
            await made.fetch_committed([SOURCE], {"in": old[SOURCE]})
        assert await made.fetch_committed([SOURCE], new) == {SOURCE: None}
        fake.set_versions(ApiKey.OFFSET_FETCH, 7, 9)
        await made.commit([Work({SOURCE: 2}, {}, {SOURCE: new["in"]})], (), 0)
    async with output(fake, is_transactional=False) as made:
        assert await made.fetch_committed([SOURCE], {"in": old[SOURCE]}) == {SOURCE: 2}


@pytest.mark.parametrize("code", [10, 29])
@virtual_time
async def test_the_transactions_error_alone_tells_of_its_records(
    caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """The producer would log that nobody has checked the deliveries."""
    fake = cluster()
    fake.fail_produce("out", 0, code, times=20)
    async with output(fake) as made:
        await made.prepare([BIG])
        await made.begin()
        sent = [await made.send(BIG) for _ in range(5)]
        with pytest.raises(TransactionAbortableError):
            await made.commit([Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1"}})], sent, 0)
        forget(sent)
    await asyncio.sleep(60)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def session_gate() -> CommitGate:
    """Of a member whose coordinator has just answered."""
    loop = asyncio.get_running_loop()
    gate = CommitGate("app", None, timeout_s=10, clock=loop.time)
    gate.begin_generation(-1, "")
    gate._opened.set()
    gate.answered(loop.time())
    return gate


@virtual_time
async def test_at_least_once_nothing_is_written_after_a_session_without_answer() -> None:
    """Another member may have the tasks, and its changes would be replaced by older ones."""
    fake = cluster()
    gate = session_gate()
    work = Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1"}})
    async with output(fake, is_transactional=False, gate=gate) as made:
        await made.prepare([BIG])
        await asyncio.sleep(10)
        with pytest.raises(KafkaTimeoutError, match="has not answered for a session"):
            made.send_nowait(BIG)
        waiting = [
            asyncio.create_task(made.send(BIG)),
            asyncio.create_task(made.commit([work], (), 0)),
        ]
        await asyncio.sleep(60)
        assert await ends(fake) == [0, 0]
        gate.refuse_waiting()
        for each in waiting:
            with pytest.raises(BrokerError, match="has lost its partitions"):
                await each
        await made.abandon()
        assert await ends(fake) == [0, 0]


@virtual_time
async def test_at_least_once_a_commit_goes_on_when_the_coordinator_answers_again() -> None:
    fake = cluster()
    gate = session_gate()
    async with output(fake, is_transactional=False, gate=gate) as made:
        await made.prepare([BIG])
        await asyncio.sleep(10)
        waiting = asyncio.create_task(made.send(BIG))
        await asyncio.sleep(1)
        gate.answered(asyncio.get_running_loop().time())
        await waiting
        await made.commit([Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1"}})], (), 0)
        assert await ends(fake) == [1, 1]


@pytest.mark.parametrize("is_lost", [False, True])
@virtual_time
async def test_at_least_once_changes_that_are_not_sent_in_time_are_dropped(is_lost: bool) -> None:
    """Without the limit, they would be sent for delivery.timeout.ms."""
    fake = cluster()
    gate = session_gate()
    loop = asyncio.get_running_loop()
    refusing = fake.control(ApiKey.PRODUCE, 6, keep=True)
    async with output(fake, is_transactional=False, gate=gate) as made:
        if is_lost:
            loop.call_later(3, gate.refuse_waiting)
        began = loop.time()
        with pytest.raises(BrokerError if is_lost else KafkaTimeoutError):
            await made.commit([Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1"}})], (), 0)
        assert loop.time() - began == pytest.approx(3 if is_lost else 10, abs=0.1)
        await made.abandon()
        fake._state.interceptors.remove(refusing)
        await asyncio.sleep(200)
        assert await ends(fake) == [0, 0]
        gate.answered(loop.time())
        await made.start()
        await made.commit([Work({SOURCE: 1}, {CHANGELOG: {b"a": b"1"}})], (), gate.times_lost)
        assert await ends(fake) == [0, 1]
