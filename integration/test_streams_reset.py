"""``kafkaclient streams reset`` on real brokers, and the groups with positions of standbys."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

from integration.brokers import gone_everywhere
from integration.shell import kafkaclient
from integration.streams_support import application, equals, records, running, until
from integration.test_streams_app import instance
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import StreamsError
from kafkaclient.streams import positions as positions_module
from kafkaclient.streams.description import Role, describe_application
from kafkaclient.streams.positions import is_positions_group, positions_group
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kafkaclient.streams import StreamsApp

    CreateTopic = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 2
RECORDS = 20


async def reset(bootstrap: str, application_id: str, *words: str) -> tuple[int, Any, str]:
    """Exit status, JSON and messages of the command."""
    ended = await kafkaclient(
        *("streams", "reset", "-b", bootstrap, application_id),
        *("--yes", "--json", *words),
    )
    return ended.exit_code, json.loads(ended.stdout) if ended.stdout else None, ended.stderr


def counting(bootstrap: str, topic: str, path: Path, **options: Any) -> StreamsApp:
    """Emits the count of each key so far."""
    app = application(bootstrap, topic, path, **options)

    @app.processor(topic, store="counts")
    async def count(record, store, emit) -> None:
        number = int(store.get(record.key) or 0) + 1
        store[record.key] = b"%d" % number
        await emit(f"{topic}-out", b"%d" % number, record.key)

    return app


async def make_topics(bootstrap: str, topic: str, create_topic: CreateTopic) -> None:
    """The input has records of one transaction for each partition."""
    await create_topic(topic, PARTITIONS)
    await create_topic(f"{topic}-out", 1)
    async with (
        Producer(bootstrap, transactional_id=f"{topic}-input") as producer,
        producer.transaction(),
    ):
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                key = b"%d" % (number % 2)
                await producer.send(topic, b"", key, partition=partition)


async def highest_counts(bootstrap: str, topic: str) -> list[int]:
    """How often each record was counted, as the last count of each key and partition says."""
    found = [int(record.value) for record in await records(bootstrap, f"{topic}-out")]
    return [max(found, default=0), len(found)]


async def test_an_application_processes_its_input_again(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    await make_topics(bootstrap, topic, create_topic)
    once = [RECORDS // 2, RECORDS * PARTITIONS]
    app = counting(bootstrap, topic, tmp_path / "a")
    async with Admin(bootstrap) as admin:

        async def lags() -> set[int | None]:
            described = await describe_application(admin, name)
            return {copy.lag for member in described.members for copy in member.copies}

        async with running(app) as task:
            await until(equals(lambda: highest_counts(bootstrap, topic), once), task)
            await until(equals(lags, {0}), task)  # not 1, the marker of the input's transaction
            status, _, message = await reset(bootstrap, name)
            assert status == 1
            assert "has members" in message
            status, _, message = await reset(bootstrap, name, "--force")
            assert status == 1
            assert "have joined again" in message
            await until(equals(lags, {0}), task)
        before = await admin.committed_offsets(name)
        assert before.keys() == {TopicPartition(topic, n) for n in range(PARTITIONS)}
        status, done, message = await reset(bootstrap, name, "--state-dir", str(tmp_path / "a"))
        assert status == 0, message
        assert done["deleted_topics"] == [f"{name}-counts-changelog"]
        assert done["state_removed"]
        assert await admin.committed_offsets(name) == dict.fromkeys(before, 0)
        await gone_everywhere(bootstrap, f"{name}-counts-changelog")
        twice = [once[0], 2 * once[1]]  # the counts begin at 1 again
        async with running(app) as task:
            await until(equals(lambda: highest_counts(bootstrap, topic), twice), task)
        status, _, message = await reset(bootstrap, f"{name}-2")
        assert status == 1
        assert f"there is no application '{name}-2'" in message


async def test_state_of_a_deleted_changelog_is_not_used(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """The reset cannot remove the state on other machines. --to N goes back in the input."""
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    await make_topics(bootstrap, topic, create_topic)
    once = [RECORDS // 2, RECORDS * PARTITIONS]
    app = counting(bootstrap, topic, tmp_path)
    async with running(app) as task:
        await until(equals(lambda: highest_counts(bootstrap, topic), once), task)
    status, done, message = await reset(bootstrap, name, "--to", str(RECORDS - 4))
    assert status == 0, message
    assert {change["after"] for change in done["offsets"]} == {RECORDS - 4}
    await gone_everywhere(bootstrap, f"{name}-counts-changelog")
    async with running(app) as task:
        more = [once[0], once[1] + 4 * PARTITIONS]
        await until(equals(lambda: highest_counts(bootstrap, topic), more), task)
    last = [int(record.value) for record in await records(bootstrap, f"{topic}-out")]
    assert max(last[-4 * PARTITIONS :]) == 2  # not 12: the old state has 10


@pytest.mark.full
async def test_an_instance_that_was_killed_is_removed(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    await make_topics(bootstrap, topic, create_topic)
    options = {
        "bootstrap_servers": bootstrap,
        "application_id": name,
        "state_dir": str(tmp_path),
        "processing_guarantee": "exactly_once_v2",
        "session_timeout_ms": 45_000,
    }
    async with instance(topic, f"{topic}-out", options) as killed:
        await killed.runs(PARTITIONS)
        await killed.end(signal.SIGKILL)
    status, done, message = await reset(bootstrap, name, "--force")
    assert status == 0, message
    assert len(done["members"]) == 1
    app = counting(bootstrap, topic, tmp_path)
    async with running(app) as task, Admin(bootstrap) as admin:

        async def processed() -> bool:
            described = await describe_application(admin, name)
            copies = [copy for member in described.members for copy in member.copies]
            return len(copies) == PARTITIONS and {copy.lag for copy in copies} == {0}

        await until(processed, task, 30)


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_an_instance_that_was_paused_meanwhile_ends(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """Its changelog is gone. It does not wait for a leader of the changelog for ever."""
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    await make_topics(bootstrap, topic, create_topic)
    options = {
        "bootstrap_servers": bootstrap,
        "application_id": name,
        "state_dir": str(tmp_path),
        "processing_guarantee": guarantee,
    }
    async with instance(topic, f"{topic}-out", options) as paused:
        await paused.runs(PARTITIONS)
        async with asyncio.timeout(30):
            while await highest_counts(bootstrap, topic) != [RECORDS // 2, RECORDS * PARTITIONS]:
                await asyncio.sleep(0.2)
        paused.process.send_signal(signal.SIGSTOP)
        status, _, message = await reset(bootstrap, name, "--force")
        assert status == 0, message
        paused.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(30):
            assert await paused.process.wait() == 1
    app = counting(bootstrap, topic, tmp_path)
    async with running(app) as task:

        async def counted_again() -> bool:
            found = [int(record.value) for record in await records(bootstrap, f"{topic}-out")]
            again = found[RECORDS * PARTITIONS :]
            return again.count(RECORDS // 2) == 2 * PARTITIONS and max(again) == RECORDS // 2

        await until(counted_again, task, 30)


async def test_topics_that_can_belong_to_another_application_stay(
    kafka_cluster, topic, create_topic
) -> None:
    """Whether the other application, or a plain group of such a name, exists or not."""
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    own, others = f"{name}-counts-changelog", f"{name}-2-counts-changelog"
    for each in (topic, own, others):
        await create_topic(each, 1)
    async with Admin(bootstrap) as admin:
        await admin.alter_offsets(name, {TopicPartition(topic, 0): 0})
        for group in (None, f"{name}-2"):
            if group is not None:
                await admin.alter_offsets(group, {TopicPartition(topic, 0): 0})
            status, _, message = await reset(bootstrap, name)
            assert status == 1
            assert f"{others}: brokers do not tell" in message
            assert f"--internal-topics '{own}'" in message
        assert {own, others} <= set(await admin.list_topics())
        status, _, message = await reset(bootstrap, f"{name}-2")  # can be a store of the shorter
        assert status == 1
        assert f"{others}: brokers do not tell" in message
        status, done, message = await reset(bootstrap, name, "--internal-topics", own)
        assert status == 0, message
        assert done["deleted_topics"] == [own]
        await gone_everywhere(bootstrap, own)
        assert others in await admin.list_topics()


async def test_a_plain_consumer_group_is_refused(kafka_cluster, topic, create_topic) -> None:
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 1)
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"")
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
    status, _, message = await reset(bootstrap, topic)
    assert status == 1
    assert f"nothing on the brokers tells that group {topic!r}" in message
    async with Admin(bootstrap) as admin:
        assert await admin.committed_offsets(topic) == {TopicPartition(topic, 0): 1}


async def test_a_group_of_the_consumer_protocol_is_refused(
    kafka_cluster, topic, create_topic
) -> None:
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 1)
    options = {"bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": "consumer"}
    consumer = Consumer(options)
    consumer.subscribe([topic])
    async with Admin(bootstrap) as admin:
        async with asyncio.timeout(60):
            while topic not in {each.group_id for each in await admin.list_groups()}:
                await asyncio.to_thread(consumer.poll, 0.5)
        for _ in "with a member", "without":
            with pytest.raises(StreamsError, match="plain consumers"):
                await describe_application(admin, topic)
            status, _, message = await reset(bootstrap, topic, "--force")
            assert status == 1
            assert "has the consumer protocol" in message
            await asyncio.to_thread(consumer.close)


async def test_two_operators_at_once(kafka_cluster, topic, create_topic) -> None:
    """Who is told "is reset" last has set the offsets."""
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    await make_topics(bootstrap, topic, create_topic)
    await create_topic(f"{name}-counts-changelog", 1)
    async with Admin(bootstrap) as admin:
        await admin.alter_offsets(name, {TopicPartition(topic, 0): 5})
        words = ["--to", "earliest"], ["--to", "latest"]
        both = await asyncio.gather(*(reset(bootstrap, name, "--force", *each) for each in words))
        found = (await admin.committed_offsets(name))[TopicPartition(topic, 0)]
        wanted = [done["offsets"][0]["after"] for status, done, _ in both if status == 0]
        assert found in wanted
        for status, _, message in both:
            assert status == 0 or "Somebody else resets it" in message
    await gone_everywhere(bootstrap, f"{name}-counts-changelog")


async def test_static_members_are_removed(kafka_cluster, topic, create_topic) -> None:
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 1)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, group_instance_id="one"
    )
    await consumer.start()
    try:
        await consumer.getmany(timeout_ms=5000)
    finally:
        await consumer.stop()  # static members do not leave
    async with Admin(bootstrap) as admin:
        members = (await admin.describe_group(topic)).members
        assert [member.group_instance_id for member in members] == ["one"]
        await admin.remove_members(topic, members, reason="test")
        assert (await admin.describe_group(topic)).members == ()
        await admin.remove_members(topic, members)  # they have left: no error
        assert (await admin.delete_groups([topic]))[topic] is None


async def test_positions_groups_that_nobody_needs_are_deleted(
    kafka_cluster, topic, create_topic, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(positions_module, "_CLEAN_INTERVAL_S", 1.0)
    bootstrap, name = kafka_cluster.bootstrap, f"app-{topic}"
    await make_topics(bootstrap, topic, create_topic)
    gone = positions_group(name, uuid4())
    options = {"num_standby_replicas": 1}
    apps = [counting(bootstrap, topic, tmp_path / place, **options) for place in "ab"]
    async with Admin(bootstrap) as admin:

        async def groups() -> set[str]:
            found = (group.group_id for group in await admin.list_groups())
            return {group for group in found if is_positions_group(group, name)}

        async def members() -> set[str]:
            described = await describe_application(admin, name)
            return {
                positions_group(name, member.process_id)
                for member in described.members
                if any(copy.role is Role.STANDBY for copy in member.copies)
            }

        await admin.alter_offsets(gone, {TopicPartition(topic, 0): 1})
        assert gone in await groups()
        async with running(apps[0]) as task, running(apps[1]):

            async def only_those_of_members() -> bool:
                return len(await members()) == 2 and await groups() == await members()

            await until(only_those_of_members, task, 60)
        assert await groups() == set()  # both instances have ended as planned
