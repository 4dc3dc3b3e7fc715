"""Several operators on real brokers: moves at the same time, and principals that lack ACLs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from integration.shell import Ended, kafkaclient
from kafkaclient.admin import Admin, ConfigResource
from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.admin.reassign.outcome import (
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    PartitionLimitRaceError,
    PolicyViolationError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing import ClusterSecurity, LocalCluster, SecureListener
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import DescribeLogDirsCall
from tests.cli.test_connection import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Run = Callable[..., Awaitable[Ended]]

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

USERS = {"alice": "alice-secret", "admin": "admin-secret"}
MB = 1_000_000
LITERAL, ALLOW = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
CLUSTER, TOPIC = ResourceType.BROKER, ResourceType.TOPIC


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    listener = SecureListener("SASL_PLAINTEXT", "SASL_PLAINTEXT")
    security = ClusterSecurity(users=USERS, listeners=(listener,), acls=True)
    brokers = LocalCluster(3, security=security)
    asyncio.run(brokers.start())
    try:
        yield brokers
    finally:
        asyncio.run(brokers.stop())


def operator(cluster: LocalCluster, **options: Any) -> Admin:
    return Admin(cluster.bootstrap, **options)


def as_alice(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.secured_bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": USERS["alice"],
    }


def allow(cluster: LocalCluster, *rules: tuple[ResourceType, str, AclOperation]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    bindings = [
        AclBinding(kind, name, LITERAL, "User:alice", "*", operation, ALLOW)
        for kind, name, operation in rules
    ]
    for done in admin.create_acls(bindings).values():
        done.result(30)


async def heeded_everywhere(cluster: LocalCluster, alice: Admin) -> None:
    """Wait until each broker lets alice describe its log directories: then it knows all ACLs up to
    that of Describe on the cluster."""
    call = DescribeLogDirsCall({})
    async with alice._operation("describing log directories", None) as running:
        for node in cluster.brokers:
            while (await running.session.call(call, node)).error_code:
                await asyncio.sleep(0.1)


async def fill(cluster: LocalCluster, topic: str, partitions: int, megabytes: int) -> None:
    async with Producer(cluster.bootstrap, linger_ms=20) as producer:
        for n in range(megabytes * 10):
            await producer.send(topic, bytes(100_000), partition=n % partitions)
        await producer.flush()


async def set_by_others(admin: Admin, topic: str) -> dict[str, Any]:
    """Everything about throttles that is set in the cluster, but for what expires."""
    told = await admin.replication_quotas.describe()
    everywhere = await admin.describe_configs(ConfigResource.broker_defaults())
    return {
        "topics": {name: (t.leader.value, t.follower.value) for name, t in told.topics.items()},
        "brokers": {n: (dict(now.rates), now.marks) for n, now in told.brokers.items()},
        "announced": [key for key in everywhere if key.startswith("kafkaclient.")],
    }


async def watch(admin: Admin, found: list[str], looks: list[int]) -> None:
    """Every ongoing move is throttled; of a replica that is unthrottled shortly before it is in
    sync the mark is left. A broker may not know of a throttle yet when the controller lists the
    move, so only what lasts for as long as three looks at the same move is found."""
    since: Counter[tuple[Any, ...]] = Counter()
    while True:
        first = await admin.list_partition_reassignments()
        told = await admin.replication_quotas.describe()
        last = await admin.list_partition_reassignments()
        missing = []
        for partition, move in first.items():
            if last.get(partition) != move:
                continue
            looks.append(len(first))
            lists = told.topics.get(partition.topic)
            for node in move.adding:
                listed = () if lists is None else (lists.follower.ours or ())
                if f"{partition.partition}:{node}" not in listed:
                    missing.append((partition, node, "is not throttled"))
                if not told.brokers[node].marks:
                    missing.append((partition, node, "has no quota"))
        since = Counter({what: since[what] + 1 for what in missing})
        found += [f"{p}: broker {node} {what}" for (p, node, what), n in since.items() if n >= 3]


@pytest.mark.full
async def test_operators_at_the_same_time(cluster) -> None:
    """Two move partitions of one topic, again and again, while cron verifies and clears."""
    topic, partitions = "together", 6
    async with operator(cluster) as one, operator(cluster) as two, operator(cluster) as cron:
        await one.create_topic(topic, replica_assignment=[(0, 1)] * partitions)
        await fill(cluster, topic, partitions, 12)
        await one.alter_configs(
            ConfigResource.topic(topic), {LEADER_REPLICAS: "0:0,9:9", FOLLOWER_REPLICAS: "9:9"}
        )
        await one.alter_configs(ConfigResource.broker(0), {LEADER_RATE: str(500 * MB)})
        await asyncio.sleep(1)
        before = await set_by_others(one, topic)
        found: list[str] = []
        looks: list[int] = []
        watching = asyncio.create_task(watch(cron, found, looks))
        over = asyncio.Event()

        async def move(admin: Admin, own: list[int], quota: int) -> None:
            there = True
            for _ in range(6):
                target = (0, 2) if there else (0, 1)
                plan = {TopicPartition(topic, p): target for p in own}
                begun = await admin.reassigner.begin(plan, quota, additional=True)
                assert not begun.failed
                if there:
                    async for _ in admin.reassigner.progress(begun.moves, every_s=0.3):
                        pass
                else:
                    await asyncio.sleep(0.5)
                    assert await admin.reassigner.undo(begun) == {}
                lifted = await admin.reassigner.finish(begun)
                assert not lifted.failures
                there = not there

        async def tidy() -> None:
            while not over.is_set():
                plan = {TopicPartition(topic, 0): (0, 1)}
                assert not (await cron.reassigner.verify(plan)).lifted.failures
                assert not (await cron.replication_quotas.clear()).failures
                await asyncio.sleep(0.05)

        tidying = asyncio.create_task(tidy())
        await asyncio.gather(move(one, [0, 1, 2], 3 * MB), move(two, [3, 4, 5], 2 * MB))
        over.set()
        await tidying
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert not found, found[:3]
        assert len(looks) > 10
        async with asyncio.timeout(15):
            while await set_by_others(one, topic) != before:
                await cron.replication_quotas.clear()
                await asyncio.sleep(0.2)
        await one.alter_configs(ConfigResource.broker(0), delete=[LEADER_RATE])


@pytest.mark.full
async def test_of_two_plans_at_the_same_time_one_begins(cluster) -> None:
    """Neither allows other moves, so the later finds the earlier one's."""
    topic, partition = "contended", TopicPartition("contended", 0)
    async with operator(cluster) as one, operator(cluster) as two:
        await one.create_topic(topic, replica_assignment=[(0,)])
        await fill(cluster, topic, 1, 20)
        outcomes = await asyncio.gather(
            one.reassigner.begin({partition: (1,)}, 100_000),
            two.reassigner.begin({partition: (2,)}, 100_000),
            return_exceptions=True,
        )
        (error,) = [each for each in outcomes if isinstance(each, BaseException)]
        assert isinstance(error, BrokerError)
        assert "already in progress" in str(error)
        assert set(await one.list_partition_reassignments()) == {partition}
        await one.reassigner.cancel()
        await one.delete_topics([topic])


