"""The admin client against the fake cluster, without limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkaclient.admin import Admin, ConfigResource, ConfigSource, NewTopic
from kafkaclient.admin.session import AdminSession
from kafkaclient.errors import (
    AdminStateError,
    AdminTimeoutError,
    AuthorizationError,
    BootstrapError,
    BrokerError,
    ConfigError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, CLOSE_ANSWER, DROP
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time

if TYPE_CHECKING:
    from kafkaclient.wire.api import MetadataResult

NOT_CONTROLLER = 41


def replicas(described) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in described.partitions]


async def test_a_topic_from_its_creation_to_its_end(admin) -> None:
    await admin.create_topic("t", 3, 2, configs={"retention.ms": "5000"})
    told = await admin.describe_topic("t")
    assert (told.name, told.internal, told.replication_factor) == ("t", False, 2)
    assert [p.partition for p in told.partitions] == [0, 1, 2]
    assert told.under_replicated == told.unavailable == ()
    await admin.add_partitions("t", 5)
    assert len((await admin.describe_topic("t")).partitions) == 5
    assert await admin.list_topics() == ["t"]
    await admin.delete_topic("t")
    assert await admin.list_topics() == []


async def test_another_event_loop_can_neither_use_nor_close_the_client(admin) -> None:
    for call in (admin.list_topics, admin.close):
        with pytest.raises(AdminStateError, match="the admin client belongs to the event loop"):
            await asyncio.to_thread(asyncio.run, call())
    assert await admin.list_topics() == []


async def test_numbers_left_out_are_the_clusters(admin) -> None:
    await admin.create_topic("t")
    told = await admin.describe_topic("t")
    assert (len(told.partitions), told.replication_factor) == (2, 1)


async def test_replicas_as_given(admin) -> None:
    await admin.create_topic("t", replica_assignment=[(2, 0), (1, 2)])
    await admin.add_partitions("t", 3, replica_assignment=[(0, 1)])
    assert replicas(await admin.describe_topic("t")) == [(2, 0), (1, 2), (0, 1)]


async def test_to_validate_changes_nothing(admin) -> None:
    await admin.create_topic("t", 2, validate_only=True)
    assert await admin.list_topics() == []
    await admin.create_topic("t", 2)
    with pytest.raises(TopicExistsError):
        await admin.create_topic("t", 2, validate_only=True)  # brokers would say nothing
    await admin.add_partitions("t", 4, validate_only=True)
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        await admin.add_partitions("t", 2, validate_only=True)
    assert len((await admin.describe_topic("t")).partitions) == 2


async def test_each_topic_has_its_own_outcome(admin) -> None:
    await admin.create_topic("there")
    results = await admin.create_topics(
        [
            NewTopic("new", 1, 1),
            NewTopic("there", 1, 1),
            NewTopic("b@d", 1, 1),
            NewTopic("wide", 1, 9),
        ]
    )
    assert results["new"] is None
    assert isinstance(results["there"], TopicExistsError)
    assert [results[name].code for name in ("b@d", "wide")] == [17, 38]
    deleted = await admin.delete_topics(["new", "never"])
    assert deleted["new"] is None
    assert isinstance(deleted["never"], UnknownTopicError)
    assert "there is no such topic" in str(deleted["never"])


async def test_no_topic_is_created_by_asking_for_it(admin, fake) -> None:
    with pytest.raises(UnknownTopicError, match="describing topic 'nothing'"):
        await admin.describe_topic("nothing")
    with pytest.raises(UnknownTopicError):
        await admin.add_partitions("nothing", 3)
    assert await admin.limits() is not None
    assert await admin.list_topics() == []
    asked = fake.requests_of(ApiKey.METADATA)
    assert asked
    assert not any(request.message.allow_auto_topic_creation for request in asked)


async def test_internal_topics_can_be_left_out(admin, fake) -> None:
    fake.create_topic("__consumer_offsets", 1)
    await admin.create_topic("t")
    assert await admin.list_topics() == ["__consumer_offsets", "t"]
    assert await admin.list_topics(internal=False) == ["t"]


# --- what goes wrong ----------------------------------------------------------------------------


@in_virtual_time
async def test_another_controller_is_looked_for(fake, admin) -> None:
    fake.control(ApiKey.CREATE_TOPICS, NOT_CONTROLLER)
    fake.control(ApiKey.CREATE_TOPICS, 89)  # THROTTLING_QUOTA_EXCEEDED
    await admin.create_topic("t", 1)
    assert len(fake.requests_of(ApiKey.CREATE_TOPICS)) == 3
    assert await admin.list_topics() == ["t"]


@in_virtual_time
async def test_an_answer_that_is_lost_may_have_been_a_success(fake, admin) -> None:
    fake.control(ApiKey.CREATE_TOPICS, CLOSE_ANSWER)
    with pytest.raises(TopicExistsError, match="an earlier attempt"):
        await admin.create_topic("t", 1)
    fake.control(ApiKey.CREATE_PARTITIONS, CLOSE_ANSWER)
    await admin.add_partitions("t", 3)
    fake.control(ApiKey.DELETE_TOPICS, CLOSE_ANSWER)
    await admin.delete_topic("t")
    assert await admin.list_topics() == []


@in_virtual_time
async def test_a_lost_request_is_made_again(fake, admin) -> None:
    fake.control(ApiKey.CREATE_TOPICS, CLOSE)
    await admin.create_topic("t", 1)
    fake.control(ApiKey.DELETE_TOPICS, CLOSE)
    with pytest.raises(UnknownTopicError):  # it was never there, whatever was lost
        await admin.delete_topic("never")


@in_virtual_time
async def test_every_call_ends_on_time(fake, admin) -> None:
    loop = asyncio.get_running_loop()
    fake.control(ApiKey.CREATE_TOPICS, NOT_CONTROLLER, keep=True)
    began = loop.time()
    with pytest.raises(AdminTimeoutError, match="NOT_CONTROLLER") as caught:
        await admin.create_topic("t", 1)
    assert loop.time() - began == pytest.approx(60, abs=0.1)
    assert "default.api.timeout.ms" in str(caught.value)
    assert caught.value.retriable
    for broker in range(3):
        fake.stall_broker(broker)
    for call in (
        admin.list_topics(timeout_s=2),
        admin.create_topic("t", timeout_s=2),
        admin.delete_topic("t", timeout_s=2),
        admin.add_partitions("t", 3, timeout_s=2),
        admin.describe_configs(ConfigResource.topic("t"), timeout_s=2),
        admin.alter_configs(ConfigResource.topic("t"), {"a": "b"}, timeout_s=2),
        admin.describe_cluster(timeout_s=2),
        admin.limits(timeout_s=2),
        admin.set_limits({"max.partitions": "3"}, timeout_s=2),
        admin.check_limits(timeout_s=2),
    ):
        began = loop.time()
        with pytest.raises(AdminTimeoutError, match="within 2 s"):
            await call
        assert loop.time() - began == pytest.approx(2, abs=0.1)


@in_virtual_time
async def test_a_time_out_names_the_cause_of_its_own_call(fake, admin) -> None:
    """One client runs several calls at the same time."""
    fake.control(ApiKey.CREATE_TOPICS, 41, keep=True)
    fake.control(ApiKey.OFFSET_COMMIT, 14, keep=True)
    created, committed = await asyncio.gather(
        admin.create_topic("t", 1, timeout_s=5),
        admin.alter_offsets("g", {TopicPartition("t", 0): 1}, timeout_s=5.01),
        return_exceptions=True,
    )
    assert "last cause: topic 't': NOT_CONTROLLER" in str(created)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(committed)
    for broker in range(3):
        fake.stall_broker(broker)
    with pytest.raises(AdminTimeoutError, match="no answer from any broker yet"):
        await admin.list_topics(timeout_s=1)


@in_virtual_time
async def test_a_broker_that_stands_still_does_not_stop_the_others(fake, admin) -> None:
    fake.control(ApiKey.METADATA, DROP)
    assert await admin.list_topics(timeout_s=10) == []


@virtual_time
async def test_a_cluster_that_cannot_be_reached(fake_virtual) -> None:
    fake, admin = fake_virtual
    for broker in range(3):
        fake.stop_broker(broker)
    with pytest.raises(BootstrapError, match=r"fake-0:9092.*within 10 s"):
        await admin.start()
    with pytest.raises(AdminStateError, match="not running"):
        await admin.list_topics()


@virtual_time
async def test_closing_ends_calls_under_way(fake_virtual) -> None:
    fake, admin = fake_virtual
    await admin.start()
    fake.control(ApiKey.METADATA, DROP, keep=True)
    call = asyncio.create_task(admin.list_topics())
    await asyncio.sleep(1)
    await admin.close()
    with pytest.raises(AdminStateError):
        await call


async def test_a_missing_permission_is_named(admin, fake) -> None:
    fake.control(ApiKey.CREATE_TOPICS, 29)
    with pytest.raises(AuthorizationError, match=r"may not Create.*--operation Create --topic t"):
        await admin.create_topic("t", 1)


async def test_many_partitions_are_added_in_steps(admin, fake) -> None:
    fake.create_topic("t", 1)
    await admin.add_partitions("t", 12_000)
    steps = [
        request.message.topics[0].count for request in fake.requests_of(ApiKey.CREATE_PARTITIONS)
    ]
    assert steps == [5001, 10_001, 12_000]


async def test_a_new_topic_that_only_the_controller_knows(admin, fake, monkeypatch) -> None:
    fake.create_topic("t", 1)
    real, told = AdminSession.metadata, 0

    async def late(session: AdminSession, topics: tuple[str, ...] | None) -> MetadataResult:
        nonlocal told
        told += 1
        result = await real(session, topics)
        return result if told > 3 else replace(result, topics=())

    monkeypatch.setattr(AdminSession, "metadata", late)
    await admin.add_partitions("t", 3)
    assert told > 3
    assert len((await admin.describe_topic("t")).partitions) == 3


async def test_an_unknown_error_does_not_say_that_nothing_was_done(admin, fake) -> None:
    fake.create_topic("t", 2)
    fake.control(ApiKey.CREATE_PARTITIONS, -1)
    with pytest.raises(BrokerError, match="the topic has 2 partitions now"):
        await admin.add_partitions("t", 4)

    def does_all_the_same(request) -> int:
        fake.add_partitions("t", 4)
        return -1

    fake.control(ApiKey.CREATE_PARTITIONS, does_all_the_same)
    await admin.add_partitions("t", 4)


# --- configurations -----------------------------------------------------------------------------


async def test_settings_of_a_topic(admin) -> None:
    await admin.create_topic("t", configs={"retention.ms": "5"})
    topic = ConfigResource.topic("t")
    told = await admin.describe_configs(topic)
    assert told["retention.ms"].value == "5"
    assert told["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert told["cleanup.policy"].source is ConfigSource.DEFAULT_CONFIG
    await admin.alter_configs(topic, {"cleanup.policy": "compact"}, delete=["retention.ms"])
    told = await admin.describe_configs(topic, ["cleanup.policy", "retention.ms"])
    assert {name: entry.value for name, entry in told.items()} == {
        "cleanup.policy": "compact",
        "retention.ms": "604800000",
    }
    throttled = "leader.replication.throttled.replicas"
    await admin.alter_configs(topic, append={throttled: "0:1,1:2"})
    await admin.alter_configs(topic, subtract={throttled: "0:1"})
    assert (await admin.describe_configs(topic, [throttled]))[throttled].value == "1:2"


async def test_changes_of_settings_are_all_or_nothing(admin) -> None:
    await admin.create_topic("t")
    topic = ConfigResource.topic("t")
    with pytest.raises(BrokerError, match="Unknown topic config name: nonsense"):
        await admin.alter_configs(topic, {"retention.ms": "1", "nonsense": "2"})
    with pytest.raises(ConfigError, match="a named twice"):
        await admin.alter_configs(topic, {"a": "1"}, delete=["a"])
    with pytest.raises(ConfigError, match="no key"):
        await admin.alter_configs(topic)
    await admin.alter_configs(topic, {"retention.ms": "1"}, validate_only=True)
    assert (await admin.describe_configs(topic))["retention.ms"].value == "604800000"
    with pytest.raises(UnknownTopicError):
        await admin.describe_configs(ConfigResource.topic("nothing"))


async def test_settings_of_brokers(admin, fake) -> None:
    await admin.alter_configs(ConfigResource.broker_defaults(), {"log.cleaner.threads": "2"})
    await admin.alter_configs(ConfigResource.broker(2), {"log.cleaner.threads": "3"})
    sources = {}
    for broker in (1, 2):
        told = await admin.describe_configs(ConfigResource.broker(broker))
        entry = told["log.cleaner.threads"]
        sources[broker] = (entry.value, entry.source)
    assert sources == {
        1: ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        2: ("3", ConfigSource.DYNAMIC_BROKER_CONFIG),
    }
    with pytest.raises(ConfigError, match="broker 9 is unknown or down"):
        await admin.describe_configs(ConfigResource.broker(9))


async def test_the_configurations_of_many_topics_are_one_request(admin, fake) -> None:
    for name in ("a", "b"):
        fake.create_topic(name, 1)
    await admin.alter_configs(ConfigResource.topic("a"), {"retention.ms": "5"})
    before = len(fake.requests_of(ApiKey.DESCRIBE_CONFIGS))
    found = await admin.describe_topic_configs(["a", "b", "nope", "a"])
    assert len(fake.requests_of(ApiKey.DESCRIBE_CONFIGS)) == before + 1
    assert found["a"] == await admin.describe_configs(ConfigResource.topic("a"))
    assert found["b"]["retention.ms"].value == "604800000"
    assert isinstance(found["nope"], UnknownTopicError)
    assert await admin.describe_topic_configs([]) == {}


# --- the cluster --------------------------------------------------------------------------------


async def test_controllers_that_the_principal_may_not_see_are_unknown(admin, fake) -> None:
    fake.create_topic("t", 1)
    fake.control(ApiKey.DESCRIBE_QUORUM, 31)
    told = await admin.describe_cluster()
    assert (told.controllers, told.controller_id, told.topics) == (None, -1, 1)


async def test_the_cluster(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0, 1), (1, 2), (1, 0)])
    fake.set_isr("t", 1, [1])
    told = await admin.describe_cluster()
    assert (told.cluster_id, told.controller_id, told.controllers) == ("fake-cluster", 0, (0, 1, 2))
    assert (told.topics, told.partitions, told.offline_partitions) == (1, 3, 0)
    assert [(b.node_id, b.leaders, b.replicas, b.out_of_sync) for b in told.brokers] == [
        (0, 1, 2, 0),
        (1, 2, 3, 0),
        (2, 0, 1, 1),
    ]
    fake.stop_broker(0)
    told = await admin.describe_cluster()
    assert (told.controller_id, told.missing_brokers) == (1, {0: 2})


async def test_a_cluster_with_zookeeper(admin, fake) -> None:
    inspect(fake).versions.pop(ApiKey.DESCRIBE_QUORUM)
    fake.drop_connections()
    told = await admin.describe_cluster()
    assert (told.controller_id, told.controllers) == (0, ())


async def test_old_brokers_are_named_as_such(admin, fake) -> None:
    fake.set_versions(ApiKey.CREATE_TOPICS, 0, 1)
    fake.drop_connections()
    with pytest.raises(UnsupportedVersionError, match="CREATE_TOPICS"):
        await admin.create_topic("t", 1)


def test_options() -> None:
    admin = Admin({"bootstrap.servers": "a:1", "default.api.timeout.ms": "5", "linger.ms": "7"})
    assert admin.config.default_api_timeout_ms == 5
    assert repr(admin) == "<Admin 'kafkaclient' not running>"
    with pytest.raises(ConfigError, match=r"did you mean default\.api\.timeout\.ms"):
        Admin({"bootstrap.servers": "a:1", "default.api.timeouts.ms": "5"})
    with pytest.raises(ConfigError, match=r"limits='limits\.txt'"):
        Admin("a:1", limits="limits.txt")
