"""``run()`` ends cleanly, whenever it is cancelled, and however often."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import StreamsError
from kafkaclient.streams import StreamsApp
from kafkaclient.streams.runtime.changelog_reader import to_the_end
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.fake.interceptors import DROP
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from pathlib import Path


def application(fake: FakeCluster, path: Path, **options: Any) -> StreamsApp:
    app = StreamsApp(fake.bootstrap, application_id="app", state_dir=path, **options)

    @app.processor("t", store="s")
    async def keep(record, store, emit) -> None:  # type: ignore[no-untyped-def]
        store.put(b"k", b"v")

    return app


def members(fake: FakeCluster) -> int:
    groups = fake._state.groups.groups
    return len(groups["app"].members) if "app" in groups else 0


async def until_running(app: StreamsApp, running: asyncio.Task[None]) -> None:
    async with asyncio.timeout(20):
        while [found.state.value for found in app.tasks()] != ["running"] * 2:
            if running.done():
                running.result()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("cancels", [1, 50])
@pytest.mark.parametrize("when", [0.0, 0.01, 0.05, 0.1, 0.2, None])
async def test_cancelled_at_any_moment(tmp_path: Path, when: float | None, cancels: int) -> None:
    """None: while it runs. Nothing is left: no asyncio task, no member, no lock."""
    async with FakeCluster(1).serve() as fake:
        fake.create_topic("t", 2)
        before = asyncio.all_tasks()
        app = application(fake, tmp_path)
        running = asyncio.create_task(app.run())
        if when is None:
            await until_running(app, running)
        else:
            await asyncio.sleep(when)
        for _ in range(cancels):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert {t for t in asyncio.all_tasks() if "fake" not in repr(t)} <= before
        assert members(fake) == 0
        again = asyncio.create_task(app.run())
        await until_running(app, again)
        assert members(fake) == 1
        app.stop()
        await again
        assert members(fake) == 0


@pytest.mark.parametrize("when", [0.0, 0.01, 0.05, 0.1, 0.2, 0.3])
async def test_stopped_while_it_starts(tmp_path: Path, when: float) -> None:
    async with FakeCluster(1).serve() as fake:
        fake.create_topic("t", 2)
        before = asyncio.all_tasks()
        app = application(fake, tmp_path)
        running = asyncio.create_task(app.run())
        await asyncio.sleep(when)
        app.stop()
        async with asyncio.timeout(4.5):  # no wait for brokers is shorter than 5 s
            await running
        assert {t for t in asyncio.all_tasks() if "fake" not in repr(t)} <= before
        assert members(fake) == 0


AT_START = [
    ApiKey.METADATA,
    ApiKey.CREATE_TOPICS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
]


@pytest.mark.parametrize("api_key", AT_START, ids=lambda key: key.name)
async def test_stopped_while_it_waits_for_an_answer(tmp_path: Path, api_key: ApiKey) -> None:
    """Brokers answer no such request: the start, a rebalance or a restore never ends."""
    async with FakeCluster(1).serve() as fake:
        fake.create_topic("t", 2)
        before = asyncio.all_tasks()
        fake.control(api_key, DROP, keep=True)
        app = application(fake, tmp_path, processing_guarantee="exactly_once_v2")
        running = asyncio.create_task(app.run())
        await asyncio.sleep(0.4)
        assert not running.done()
        app.stop()
        async with asyncio.timeout(20):  # LeaveGroup may have to wait for the coordinator: 5 s
            await running
        assert {t for t in asyncio.all_tasks() if "fake" not in repr(t)} <= before


async def test_an_instance_whose_name_another_one_has_ends(tmp_path: Path) -> None:
    async with FakeCluster(1).serve() as fake:
        fake.create_topic("t", 2)
        app = application(fake, tmp_path, group_instance_id="a")
        running = asyncio.create_task(app.run())
        await until_running(app, running)
        fake.control(ApiKey.HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID)
        with pytest.raises(StreamsError, match=r"newer member with group\.instance\.id 'a'"):
            await running


async def test_stopped_without_brokers(tmp_path: Path) -> None:
    app = StreamsApp("127.0.0.1:1", application_id="app", state_dir=tmp_path)

    @app.processor("t")
    async def nothing(record, emit) -> None:  # type: ignore[no-untyped-def]
        """Nothing comes."""

    running = asyncio.create_task(app.run())
    await asyncio.sleep(0.1)
    app.stop()
    async with asyncio.timeout(20):
        await running


async def test_work_goes_on_to_its_end() -> None:
    may_end, done = asyncio.Event(), asyncio.Event()
    cancels = 0

    async def work() -> None:
        await may_end.wait()
        done.set()

    def cancelled() -> None:
        nonlocal cancels
        cancels += 1

    waiting = asyncio.create_task(to_the_end(work(), cancelled))
    for _ in range(3):
        await asyncio.sleep(0.001)
        waiting.cancel()
    await asyncio.sleep(0.001)
    assert not waiting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done.is_set()
    assert cancels == 3


async def test_errors_of_the_end_are_raised() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await to_the_end(broken(), lambda: None)