async def test_a_limit_race_of_two_moves(cluster) -> None:
    topic = "raced"
    async with operator(cluster) as admin:
        await admin.create_topic(topic, replica_assignment=[(0,), (0,)])
    async with operator(cluster, limits="topic") as one, operator(cluster, limits="topic") as two:
        used = {each.node_id: each.hosted for each in (await one.check_limits()).brokers}
        await one.set_limits({"max.broker.partitions": used[2] + 1})
        outcomes = await asyncio.gather(
            one.reassigner.begin({TopicPartition(topic, 0): (2,)}, 10 * MB, additional=True),
            two.reassigner.begin({TopicPartition(topic, 1): (2,)}, 10 * MB, additional=True),
            return_exceptions=True,
        )
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        assert errors
        assert all(
            isinstance(each, PartitionLimitRaceError | PolicyViolationError) for each in errors
        )
        async with asyncio.timeout(60):
            while await one.list_partition_reassignments():
                await asyncio.sleep(0.1)
            wanted = [(0,) if isinstance(each, Exception) else (2,) for each in outcomes]
            while [p.replicas for p in (await one.describe_topic(topic)).partitions] != wanted:
                await asyncio.sleep(0.1)  # a broker may not know the last change yet
        await one.replication_quotas.clear()
        await one.set_limits({"max.broker.partitions": None})


