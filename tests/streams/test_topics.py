"""The topics of an application at its start, on the fake cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkaclient.admin import Admin, ConfigResource
from kafkaclient.errors import (
    BrokerConnectionError,
    StateStoreError,
    StreamsError,
    UnknownTopicError,
)
from kafkaclient.streams import DeadLetter
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.runtime import topics
from kafkaclient.streams.runtime.topics import (
    ApplicationTopics,
    prepare_topics,
    watch_internal_topics,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.streams.fakes import count, topology_of


async def prepare(fake: FakeCluster, **options: Any) -> ApplicationTopics:
    config = StreamsConfig(
        bootstrap_servers=fake.bootstrap, application_id="app", state_dir=Path("/nowhere")
    )
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        return await prepare_topics(admin, config, topology_of(count, **options))


async def set_configs(fake: FakeCluster, topic: str, configs: dict[str, str]) -> None:
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        await admin.alter_configs(ConfigResource.topic(topic), configs)


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"cleanup.policy": "delete"}, "error"),
        ({"cleanup.policy": "compact,delete"}, "warning"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1"}, ""),
        ({"cleanup.policy": "compact"}, ""),
    ],
)
@virtual_time
async def test_a_changelog_that_loses_state_is_noticed(
    configs: dict[str, str],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake, name = FakeCluster(1), "app-counts-changelog"
    fake.create_topic("words", 1)
    fake.create_topic(name, 1)
    await set_configs(fake, name, {"retention.ms": "1000"} | configs)
    if told == "error":
        with pytest.raises(StateStoreError, match=rf"{name} exists with cleanup.policy=delete"):
            await prepare(fake)
        return
    await prepare(fake)
    assert (f"changelog {name} exists with" in caplog.text) is (told == "warning")


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"retention.ms": "1000"}, "cleanup.policy=delete and retention.ms=1000"),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, "cleanup.policy=compact"),
        ({"retention.ms": "-1"}, ""),
    ],
)
@virtual_time
async def test_a_repartition_topic_that_loses_records_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    configs: dict[str, str],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCluster(1)
    fake.create_topic("app-words-repartition", 1)
    await set_configs(fake, "app-words-repartition", configs)
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        await topics._check_repartition_topic(admin, "app-words-repartition")
    assert (f"exists with {told}" in caplog.text) if told else not caplog.text


@virtual_time
async def test_changelogs_are_created() -> None:
    fake = FakeCluster(3)
    fake.create_topic("words", assignments=[(0,), (1,), (2,)])
    first = await prepare(fake)
    assert first.partitions == {"words": 3}
    again = await prepare(fake)
    assert again.changelogs == first.changelogs
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        name = "app-counts-changelog"
        assert (await admin.describe_topic(name)).topic_id == first.changelogs["counts"].topic_id
        await admin.alter_configs(ConfigResource.topic(name), {"delete.retention.ms": "5000"})
    assert (await prepare(fake)).changelogs["counts"].delete_retention_s == 5


@pytest.mark.parametrize("ever", [True, False])
@virtual_time
async def test_the_start_waits_until_each_broker_knows_the_changelogs(
    monkeypatch: pytest.MonkeyPatch, ever: bool
) -> None:
    """A broker that is asked for the new topic by name may say that there is no such topic, when
    another one has listed it."""
    fake, describe = FakeCluster(3), Admin.describe_topics
    describe_configs, refused = Admin.describe_configs, []
    fake.create_topic("words", assignments=[(0,)])

    async def describe_topics(admin: Admin, names: Any = None, **options: Any) -> Any:
        if names is not None:
            raise UnknownTopicError("this broker has not heard of it yet")
        return await describe(admin, names, **options)

    async def some_configs(admin: Admin, *args: Any, **options: Any) -> Any:
        if len(refused) < 5 or not ever:
            refused.append(args)
            raise UnknownTopicError("this broker has not heard of it yet")
        return await describe_configs(admin, *args, **options)

    monkeypatch.setattr(Admin, "describe_topics", describe_topics)
    monkeypatch.setattr(Admin, "describe_configs", some_configs)
    if ever:
        assert (await prepare(fake)).changelogs.keys() == {"counts"}
        assert len(refused) == 5
    else:
        with pytest.raises(StreamsError, match="does not know them after 30 s"):
            await prepare(fake)


@virtual_time
async def test_a_partition_without_leader_does_not_block() -> None:
    """Its task waits for one."""
    fake = FakeCluster(3)
    for name in ("words", "app-counts-changelog"):
        fake.create_topic(name, assignments=[(0,), (1,), (2,)])
    await set_configs(fake, "app-counts-changelog", {"cleanup.policy": "compact"})
    fake.stop_broker(2)
    assert (await prepare(fake)).partitions == {"words": 3}


@virtual_time
async def test_errors_name_missing_topics() -> None:
    fake = FakeCluster(1, auto_create_topics=False)
    with pytest.raises(StreamsError, match="topic words does not exist"):
        await prepare(fake)
    fake.create_topic("words", assignments=[(0,)])
    with pytest.raises(StreamsError, match="topic dead does not exist, which is to take"):
        await prepare(fake, processing_exception_handler=DeadLetter("dead"))
    fake.create_topic("app-counts-changelog", assignments=[(0,), (0,)])
    await set_configs(fake, "app-counts-changelog", {"cleanup.policy": "compact"})
    with pytest.raises(StateStoreError, match="has 2 partitions, but words"):
        await prepare(fake)


@pytest.mark.parametrize("again", [False, True])
@virtual_time
async def test_a_changelog_that_is_deleted_ends_the_instance(again: bool) -> None:
    """Also if another instance has created it again."""
    fake, name = FakeCluster(3), "app-counts-changelog"
    fake.create_topic("words", assignments=[(0,)])
    found = (await prepare(fake)).internal
    assert found.keys() == {name}
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        watching = asyncio.create_task(watch_internal_topics(admin, found))
        leader = (await admin.describe_topic(name)).partitions[0].leader
        assert leader is not None
        fake.stop_broker(leader, elect=False)
        await asyncio.sleep(100)
        assert not watching.done()  # a topic without leader is not deleted
        fake.start_broker(leader)
        await admin.delete_topics([name])
        if again:
            await admin.create_topic(name, 1)
        with pytest.raises(StreamsError, match=f"topic {name} was deleted while the application"):
            async with asyncio.timeout(15):
                await watching


@virtual_time
async def test_some_answers_do_not_end_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that do not know the topic for a moment, or do not answer at all."""
    fake, describe = FakeCluster(3), Admin.describe_topics
    gone, silent = UnknownTopicError("not heard of yet"), BrokerConnectionError("no answer")
    answers = [gone, gone, None, gone, silent, gone, None] * 5
    fake.create_topic("words", assignments=[(0,)])
    found = (await prepare(fake)).internal

    async def describe_topics(admin: Admin, names: Any = None, **options: Any) -> Any:
        if names is None:
            return {}
        if error := answers.pop():
            raise error
        return await describe(admin, names, **options)

    monkeypatch.setattr(Admin, "describe_topics", describe_topics)
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        watching = asyncio.create_task(watch_internal_topics(admin, found))
        while answers:
            await asyncio.sleep(1)
        assert not watching.done()
        watching.cancel()
        await asyncio.wait({watching})
