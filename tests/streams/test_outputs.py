"""Where an instance writes, on the fake cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient import Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.streams.membership.connection import GroupConnection
from kafkaclient.streams.membership.group_offsets import GroupOffsets
from kafkaclient.streams.runtime.outputs import TransactionalOutput, Work
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.fake.interceptors import delay_answer
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.streams.fakes import opened_gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SOURCE, CHANGELOG = TopicPartition("in", 0), TopicPartition("changes", 0)


class NoDeadTransactions:
    def search(self) -> None:
        """There is nothing to find."""


@asynccontextmanager
async def output(fake: FakeCluster) -> AsyncIterator[TransactionalOutput]:
    """An output that is running."""
    config = ProducerConfig.build({"bootstrap_servers": fake.bootstrap})
    connection = GroupConnection("app", config, rebalance_timeout_s=1, dialer=fake)
    await connection.start()
    gate = opened_gate()
    gate.begin_generation(-1, "")  # no member: the fake group has none
    made = TransactionalOutput(
        config,
        partial(Producer, fake.bootstrap, dialer=fake, transactional_id="app-1"),
        GroupOffsets(connection, gate, lambda code, group: None, 60),
        gate,
        NoDeadTransactions(),  # type: ignore[arg-type]
    )
    await made.start()
    yield made
    await made.stop()
    await connection.close()


def cluster() -> FakeCluster:
    fake = FakeCluster(1)
    fake.create_topic("in", 1)
    fake.create_topic("changes", 1)
    return fake


@virtual_time
async def test_offsets_are_read_while_the_producer_is_replaced() -> None:
    """Another task's failed commit must not end the instance."""
    fake = cluster()
    async with output(fake) as made:
        fake.control(ApiKey.OFFSET_FETCH, delay_answer(20.0))
        fetching = asyncio.create_task(made.fetch_committed([SOURCE]))
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
        assert await made.commit([work], 0) == {CHANGELOG: 2}
        assert await made.fetch_committed([SOURCE]) == {SOURCE: 1}
