"""The owner of a task is away for longer than its session, and comes back: paused with SIGSTOP,
with a blocked event loop, or stopped in the middle of a commit. A restore from the changelog shows
whether it has replaced changes of the next owner by older ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.streams_support import running, until
from integration.test_streams_app import Instance
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.streams import Store, StreamsApp
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.timeout(120)

KEYS = 20
SCRIPT = Path(__file__).with_name("streams_zombie.py")


class World:
    """Two instances: the owner of the only task, and the next one, a standby meanwhile."""

    def __init__(self, bootstrap: str, topic: str, path: Path, guarantee: str) -> None:
        self.bootstrap, self.topic, self.path, self.guarantee = bootstrap, topic, path, guarantee
        self.trigger = path / "trigger"
        self.sent: Counter[str] = Counter()

    @asynccontextmanager
    async def instance(self, name: str) -> AsyncIterator[Instance]:
        options = {
            "bootstrap_servers": self.bootstrap,
            "application_id": f"app-{self.topic}",
            "state_dir": str(self.path / name),
            "processing_guarantee": self.guarantee,
            "session_timeout_ms": 6000,
            "commit_interval_ms": 1000,
            "num_standby_replicas": 1,
        }
        arguments = (str(SCRIPT), self.topic, str(self.trigger), json.dumps(options))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        started = Instance(process)
        try:
            yield started
        finally:
            if process.returncode is None:
                await started.end(signal.SIGKILL)

    async def send(self, producer: Producer, rounds: int) -> None:
        for number in range(rounds * KEYS):
            key = f"k{number % KEYS}"
            await producer.send_and_wait(self.topic, b"", key=key.encode())
            self.sent[key] += 1

    async def all_committed(self) -> None:
        source = TopicPartition(self.topic, 0)
        async with Admin(self.bootstrap) as admin, asyncio.timeout(30):
            found: dict[TopicPartition, int] = {}
            while found.get(source, 0) < self.sent.total():
                await asyncio.sleep(0.1)
                found = await admin.committed_offsets(f"app-{self.topic}", [source])

    async def restored(self) -> dict[str, int]:
        """The counts of a new instance, which has the changelog only."""
        app = StreamsApp(
            self.bootstrap,
            application_id=f"app-{self.topic}",
            state_dir=self.path / "restored",
            processing_guarantee=self.guarantee,
        )

        @app.processor(self.topic, key=str, store=Store("counts", key=str, value=int))
        async def count(record, store, emit) -> None:
            """Nothing is left to count."""

        async with running(app) as task:

            async def is_running() -> bool:
                return [each.state.value for each in app.tasks()] == ["running"]

            await until(is_running, task)
            return dict(app.store("counts").items())


async def settled(pair: list[Instance]) -> list[Instance]:
    """The owner and the standby, once the task has moved to where it stays."""
    await asyncio.gather(*(each.has_started.wait() for each in pair))
    async with asyncio.timeout(30):
        while True:
            found = sorted(pair, key=lambda each: not each.running())
            for _ in range(20):
                await asyncio.sleep(0.1)
                if [each.tasks.get("0_0") for each in found] != ["running", "standby"]:
                    break
            else:
                return found


async def counts_after(world: World, how: str) -> dict[str, int]:
    """Let the owner be away for longer than its session, and come back when the next owner has
    processed more records of all keys."""
    async with AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(world.instance(name)) for name in "ab"]
        owner, following = await settled(pair)
        async with Producer(world.bootstrap, linger_ms=0) as producer:
            await world.send(producer, 20)
            if how == "pause":
                owner.process.send_signal(signal.SIGSTOP)
            else:
                world.trigger.write_text(how)
            await world.send(producer, 5)
            await following.runs(1)
            await world.send(producer, 5)
            await world.all_committed()
        owner.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(30):
            while owner.tasks.get("0_0") == "running" and following.running():
                await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        assert await owner.end(signal.SIGTERM) == 0
        assert await following.end(signal.SIGTERM) == 0
    return await world.restored()


@pytest.mark.full
@pytest.mark.parametrize(
    ("guarantee", "how"),
    [
        ("at_least_once", "pause"),
        ("at_least_once", "block"),
        ("exactly_once_v2", "pause"),
        ("exactly_once_v2", "block"),
        ("exactly_once_v2", "stop"),
    ],
)
async def test_an_owner_that_was_away_replaces_no_newer_change(
    kafka_cluster, topic, create_topic, tmp_path, guarantee, how
) -> None:
    await create_topic(topic, 1)
    await create_topic(f"{topic}-counts", 1)
    world = World(kafka_cluster.bootstrap, topic, tmp_path, guarantee)
    found = await counts_after(world, how)
    if guarantee == "exactly_once_v2":
        assert found == world.sent
    less = {key: (found.get(key), count) for key, count in world.sent.items()}
    assert not {key: each for key, each in less.items() if (each[0] or 0) < each[1]}


@pytest.mark.full
async def test_at_least_once_a_write_that_began_before_the_pause_goes_on_after_it(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """The window that docs/concepts/guarantees.md states: between the look at the clock and the
    socket, nobody can take back what is written."""
    await create_topic(topic, 1)
    await create_topic(f"{topic}-counts", 1)
    world = World(kafka_cluster.bootstrap, topic, tmp_path, "at_least_once")
    found = await counts_after(world, "stop")
    assert any(found[key] < count for key, count in world.sent.items()), "update the page"
