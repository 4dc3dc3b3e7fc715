"""Reads of many partitions, of which few have records: fetch sessions on the fake cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.reader import Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANY = 60


class World:
    """A topic with many partitions, and a read of all of them. Each value is its offset."""

    def __init__(self) -> None:
        self.fake = FakeCluster(2)
        self.fake.round_trip_s = 0.001
        self.fake.create_topic("t", MANY)
        self.seen: dict[int, list[int]] = {number: [] for number in range(MANY)}

    def fill(self, *partitions: int) -> None:
        for number in partitions:
            at, builder = self.fake.end_offset("t", number), BatchBuilder(2**20)
            for offset in range(at, at + 3):
                builder.append(1000, None, b"%d" % offset, [])
            builder.seal(0)
            self.fake.append("t", number, bytes(builder.buffer()))

    def listed(self) -> list[int]:
        """How many partitions each Fetch has listed, since the last call."""
        found = self.fake.requests_of(ApiKey.FETCH)
        self.fake.requests.clear()
        return [sum(len(t.partitions) for t in each.message.topics) for each in found]

    async def take(self, seconds: float = 2.0) -> None:
        """Read until nothing has come for some time."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    batch = await anext(self.reading)
            except TimeoutError:
                return
            self.seen[batch.partition] += [record.offset for record in batch]

    def check(self) -> None:
        for number, offsets in self.seen.items():
            assert offsets == [*range(self.fake.end_offset("t", number))], number


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    async with Reader(made.fake.bootstrap, dialer=made.fake, rng=Random(1)) as reader:
        made.reading = reader.read({TopicPartition("t", number): 0 for number in range(MANY)})
        yield made


@virtual_time
async def test_only_what_has_changed_is_listed() -> None:
    async with world() as made:
        made.fill(*range(MANY))
        await made.take()
        made.listed()
        made.fill(3)
        await made.take()
        made.check()
        listed = made.listed()
        assert len(listed) >= 6, "each broker was asked every 500 ms"
        assert sum(listed) == 1, "the partition whose offset has changed"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@virtual_time
async def test_after_an_error_of_the_session_another_begins(code: int) -> None:
    async with world() as made:
        await made.take()
        made.listed()
        made.fake.control(ApiKey.FETCH, lambda _: {"error_code": code, "responses": []})
        made.fill(3)
        await made.take()
        made.check()
        listed = [each for each in made.listed() if each]
        if code != ErrorCode.UNKNOWN_SERVER_ERROR:  # then each partition waits for its retry
            assert listed == [1, MANY // 2]


@pytest.mark.parametrize("slots", [0, 1])
@virtual_time
async def test_a_cluster_without_room_for_sessions(slots: int) -> None:
    async with world() as made:
        made.fake.limit_fetch_sessions(slots)
        await made.take()
        made.listed()
        made.fill(3, 4)
        await made.take()
        made.check()
        assert made.listed().count(MANY // 2) >= 3


@pytest.mark.parametrize("versions", [(4, 6), (4, 12)])
@virtual_time
async def test_older_brokers(versions: tuple[int, int]) -> None:
    """Without sessions, or with names of topics."""
    async with world() as made:
        made.fake.set_versions(ApiKey.FETCH, *versions)
        for _ in range(3):
            made.fill(1, 2)
            await made.take()
        made.check()


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.full) for n in range(2, 12))]
)
@virtual_time
async def test_whatever_becomes_of_sessions_each_record_comes_once(seed: int) -> None:
    rng = Random(seed)
    async with world() as made:
        fake, reading = made.fake, made.reading
        for _ in range(40):
            chosen = rng.sample(range(MANY), rng.randint(1, 8))
            where = TopicPartition("t", chosen[0])
            match rng.randrange(8):
                case 0:
                    fake.limit_fetch_sessions(rng.choice((0, 1, 1_000)))
                case 1:
                    fake.drop_connections(rng.choice((0, 1, None)))
                case 2:
                    reading.pause(where)
                case 3:
                    for number in range(MANY):
                        reading.resume(("t", number))
                case 4:
                    at = rng.randint(0, len(made.seen[where.partition]))
                    reading.seek(where, at)
                    del made.seen[where.partition][at:]
                case 5:
                    fake.move_leader("t", where.partition, rng.choice((0, 1)))
                case _:
                    made.fill(*chosen)
            await made.take(rng.choice((0.001, 0.1, 1.0)))
        for number in range(MANY):
            reading.resume(("t", number))
        await made.take(20)
        made.check()
