"""Consumers join, leave and are slow while connections close and the coordinator and leaders move:
nothing is lost or skipped, and little is handled twice."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.consumer import Consumer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, FakeCluster
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from tests.consumer.conftest import Tools

PARTITIONS = 6
ROUNDS = 20
AT_MOST_AGAIN = 60  # records of a partition that are handled twice, behind commits that were lost
GROUP_APIS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.FETCH,
)


class Some:
    """A consumer with a loop. ``seen``: the offsets by partition, in the order of its loop."""

    def __init__(self, fake: FakeCluster, rng: Random, options: dict[str, Any]) -> None:
        self.rng = rng
        self.seen: list[tuple[int, int]] = []
        self.consumer = Consumer(
            fake.bootstrap,
            dialer=fake,
            rng=rng,
            group_id="g",
            topics=["t"],
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1000,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=20_000,
            **options,
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.consumer:
            async for record in self.consumer:
                if self.rng.random() < 0.05:
                    await asyncio.sleep(self.rng.choice([0.01, 0.5, 3.0]))
                self.seen.append((record.partition, record.offset))  # it is handled

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


class World:
    """The consumers of a group, and what happens to them."""

    def __init__(self, tools: Tools, options: dict[str, Any], seed: int) -> None:
        self.tools = tools
        self.options = options
        self.rng = Random(seed)
        self.fake = FakeCluster(3)
        self.fake.round_trip_s = 0.002
        self.fake.create_topic("t", PARTITIONS, 3)
        self.running = [Some(self.fake, self.rng, options)]
        self.ended: list[Some] = []

    async def leave(self) -> None:
        leaving = self.running.pop(self.rng.randrange(len(self.running)))
        await leaving.end()
        self.ended.append(leaving)

    async def disturb(self) -> None:
        fake, rng = self.fake, self.rng
        match rng.randrange(5):
            case 0 if len(self.running) < 4:
                self.running.append(Some(fake, rng, self.options))
            case 1 if len(self.running) > 1:
                await self.leave()
            case 2:
                fake.move_coordinator("g", rng.randrange(3))
            case 3:
                fake.control(rng.choice(GROUP_APIS), CLOSE)
            case 4:
                fake.move_leader("t", rng.randrange(PARTITIONS), rng.randrange(3))

    async def round(self) -> None:
        for number in range(PARTITIONS):
            self.tools.fill(self.fake, number, self.rng.randrange(20))
        await self.disturb()
        await asyncio.sleep(self.rng.choice([0.1, 1.0, 5.0]))
        for each in self.running:
            if each.task.done():
                each.task.result()

    def is_committed(self) -> bool:
        return all(
            self.fake.committed_offset("g", "t", n) == end for n, end in self.ends.items() if end
        )

    @property
    def ends(self) -> dict[int, int]:
        return {n: self.fake.end_offset("t", n) for n in range(PARTITIONS)}

    def check(self, number: int, end: int) -> None:
        """All records of a partition were handled, and few of them twice."""
        everyone = [*self.running, *self.ended]
        seen = [[at for n, at in each.seen if n == number] for each in everyone]
        handled = {at for offsets in seen for at in offsets}
        assert handled == set(range(end))
        again = sum(map(len, seen)) - end
        assert again <= AT_MOST_AGAIN


@pytest.mark.parametrize(
    "options",
    [
        {"group_protocol": "consumer"},
        {"group_protocol": "classic"},
        {"group_protocol": "classic", "partition_assignment_strategy": "range"},
    ],
    ids=["kip848", "cooperative", "eager"],
)
@virtual_time
async def test_nothing_is_lost(tools: Tools, options: dict[str, Any]) -> None:
    world = World(tools, options, seed=0)
    for _ in range(ROUNDS):
        await world.round()
    await tools.until(world.is_committed, 300)
    while world.running:
        await world.leave()
    for number, end in world.ends.items():
        world.check(number, end)
