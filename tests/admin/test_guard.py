"""Creating and extending within limits, against the fake cluster: KIP-578's rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from kafkaclient.admin import Admin, ConfigResource, FileLimits, Limits, NewTopic
from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.errors import (
    AdminTimeoutError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    KafkaError,
    PartitionLimitRaceError,
    PolicyViolationError,
    ProtocolError,
    TopicExistsError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster, Sasl
from kafkaclient.testing.fake.apis import APIS
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.admin.test_denied import hide


def host(fake, *counts: int, name: str = "base") -> None:
    """Give brokers 0, 1... so many partitions without followers."""
    rows = [(broker,) for broker, count in enumerate(counts) for _ in range(count)]
    fake.create_topic(name, assignments=rows)


async def hosted(admin) -> list[int]:
    return [broker.hosted for broker in (await admin.check_limits()).brokers]


async def limited(admin, per_broker=None, total=None) -> None:
    await admin.set_limits({"max.broker.partitions": per_broker, "max.partitions": total})


async def test_the_kips_first_example(admin, fake) -> None:
    host(fake, 8, 6, 9)
    await limited(admin, 10)
    with pytest.raises(PolicyViolationError) as caught:
        await admin.create_topic("both", 2, 3)
    assert caught.value.remaining == {0: 2, 1: 4, 2: 1}
    assert "broker 0: 2, broker 1: 4, broker 2: 1" in str(caught.value)
    assert await hosted(admin) == [8, 6, 9]
    await admin.create_topic("one", 1, 3)
    assert await hosted(admin) == [9, 7, 10]
    with pytest.raises(
        PolicyViolationError, match=r"max\.broker\.partitions=10, max\.partitions=off"
    ):
        await admin.create_topic("two", 1, 3)
    await admin.create_topic("two", 1, 2)
    assert await hosted(admin) == [10, 8, 10]


async def test_the_kips_second_example(admin, fake) -> None:
    host(fake, 10, 20, 30)
    await limited(admin, 40)
    await admin.create_topic("wide", 30, 2)
    assert await hosted(admin) == [40, 40, 40]
    assert (await admin.check_limits()).violations == ()


async def test_the_total_stands_by_itself(admin, fake) -> None:
    host(fake, 2, 2, 1)
    await limited(admin, 100, 5)
    with pytest.raises(
        PolicyViolationError, match=r"would have 6 partitions, more than max\.partitions"
    ):
        await admin.create_topic("t", 1, 1)
    with pytest.raises(PolicyViolationError):
        await admin.add_partitions("base", 6)
    await admin.set_limits({"max.partitions": "6"})
    await admin.add_partitions("base", 6)


async def test_added_partitions_keep_the_limits(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0, 1), (1, 0)])
    await limited(admin, 3)
    await admin.add_partitions("t", 4)
    rows = [set(p.replicas) for p in (await admin.describe_topic("t")).partitions][2:]
    assert Counter(b for row in rows for b in row)[2] == 2
    with pytest.raises(PolicyViolationError, match=r"adding partitions to topic 't' \(4 to 6\)"):
        await admin.add_partitions("t", 6)
    assert len((await admin.describe_topic("t")).partitions) == 4


async def test_replicas_given_by_hand_keep_the_limits(admin, fake) -> None:
    host(fake, 2, 0, 0)
    await limited(admin, 2)
    with pytest.raises(PolicyViolationError, match="broker 0 would have 3"):
        await admin.create_topic("t", replica_assignment=[(0, 1)])
    await admin.create_topic("t", replica_assignment=[(1, 2)])
    with pytest.raises(PolicyViolationError, match="broker 0 would have 3"):
        await admin.add_partitions("t", 2, replica_assignment=[(2, 0)])


async def test_the_clusters_own_numbers_are_limited_too(admin, fake) -> None:
    await limited(admin, None, 3)
    await admin.create_topic("t")  # two partitions
    with pytest.raises(PolicyViolationError, match=r"\(2 partitions, replication factor 1\)"):
        await admin.create_topic("u")


async def test_internal_topics_are_free(admin, fake) -> None:
    fake.create_topic("__consumer_offsets", 50, 3)
    host(fake, 1, 1, 1)
    await limited(admin, 1, 3)
    assert await hosted(admin) == [1, 1, 1]
    await admin.create_topic("__transaction_state", 10, 3)
    await admin.add_partitions("__consumer_offsets", 60)
    with pytest.raises(PolicyViolationError):
        await admin.create_topic("t", 1, 1)


async def test_a_broker_above_the_limit_keeps_what_it_has(admin, fake) -> None:
    host(fake, 9, 0, 0)
    await limited(admin, 4)
    assert (await admin.check_limits()).violations == ("broker 0 has 9 of max.broker.partitions=4",)
    await admin.create_topic("t", 4, 2)
    assert await hosted(admin) == [9, 4, 4]


def assigned(fake, name: str) -> list[list[int]]:
    return [partition.replicas for partition in inspect(fake).topics[name].partitions]


def explicit(fake) -> list[bool]:
    """Of each topic in a request to create it: whether its replicas were explicit."""
    sent = [r.message.topics for r in fake.requests if r.api_key == ApiKey.CREATE_TOPICS]
    return [bool(topic.assignments) for topics in sent for topic in topics]


async def test_far_from_the_limit_the_controller_places(admin, fake) -> None:
    host(fake, 1, 1, 1)
    await limited(admin, 7)
    fake.requests.clear()
    await admin.create_topics([NewTopic("a", 2, 3), NewTopic("b", 2, 3)])
    await admin.add_partitions("a", 3)
    assert explicit(fake) == [False, False]
    await admin.create_topic("c", 1, 1)
    await admin.create_topic("d", 2, 1)  # the first that may not fit everywhere
    assert explicit(fake) == [False, False, False, True]


async def test_a_limit_of_the_total_alone_leaves_the_placement_to_the_controller(
    admin, fake
) -> None:
    host(fake, 90, 0, 0)
    await limited(admin, None, 99)
    fake.requests.clear()
    fake.cordon(1)
    await admin.create_topic("t", 3, 2)
    await admin.add_partitions("t", 4)
    assert explicit(fake) == [False]
    assert all(set(row) == {0, 2} for row in assigned(fake, "t"))
    assert ApiKey.DESCRIBE_LOG_DIRS not in {request.api_key for request in fake.requests}


@pytest.mark.parametrize("limit", [4, 100], ids=["explicit", "by the controller"])
async def test_a_broker_that_is_down_gets_replicas_only_if_the_others_are_too_few(
    admin, fake, limit
) -> None:
    host(fake, 1, 1, 1)
    await limited(admin, limit)
    fake.stop_broker(0)
    await admin.create_topic("two", 2, 2)
    await admin.create_topic("three", 1, 3)  # as a rolling restart of three brokers may do
    assert all(set(row) == {1, 2} for row in assigned(fake, "two"))
    assert [sorted(row) for row in assigned(fake, "three")] == [[0, 1, 2]]
    assert assigned(fake, "three")[0][0] != 0
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        await admin.create_topic("four", 1, 4)


async def test_cordoned_brokers_get_no_new_replicas(admin, fake) -> None:
    host(fake, 5, 5, 0)
    await limited(admin, 8)
    fake.cordon(2)
    await admin.create_topic("t", 3, 2)
    await admin.delete_topic("t")
    await admin.create_topic("t", 2, 2)
    await admin.add_partitions("t", 3)
    assert all(set(row) == {0, 1} for row in assigned(fake, "t"))
    with pytest.raises(PolicyViolationError, match=r"\(cordoned: \[2\]\)"):
        await admin.create_topic("u", 1, 1)
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        await admin.create_topic("u", 1, 3)
    fake.cordon(2, cordoned=False)
    await admin.create_topic("u", 3, 1)


async def test_a_broker_that_does_not_say_whether_it_is_cordoned(admin, fake, caplog) -> None:
    host(fake, 5, 5, 5)
    await limited(admin, 6)
    fake.control(ApiKey.DESCRIBE_LOG_DIRS, 31, broker=0)  # no right to Describe the cluster
    fake.set_versions(ApiKey.DESCRIBE_LOG_DIRS, 1, 4)
    await admin.create_topic("t", 1, 3)
    assert sorted(assigned(fake, "t")[0]) == [0, 1, 2]


async def test_without_limits_a_topic_takes_the_requests_of_javas_client(new_admin, fake) -> None:
    async with new_admin(limits=None) as free:
        fake.requests.clear()
        await free.create_topic("t", 2, 1)
        await free.add_partitions("t", 3)
        with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
            await free.add_partitions("t", 0)
        await free.add_partitions("t", 4, validate_only=True)
        kinds = [r.api_key for r in fake.requests if r.api_key != ApiKey.API_VERSIONS]
        assert kinds == [ApiKey.CREATE_TOPICS, *[ApiKey.CREATE_PARTITIONS] * 3]
        await free.add_partitions("t", 5_001)
    assert len(assigned(fake, "t")) == 5_001


def test_limits_are_enforced_only_on_request(fake) -> None:
    assert Admin(fake.bootstrap)._limits is None


async def test_a_topic_that_is_given_twice_is_refused(admin, fake) -> None:
    with pytest.raises(ConfigError, match="creating topics: a given twice"):
        await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("a", 2, 1)])
    assert await admin.list_topics() == []


async def test_of_several_topics_the_first_get_the_room(admin, fake) -> None:
    await limited(admin, 2)
    results = await admin.create_topics(
        [NewTopic("a", 1, 3), NewTopic("b", 2, 3), NewTopic("c", 1, 3), NewTopic("b@d", -1, -1)]
    )
    assert results["a"] is results["c"] is None
    assert isinstance(results["b"], PolicyViolationError)
    assert results["b@d"].code == 17
    assert await admin.list_topics() == [LIMITS_TOPIC, "a", "c"]


async def test_what_exists_is_told_as_such(admin, fake) -> None:
    await limited(admin, 100)
    await admin.create_topic("t", 1, 1)
    for validate_only in (True, False):
        with pytest.raises(TopicExistsError):
            await admin.create_topic("t", 1, 1, validate_only=validate_only)
    await limited(admin, 0, 0)
    with pytest.raises(TopicExistsError):  # what exists needs no room
        await admin.create_topic("t", 1, 1)


async def test_a_broker_that_has_not_heard_of_a_deletion_is_not_believed(admin, fake) -> None:
    host(fake, 1)
    stale: list[dict] = []

    def remember(request) -> dict:
        fields = APIS[ApiKey.METADATA].answer(inspect(fake), request)
        stale.append(fields)
        return stale[0]

    fake.control(ApiKey.METADATA, remember, keep=True)
    await admin.list_topics()
    fake.delete_topic("base")
    await admin.create_topic("base", 1, 1)
    assert len(inspect(fake).topics["base"].partitions) == 1


async def test_to_validate_within_limits_changes_nothing(admin, fake) -> None:
    await limited(admin, 1)
    await admin.create_topic("t", 1, 3, validate_only=True)
    with pytest.raises(PolicyViolationError):
        await admin.create_topic("t", 2, 3, validate_only=True)
    assert await admin.list_topics() == [LIMITS_TOPIC]


async def test_racks_are_spread_within_limits() -> None:
    fake = FakeCluster(4, racks=["a", "a", "b", "b"])
    fake.create_topic("base", assignments=[(0,), (0,), (2,)])
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(3), limits=_Fixed(Limits(4))) as admin:
        await admin.create_topic("t", 4, 2)
        for partition in (await admin.describe_topic("t")).partitions:
            assert sum(broker in (0, 1) for broker in partition.replicas) == 1


class _Fixed:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def read(self) -> Limits:
        return self._limits


# --- races --------------------------------------------------------------------------------------


async def test_of_two_that_take_the_last_place_the_later_one_is_told(admin, fake) -> None:
    host(fake, 9, 9, 9)
    await limited(admin, 10)

    def somebody_is_first(_request) -> None:
        if "theirs" not in inspect(fake).topics:
            fake.create_topic("theirs", assignments=[(0, 1, 2)])

    fake.control(ApiKey.CREATE_TOPICS, somebody_is_first)
    with pytest.raises(PartitionLimitRaceError) as caught:
        await admin.create_topic("ours", 1, 3)
    assert "creating topic 'ours'" in str(caught.value)
    assert "broker 0 has 11 replicas" in str(caught.value)


async def test_two_admins_at_once_cannot_both_be_content(admin, fake, new_admin) -> None:
    host(fake, 9, 9, 9)
    await limited(admin, 10)
    async with new_admin() as other:
        outcomes = await asyncio.gather(
            admin.create_topic("a", 1, 3), other.create_topic("b", 1, 3), return_exceptions=True
        )
    assert any(isinstance(outcome, PolicyViolationError) for outcome in outcomes)
    report = await admin.check_limits()
    raced = [o for o in outcomes if isinstance(o, PartitionLimitRaceError)]
    assert bool(report.violations) is bool(raced)


@virtual_time
async def test_a_topic_that_disappears_after_its_creation_is_created(fake_virtual, caplog) -> None:
    fake, admin = fake_virtual
    async with admin:
        await limited(admin, 10)

        def deleted(request) -> None:
            inspect(fake).topics.pop("gone", None)

        fake.control(ApiKey.METADATA, deleted, keep=True)
        began = asyncio.get_running_loop().time()
        results = await admin.create_topics([NewTopic("gone", 1, 1), NewTopic("full", 99, 1)])
        assert asyncio.get_running_loop().time() - began < 10
    assert results["gone"] is None
    assert isinstance(results["full"], PolicyViolationError)
    assert "creating topic 'gone'" in caplog.text
    assert "the topic is not in metadata" in caplog.text


@virtual_time
async def test_who_may_create_but_not_describe_waits_for_nothing(fake_virtual, caplog) -> None:
    fake, admin = fake_virtual
    async with admin:
        await limited(admin, 10)
        began = asyncio.get_running_loop().time()
        hide(fake, "secret")
        await admin.create_topic("secret", 1, 1)
        assert asyncio.get_running_loop().time() - began < 1
    assert "secret" in inspect(fake).topics
    assert "may not Describe it" in caplog.text


# --- where limits are kept ----------------------------------------------------------------------


async def test_every_client_sees_limits_kept_in_the_cluster(admin, fake, new_admin) -> None:
    assert await admin.limits() == Limits()
    assert await admin.list_topics() == []
    now = await admin.set_limits({"max.broker.partitions": "7", "max.partitions": "20"})
    assert now == Limits(7, 20)
    async with new_admin() as other:
        assert await other.limits() == Limits(7, 20)
        assert await other.set_limits({"max.partitions": "off"}) == Limits(7)
    assert await admin.limits() == Limits(7)
    topic = await admin.describe_topic(LIMITS_TOPIC)
    assert (len(topic.partitions), topic.replication_factor) == (1, 3)
    assert await hosted(admin) == [0, 0, 0]


async def test_nothing_is_written_for_what_is_no_limit(admin, fake) -> None:
    with pytest.raises(ConfigError):
        await admin.set_limits({"max.partitions": "3", "maximum": "4"})
    assert await admin.list_topics() == []


async def test_a_later_record_of_somebody_else_holds(admin, fake) -> None:
    await limited(admin, 5)

    def overtaken(request) -> None:
        partition = inspect(fake).partition(LIMITS_TOPIC, 0)
        _, batch = partition.log.batches[0]
        partition.log.batches.append(
            (partition.log.batches[0][0]._replace(base_offset=partition.log.end_offset), batch)
        )
        partition.log.end_offset += 1

    fake.control(ApiKey.LIST_OFFSETS, overtaken)
    with pytest.raises(KafkaError, match="another client set a different value"):
        await admin.set_limits({"max.broker.partitions": "9"})


@virtual_time
async def test_limits_that_cannot_be_read_let_nothing_through(fake_virtual) -> None:
    fake, admin = fake_virtual
    async with admin:
        await limited(admin, 5)
        inspect(fake).topics[LIMITS_TOPIC].partitions[0].leader = -1
        with pytest.raises(AdminTimeoutError, match="LEADER_NOT_AVAILABLE"):
            await admin.create_topic("t", 1, 1)
    assert "t" not in inspect(fake).topics


async def test_records_of_another_kind_are_not_taken_for_limits(admin, fake) -> None:
    await limited(admin, 5)
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        await producer.send_and_wait(LIMITS_TOPIC, b"1", b"max.topics", partition=0)
    with pytest.raises(ProtocolError, match=r"max\.topics"):
        await admin.create_topic("t", 1, 1)


async def test_limits_in_a_file(fake, new_admin, tmp_path) -> None:
    path = tmp_path / "limits.properties"
    async with new_admin(limits=FileLimits(path)) as admin:
        with pytest.raises(
            ConfigError, match=r"cannot read the partition limits in .*limits\.properties"
        ):
            await admin.create_topic("t", 1, 1)
        assert await admin.set_limits({"max.broker.partitions": "2"}) == Limits(2)
        assert await admin.set_limits({"max.partitions": "9"}) == Limits(2, 9)
        await admin.create_topic("t", 2, 3)
        with pytest.raises(PolicyViolationError):
            await admin.create_topic("u", 1, 1)
        assert await admin.set_limits({"max.broker.partitions": None}) == Limits(None, 9)
        path.write_text("max.partition=4\n")
        with pytest.raises(ConfigError, match=r"limits\.properties: unknown partition limit"):
            await admin.limits()
        assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert LIMITS_TOPIC not in inspect(fake).topics


async def test_limits_can_be_left_aside(admin, new_admin) -> None:
    await limited(admin, 1, 1)
    async with new_admin(limits=None) as free:
        assert await free.limits() == Limits()
        await free.create_topic("t", 5, 3)
        with pytest.raises(KafkaError, match="limits=None"):
            await free.set_limits({"max.partitions": "3"})


async def test_limits_in_the_brokers_configuration_are_not_read(admin, fake) -> None:
    """Brokers do not return these values, so each creation would pay for a useless request."""
    await admin.alter_configs(ConfigResource.broker_defaults(), {"max.broker.partitions": "1"})
    await limited(admin, 5)
    await admin.create_topic("t", 2, 2)
    assert await admin.limits() == Limits(5)
    asked = [r.message for r in fake.requests if r.api_key == ApiKey.DESCRIBE_CONFIGS]
    assert asked
    assert {each.resource_type for message in asked for each in message.resources} == {2}


async def test_who_may_not_see_configurations_has_the_topics_limits(admin, fake) -> None:
    await limited(admin, 5)
    fake.control(ApiKey.DESCRIBE_CONFIGS, 31, keep=True)
    assert await admin.limits() == Limits(5)


async def test_limits_are_kept_by_the_same_credentials() -> None:
    """The client has a producer write the limits, which needs all that the client needs."""

    def refused(_mechanism: str, message: bytes) -> str | None:
        return None if message == b"\0admin\0secret" else "no"

    fake = FakeCluster(2, sasl=Sasl(refusal=refused))
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="secret";',
        "client.id": "boss",
        "linger.ms": "77",
        "request.timeout.ms": "5000",
    }
    servers = {"bootstrap.servers": fake.bootstrap}
    async with Admin(servers | options, limits="topic", dialer=fake) as admin:
        assert await admin.set_limits({"max.partitions": 3}) == Limits(None, 3)
        for_producer = admin.config.for_producer()
    assert {request.frame.client_id for request in fake.requests} == {"boss"}
    assert "linger_ms" not in for_producer
    assert for_producer["request_timeout_ms"] == 5000
    assert "secret" not in repr(admin)
    assert "secret" not in repr(admin.config)
    options["sasl.jaas.config"] = options["sasl.jaas.config"].replace("secret", "wrong")
    with pytest.raises(AuthenticationError):
        await Admin({"bootstrap.servers": fake.bootstrap, **options}, dialer=fake).start()