async def test_a_principal_that_cannot_see_the_limits(cluster, tmp_path) -> None:
    async with operator(cluster, limits="topic") as admin:
        await admin.set_limits({"max.partitions": 1})
    try:
        allow(
            cluster,
            (CLUSTER, "kafka-cluster", AclOperation.CREATE),
            (CLUSTER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
        )
        async with Admin(**as_alice(cluster), limits="topic") as alice:
            for call in (alice.create_topic("hers", 5, 3), alice.check_limits(), alice.limits()):
                with pytest.raises(AuthorizationError, match=f"--topic {LIMITS_TOPIC}"):
                    await call
        file = tmp_path / "alice.properties"
        file.write_text(
            "".join(
                f"{key.replace('_', '.')}={value}\n" for key, value in as_alice(cluster).items()
            )
        )
        ended = await kafkaclient("limits", "check", "--command-config", str(file))
        assert ended.exit_code == 1
        assert "may not Describe on the topic" in " ".join(ended.stderr.split())
        allow(cluster, (TOPIC, LIMITS_TOPIC, AclOperation.READ))
        async with Admin(**as_alice(cluster), limits="topic") as alice:
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert (await alice.limits()).max_partitions == 1
                        with pytest.raises(PolicyViolationError):
                            await alice.create_topic("hers", 5, 3)
                        break
                    except AuthorizationError:  # of a broker that does not heed the ACL yet
                        await asyncio.sleep(0.2)
        async with operator(cluster) as admin:
            assert "hers" not in await admin.list_topics()
    finally:
        async with operator(cluster, limits="topic") as admin:
            await admin.set_limits({"max.partitions": None})


async def test_a_principal_that_cannot_see_a_topic_leaves_its_throttle(cluster) -> None:
    """It may change everything about brokers, and sees that something moves."""
    topic, partition = "hidden", TopicPartition("hidden", 0)
    async with operator(cluster) as admin:
        await admin.create_topic(topic, replica_assignment=[(0,)])
        await fill(cluster, topic, 1, 20)
        for operation in (
            AclOperation.ALTER,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.DESCRIBE,  # the last one, for which `heeded_everywhere` waits
        ):
            allow(cluster, (CLUSTER, "kafka-cluster", operation))
        await admin.reassigner.begin({partition: (1,)}, 100_000)
        async with Admin(**as_alice(cluster)) as alice:
            await heeded_everywhere(cluster, alice)
            assert await alice.list_partition_reassignments()
            for _ in range(3):
                lifted = await alice.replication_quotas.clear()
                assert lifted.brokers == ()
                assert lifted.needed_brokers == (0, 1)
            with pytest.raises(AuthorizationError, match="may not Describe on the topic 'hidden'"):
                await alice.reassigner.verify({partition: (1,)})
            allow(cluster, (TOPIC, topic, AclOperation.DESCRIBE))
            async with asyncio.timeout(60):
                while topic not in await alice.list_topics():
                    await asyncio.sleep(0.2)
            async with asyncio.timeout(60):  # brokers heed an ACL one after the other
                while not (lifted := await alice.replication_quotas.clear()).failures:
                    assert lifted.brokers == ()
            assert lifted.brokers == ()
            assert "may not DescribeConfigs" in str(lifted.failures[f"topic {topic!r}"])
        told = await admin.replication_quotas.describe()
        assert topic in told.topics
        assert all(told.brokers[node].marks for node in (0, 1))
        await admin.reassigner.cancel()
        async with asyncio.timeout(60):
            while topic in (await admin.replication_quotas.describe()).topics:
                await asyncio.sleep(0.2)


@pytest.fixture(scope="module")
def by_alice(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command as alice."""
    file = tmp_path_factory.mktemp("alice") / "alice.properties"
    options = as_alice(cluster)
    del options["bootstrap_servers"]
    file.write_text("".join(f"{name.replace('_', '.')}={v}\n" for name, v in options.items()))
    place = ("-b", cluster.secured_bootstrap("SASL_PLAINTEXT"), "--command-config", str(file))

    async def run(*words: str) -> Ended:
        async with asyncio.timeout(60):
            return await kafkaclient(*words, *place)

    return run


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "perf-test"])
async def test_a_command_without_rights_names_what_to_grant(
    by_alice: Run, name: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [0]}]})
    )
    words = [str(plan) if word == "PLAN" else word for word in COMMANDS[name]]
    ended = await by_alice(*name.split(), *words)
    if name in {"topics list", "topics describe", "groups list", "cluster describe"}:
        assert ended.exit_code == 0, ended.stderr  # what it may see
        return
    assert ended.exit_code == 1, ended.stderr
    assert "kafka-acls --add" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Request Request(" not in ended.stderr


@pytest.mark.full
async def test_with_some_of_the_rights_nothing_is_half_done(
    cluster: LocalCluster, by_alice: Run
) -> None:
    """The group exists, and topic "mine" has three records."""
    name, group = "mine", "mine-g"
    async with operator(cluster) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topic(name, 1, 1)
        await (await producer.send_many(name, [b"1", b"2", b"3"]))
        await admin.alter_offsets(group, {TopicPartition(name, 0): 2})
        allow(cluster, (TOPIC, name, AclOperation.DESCRIBE))
        allow(cluster, (ResourceType.GROUP, group, AclOperation.DESCRIBE))
        for words, told in (
            (["produce", name, "x"], "0 records written to mine"),
            (["produce", name, "x", "--acks", "1"], "0 records written to mine"),
            (["consume", name, "-e"], "0 records of mine"),
            (["consume", name, "-e", "-g", group], "0 records of mine"),
            (["topics", "delete", name, "--yes"], "Delete"),
            (["topics", "delete-records", name, "--before", "2", "--yes"], "Delete"),
            (["topics", "add-partitions", name, "-p", "3", "--ignore-limits"], "Alter"),
            (["groups", "reset-offsets", group, "--to", "0", "--execute"], "Read"),
            (["groups", "delete", group, "--yes"], "Delete"),
            (["groups", "delete-offsets", group, "-t", name, "--yes"], "Delete"),
        ):
            ended = await by_alice(*words)
            assert ended.exit_code == 1, (words, ended)
            assert told in ended.stderr, (words, ended)
            assert "kafka-acls --add" in ended.stderr, (words, ended)
        assert (await by_alice("topics", "offsets", name)).exit_code == 0
        assert await admin.committed_offsets(group) == {TopicPartition(name, 0): 2}
        assert await admin.end_offsets([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 3}
