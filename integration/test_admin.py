"""The admin client and its commands on real brokers, beside Kafka's own tool."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer

from integration.brokers import everywhere, from_each_broker
from integration.shell import Ended, kafkaclient
from kafkaclient.admin import Admin, ConfigResource, ConfigSource, FileLimits, Limits, NewTopic
from kafkaclient.admin.description import live_brokers
from kafkaclient.admin.limits import LIMITS_TOPIC, Usage
from kafkaclient.errors import (
    BrokerError,
    PartitionLimitRaceError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicError,
)
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import assignment_in, subscription_in
from tests.code_blocks import runs

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def admin(kafka_cluster):
    async with Admin(kafka_cluster.bootstrap) as client:
        yield client


async def run(cluster, *words: str) -> Ended:
    return await kafkaclient(*words, "--bootstrap-server", cluster.bootstrap)


async def described(admin: Admin, topic: str, partitions: int):
    """The topic, when every broker has heard of so many partitions with leaders."""
    await everywhere(admin, topic, lambda told: len(told.partitions) == partitions)
    return await admin.describe_topic(topic)


@pytest.mark.full
async def test_brokers_from_the_environment_and_from_a_profile(kafka_cluster, topic, tmp_path):
    profiles = tmp_path / "kafkaclient" / "profiles.toml"
    profiles.parent.mkdir()
    profiles.write_text(f'[here]\nbootstrap.servers = "{kafka_cluster.bootstrap}"\ntimeout = 30\n')
    nowhere = {"KAFKACLIENT_BOOTSTRAP": "127.0.0.1:1", "XDG_CONFIG_HOME": str(tmp_path)}
    made = await kafkaclient(*("topics", "create", topic, "--profile", "here"), variables=nowhere)
    assert made == (0, "", f"created topic {topic}\n")
    began = asyncio.get_running_loop().time()
    wrong = await kafkaclient("topics", "list", variables=nowhere)
    assert wrong.exit_code == 1
    assert "cannot reach bootstrap server 127.0.0.1:1: connection refused" in wrong.stderr
    assert asyncio.get_running_loop().time() - began < 20  # it was 61 s
    here = nowhere | {"KAFKACLIENT_BOOTSTRAP": kafka_cluster.bootstrap}
    assert topic in (await kafkaclient("topics", "list", variables=here)).stdout.split()


async def test_topics_and_their_settings(admin, topic):
    await admin.create_topic(topic, 4, 2, configs={"segment.ms": "3600000"})
    told = await described(admin, topic, 4)
    assert (told.replication_factor, told.internal) == (2, False)
    with pytest.raises(TopicExistsError):
        await admin.create_topic(topic, 4, 2)
    await admin.add_partitions(topic, 6, replica_assignment=[(0, 1), (2, 0)])
    grown = await described(admin, topic, 6)
    assert [p.replicas for p in grown.partitions[4:]] == [(0, 1), (2, 0)]
    with pytest.raises(BrokerError, match="would not be an increase"):
        await admin.add_partitions(topic, 2)

    resource = ConfigResource.topic(topic)
    await admin.alter_configs(resource, {"cleanup.policy": "compact"}, delete=["segment.ms"])
    throttled = "leader.replication.throttled.replicas"
    await admin.alter_configs(resource, append={throttled: "0:0,1:1"})
    await admin.alter_configs(resource, subtract={throttled: "0:0"})
    async with asyncio.timeout(60):
        while True:
            entries = await admin.describe_configs(resource)
            if entries[throttled].value == "1:1":
                break
            await asyncio.sleep(0.05)
    assert entries["cleanup.policy"][1:3] == ("compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entries["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        await admin.alter_configs(resource, {"no.such.key": "1"})

    await admin.delete_topic(topic)
    with pytest.raises(UnknownTopicError):
        await admin.delete_topic(topic)


async def test_a_group_of_kip_848_is_described(admin, kafka_cluster, topic):
    """Coordinators answer DescribeGroups for it as for a group that does not exist."""
    await admin.create_topic(topic, 2, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap,
            "group.id": topic,
            "group.protocol": "consumer",
            "client.id": "other",
        }
    )
    consumer.subscribe([topic])
    async with asyncio.timeout(60):
        while True:
            await asyncio.to_thread(consumer.poll, 0.2)
            found = await admin.describe_group(topic)
            if found.state == "Stable" and assignment_in(found.members[0].assignment).partitions:
                break
    (member,) = found.members
    assert (found.kind, found.protocol_type, member.client_id) == ("consumer", "consumer", "other")
    assert subscription_in(member.metadata).topics == (topic,)
    partitions = (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert sorted(assignment_in(member.assignment).partitions) == [*partitions]
    with pytest.raises(BrokerError, match=r"for .* partitions: UNKNOWN_MEMBER_ID"):
        await admin.alter_offsets(topic, dict.fromkeys(partitions, 0))
    await asyncio.to_thread(consumer.close)
    async with asyncio.timeout(30):
        while (found := await admin.describe_group(topic)).state != "Empty":
            await asyncio.sleep(0.1)
    assert found.members == ()
    assert (await admin.delete_groups([topic])) == {topic: None}
    async with asyncio.timeout(30):
        while (await admin.describe_group(topic)).state != "Dead":
            await asyncio.sleep(0.1)


async def test_offsets_of_an_unknown_topic_are_an_error_at_once(admin, topic):
    await admin.create_topic(topic, 1, 1)
    good, missing = TopicPartition(topic, 0), TopicPartition(f"{topic}-nope", 0)
    await described(admin, topic, 1)
    await admin.alter_offsets(topic, {good: 5})  # there is a coordinator now
    began = time.monotonic()
    with pytest.raises(UnknownTopicError, match=rf"for {missing} of 2 partitions"):
        await admin.alter_offsets(topic, {good: 7, missing: 1})
    assert time.monotonic() - began < 30  # default.api.timeout.ms is a minute
    assert await admin.committed_offsets(topic) == {good: 7}


async def test_a_name_is_no_pattern(admin, kafka_cluster, topic):
    other = f"{topic}-x"
    await admin.create_topic(other, 1, 1)
    await described(admin, other, 1)
    for name in (f"{topic}.x", f"{topic}_x"):
        words = ("topics", "delete", name, "--if-exists", "--yes")
        for _ in range(2):
            done = await run(kafka_cluster, *words)
            assert (done.exit_code, "nothing was done" in done.stderr) == (0, True)
    unknown = await run(kafka_cluster, "topics", "describe", f"{topic}.x")
    assert unknown.exit_code == 1
    wrong = await run(
        kafka_cluster,
        "configs",
        "alter",
        other,
        "--delete-config",
        "retention.ms,nosuch",
    )
    assert (wrong.exit_code, "no such key" in wrong.stderr) == (2, True)
    dotted = await run(kafka_cluster, "topics", "create", f"{topic}.x")
    assert dotted.exit_code == 0
    collides = await run(kafka_cluster, "topics", "create", f"{topic}_x")
    assert (collides.exit_code, "collides with existing topic" in collides.stderr) == (2, True)
    await everywhere(admin, f"{topic}.x")
    both = rf"{re.escape(topic)}.x"
    gone = await run(kafka_cluster, "topics", "delete", "--pattern", both, "--yes", "--json")
    assert json.loads(gone.stdout)["deleted"] == sorted([other, f"{topic}.x"])


async def test_preferred_leaders(admin, kafka_cluster, topic):
    first, second = (broker.node_id for broker in (await admin.describe_cluster()).brokers[:2])
    moved, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await admin.create_topic(topic, replica_assignment=[[first, second], [second, first]])
    await described(admin, topic, 2)
    assert await admin.alter_partition_reassignments({moved: [second, first]}) == {moved: None}
    await everywhere(admin, topic, lambda told: told.partitions[0].replicas == (second, first))
    done = await run(kafka_cluster, "topics", "elect-leaders", topic, "--json")
    assert json.loads(done.stdout)["failed"] == {}, done.stderr
    (elected,) = json.loads(done.stdout)["elected"]
    assert (elected["partition"], elected["before"]) == (0, first)
    await everywhere(admin, topic, lambda told: told.partitions[0].leader == second)
    assert await admin.elect_leaders([moved, other]) == {moved: None, other: None}
    again = await run(kafka_cluster, "topics", "elect-leaders", topic)
    assert "nothing was done" in again.stderr
    unclean = await run(kafka_cluster, "topics", "elect-leaders", topic, "--unclean")
    assert "nothing was done" in unclean.stderr
    nowhere = TopicPartition(f"{topic}-nope", 0)
    assert isinstance((await admin.elect_leaders([nowhere]))[nowhere], UnknownTopicError)


@pytest.mark.local_cluster
async def test_a_broker_that_is_down_is_told_from_one_that_is_behind(
    admin, kafka_cluster, create_topic, topic
) -> None:
    await create_topic(topic, assignments={0: [1, 2]})
    await kafka_cluster.kill(2)
    await everywhere(admin, topic, lambda told: told.down_brokers == {2})  # until it is fenced
    table = await run(kafka_cluster, "cluster", "describe")
    assert re.search(r"2 │ down .*│     0 │ +\d+ │ ", table.stdout)
    assert "not brokers" not in table.stdout
    assert "down: 2" in (await run(kafka_cluster, "topics", "describe", topic)).stdout
    await kafka_cluster.start_broker(2)


async def test_brokers(admin, kafka_cluster):
    told = await admin.describe_cluster()
    other = AIOKafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
    await other.start()
    try:
        known = {broker["node_id"] for broker in (await other.describe_cluster())["brokers"]}
    finally:
        await other.close()
    assert {broker.node_id for broker in told.brokers} == known
    assert told.controller_id in told.controllers
    entries = await admin.describe_configs(ConfigResource.broker(told.brokers[-1].node_id))
    assert entries["log.dirs"].source is ConfigSource.STATIC_BROKER_CONFIG
    defaults = ConfigResource.broker_defaults()
    await admin.alter_configs(defaults, {"log.cleaner.threads": "2"})
    await admin.alter_configs(defaults, delete=["log.cleaner.threads"])


@pytest.mark.local_cluster
async def test_kafkas_own_tool_says_the_same(admin, kafka_cluster, topic):
    """What we create is described alike by org.apache.kafka.tools.TopicCommand."""
    words = (topic, "--partitions", "3", "--replication-factor", "2")
    made = await run(kafka_cluster, "topics", "create", *words, "--config", "retention.ms=5000")
    assert made.exit_code == 0, made.stderr
    await described(admin, topic, 3)
    tool = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", kafka_cluster.bootstrap, "--describe", "--topic", topic),
    )
    assert tool.returncode == 0, tool.stderr
    theirs = [
        tuple(match.groups())
        for match in re.finditer(
            r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", tool.stdout
        )
    ]
    result = await run(kafka_cluster, "topics", "describe", topic, "--json")
    (ours,) = json.loads(result.stdout)
    assert theirs == [
        (
            str(p["partition"]),
            str(p["leader"]),
            ",".join(map(str, p["replicas"])),
            ",".join(map(str, p["isr"])),
        )
        for p in ours["partitions"]
    ]
    head = re.search(
        r"TopicId: (\S+)\s+PartitionCount: (\d+)\s+ReplicationFactor: (\d+)", tool.stdout
    )
    assert head is not None
    assert head.groups()[1:] == (str(ours["partition_count"]), str(ours["replication_factor"]))
    assert "retention.ms=5000" in tool.stdout
    assert ours["configs"] == {"retention.ms": "5000"}


# --- limits -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited_cluster():
    """Brokers that no other test puts topics on."""
    cluster = LocalCluster(3)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


async def host(admin: Admin, *counts: int) -> None:
    """Leave the brokers with exactly so many partitions, all in one topic."""
    told = [info for each in await from_each_broker(admin) for info in each.topics]
    topics = {info.name for info in told if not info.is_internal} - {LIMITS_TOPIC}
    await admin.set_limits({"max.broker.partitions": "off", "max.partitions": "off"})
    for error in (await admin.delete_topics(topics)).values():
        assert error is None or isinstance(error, UnknownTopicError)  # a broker may be behind
    rows = [(broker,) for broker, count in enumerate(counts) for _ in range(count)]
    await admin.create_topic("base", replica_assignment=rows)
    await until(admin, list(counts))


async def until(admin: Admin, hosted: list[int]) -> None:
    """Wait until the brokers agree on that."""
    async with asyncio.timeout(60):
        while True:
            told = [Usage.of(each).hosted for each in await from_each_broker(admin)]
            if told and all(each == dict(enumerate(hosted)) for each in told):
                break
            await asyncio.sleep(0.02)
    assert [broker.hosted for broker in (await admin.check_limits()).brokers] == hosted


@pytest.mark.full
@pytest.mark.local_cluster
async def test_the_kips_examples(limited_cluster):
    async with Admin(limited_cluster.bootstrap, limits="topic") as admin:
        # 8, 6 and 9 of 10
        await host(admin, 8, 6, 9)
        await admin.set_limits({"max.broker.partitions": "10"})
        with pytest.raises(PolicyViolationError) as caught:
            await admin.create_topic("two-partitions", 2, 3)
        assert caught.value.remaining == {0: 2, 1: 4, 2: 1}
        await admin.create_topic("first", 1, 3)
        await until(admin, [9, 7, 10])
        with pytest.raises(PolicyViolationError):
            await admin.create_topic("second", 1, 3)
        await admin.create_topic("second", 1, 2)
        await until(admin, [10, 8, 10])
        with pytest.raises(PolicyViolationError):
            await admin.add_partitions("second", 2)
        assert "two-partitions" not in await admin.list_topics()

        # 10, 20 and 30 with a limit of 40
        await host(admin, 10, 20, 30)
        await admin.set_limits({"max.broker.partitions": "40"})
        await admin.create_topic("wide", 30, 2)
        await until(admin, [40, 40, 40])
        wide = await described(admin, "wide", 30)
        assert Counter(b for p in wide.partitions for b in p.replicas) == {0: 30, 1: 20, 2: 10}

        # a limit for the cluster alone, and internal topics, which are free
        await host(admin, 2, 2, 1)
        await admin.set_limits({"max.partitions": "5"})
        with pytest.raises(PolicyViolationError, match=r"more than max\.partitions"):
            await admin.create_topic("one-more", 1, 1)
        await admin.create_topic("__consumer_offsets", 2, 1)
        await until(admin, [2, 2, 1])

        # a move that would take a broker above the limit while it lasts, and one that drains it
        await admin.set_limits({"max.broker.partitions": 1})
        base = [TopicPartition("base", n) for n in range(5)]
        with pytest.raises(PolicyViolationError, match="broker 0 would have 3"):
            await admin.alter_partition_reassignments({base[2]: [0], base[0]: [1]})
        await admin.set_limits({"max.broker.partitions": 3})
        assert await admin.alter_partition_reassignments({base[0]: [2]}) == {base[0]: None}
        await until(admin, [1, 2, 2])
        assert await admin.list_partition_reassignments() == {}


@pytest.mark.local_cluster
async def test_limits_are_seen_by_all_and_races_by_the_later_one(limited_cluster, tmp_path):
    async with (
        Admin(limited_cluster.bootstrap, limits="topic") as admin,
        Admin(limited_cluster.bootstrap, limits="topic") as other,
    ):
        await host(admin, 4, 4, 4)
        assert await admin.set_limits({"max.broker.partitions": "5"}) == Limits(5)
        assert await other.limits() == Limits(5)
        outcomes = await asyncio.gather(
            admin.create_topic("mine", 1, 3),
            other.create_topic("theirs", 1, 3),
            return_exceptions=True,
        )
        refused = [error for error in outcomes if isinstance(error, PolicyViolationError)]
        assert refused
        raced = [error for error in refused if isinstance(error, PartitionLimitRaceError)]
        async with asyncio.timeout(60):  # whoever is asked may not have heard of it yet
            while len({"mine", "theirs"} & set(await admin.list_topics())) != 1 + bool(raced):
                await asyncio.sleep(0.1)
            while True:
                shown = await run(limited_cluster, "limits", "check", "--json")
                if shown.exit_code == (3 if raced else 0):
                    break
        assert json.loads(shown.stdout)["limits"]["max.broker.partitions"] == 5

        file = FileLimits(tmp_path / "limits")
        async with Admin(limited_cluster.bootstrap, limits=file) as strict:
            await strict.set_limits({"max.partitions": "1"})
            with pytest.raises(PolicyViolationError):
                await strict.create_topic("strict", 1, 1)


@pytest.mark.local_cluster
async def test_cordoned_brokers_and_brokers_that_are_down_are_treated_as_the_controller_does(
    limited_cluster,
):
    """Placement by the controller, and by this client where brokers are nearly full."""
    cluster = limited_cluster
    cordon = {"cordoned.log.dirs": "*"}
    async with Admin(cluster.bootstrap, limits="topic") as admin, Admin(cluster.bootstrap) as free:
        await host(admin, 3, 3, 0)
        await admin.delete_topic(LIMITS_TOPIC)
        await admin.alter_configs(ConfigResource.broker(2), cordon)
        try:
            async with asyncio.timeout(60):  # until the controller knows of it
                while not await refused(free, "probe", 3):
                    await asyncio.sleep(0.1)
            await admin.set_limits({"max.broker.partitions": 100})
            assert len((await described(admin, LIMITS_TOPIC, 1)).partitions[0].replicas) == 2
            await admin.create_topic("by-the-controller", 3, 2)
            await admin.set_limits({"max.broker.partitions": 8})
            await admin.create_topic("by-the-client", 2, 2)
            for name, count in (("by-the-controller", 3), ("by-the-client", 2)):
                topic = await described(admin, name, count)
                assert all(set(p.replicas) == {0, 1} for p in topic.partitions)
            with pytest.raises(PolicyViolationError, match=r"cordoned: \[2\]"):
                await admin.create_topic("one", 1, 1)
            _, proposed = await admin.reassigner.generate(["by-the-client"])
            assert all(set(replicas) == {0, 1} for replicas in proposed.replicas.values())
        finally:
            await admin.alter_configs(ConfigResource.broker(2), delete=cordon)

        async with asyncio.timeout(60):
            while await refused(free, "probe", 3):
                await asyncio.sleep(0.1)
        await host(admin, 1, 1, 1)
        await admin.delete_topic(LIMITS_TOPIC)
        await cluster.terminate(1)
        try:
            async with asyncio.timeout(60):  # until every broker knows of it
                while any(1 in live_brokers(told) for told in await from_each_broker(admin)):
                    await asyncio.sleep(0.1)
            await admin.set_limits({"max.broker.partitions": 4})
            await admin.create_topic("by-the-controller", 2, 3)
            await admin.create_topic("by-the-client", 1, 3)
            for name, count in ((LIMITS_TOPIC, 1), ("by-the-controller", 2), ("by-the-client", 1)):
                topic = await described(admin, name, count)
                assert all(set(p.replicas) == {0, 1, 2} for p in topic.partitions)
                assert all(p.replicas[0] != 1 for p in topic.partitions)
            with pytest.raises(PolicyViolationError):
                await admin.create_topic("one", 1, 1)
        finally:
            await cluster.heal()


async def refused(admin: Admin, name: str, factor: int) -> bool:
    """Whether the cluster has too few brokers that can get replicas."""
    results = await admin.create_topics([NewTopic(name, 1, factor)], validate_only=True)
    return getattr(results[name], "name", "") == "INVALID_REPLICATION_FACTOR"


@pytest.mark.local_cluster
@runs("docs/how-to/admin.md")
async def test_the_program_of_the_page(limited_cluster, capsys, block):
    async with Admin(limited_cluster.bootstrap, limits="topic") as admin:
        await host(admin, 0, 0, 1)  # without topics of these names
        names = block.run(replaced={"localhost:9092": limited_cluster.bootstrap})
        await names["main"]()
        told = capsys.readouterr().out.splitlines()
        assert told[:2] == ["a created", "b created"]
        assert told[2] in ("0", "1", "2")
        assert told[3:] == ["()"]
        assert len((await described(admin, "flights", 6)).partitions) == 6
