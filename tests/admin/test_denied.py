"""Principals that lack an ACL: each call of the admin client is denied in turn.

What a principal may not see is never taken for what is not there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin import Admin, Lifted
from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.admin.reassign.outcome import FOLLOWER_REPLICAS, LEADER_RATE
from kafkaclient.errors import AuthorizationError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.fake.apis import APIS
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.reassign.test_operators import configured, unthrottled

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake import Control, Request

TOPIC_DENIED, CLUSTER_DENIED = 29, 31
FOO0 = TopicPartition("foo", 0)


def hide(fake: FakeCluster, hidden: str) -> Control:
    """Without Describe on a topic: brokers leave it out of all topics, and do not say of its name
    whether it exists."""

    def answer(request: Request) -> dict[str, Any]:
        told = APIS[ApiKey.METADATA].answer(inspect(fake), request)
        topics = [topic for topic in told["topics"] if topic["name"] != hidden]
        if any(asked.name == hidden for asked in request.message.topics or ()):
            topics.append({"error_code": TOPIC_DENIED, "name": hidden, "partitions": []})
        return {**told, "topics": topics}

    return fake.control(ApiKey.METADATA, answer, keep=True)


def hide_configs(fake: FakeCluster, hidden: str) -> Control:
    """Without DescribeConfigs on a topic, whatever else a request asks for."""

    def answer(request: Request) -> dict[str, Any]:
        told = APIS[ApiKey.DESCRIBE_CONFIGS].answer(inspect(fake), request)
        for each in told["results"]:
            if each["resource_name"] == hidden:
                each.update(error_code=TOPIC_DENIED, configs=[])
        return told

    return fake.control(ApiKey.DESCRIBE_CONFIGS, answer, keep=True)


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
async def test_limits_that_cannot_be_seen_are_not_no_limits(admin, fake, exists) -> None:
    fake.create_topic("base", assignments=[(0,)])
    if exists:
        await admin.set_limits({"max.broker.partitions": 1, "max.partitions": 1})
    hide(fake, LIMITS_TOPIC)
    for call in (
        admin.create_topic("more", 5, 3),
        admin.add_partitions("base", 40),
        admin.alter_partition_reassignments({TopicPartition("base", 0): [1]}),
        admin.reassigner.begin({TopicPartition("base", 0): [1]}, 1000),
        admin.limits(),
        admin.check_limits(),
        admin.set_limits({"max.partitions": 7}),
    ):
        with pytest.raises(AuthorizationError, match=f"Read --topic {LIMITS_TOPIC}"):
            await call
    assert inspect(fake).topics.keys() - {LIMITS_TOPIC} == {"base"}
    assert len(inspect(fake).topics["base"].partitions) == 1
    assert await admin.list_partition_reassignments() == {}
    assert configured(fake).keys() <= {LIMITS_TOPIC}


async def test_who_sets_limits_aside_needs_no_access_to_them(new_admin, fake) -> None:
    hide(fake, LIMITS_TOPIC)
    async with new_admin(limits=None) as admin:
        await admin.create_topic("t", 2, 3)
    assert "t" in inspect(fake).topics


@pytest.mark.parametrize("key", [ApiKey.LIST_OFFSETS, ApiKey.FETCH], ids=lambda key: key.name)
async def test_limits_that_cannot_be_read(admin, fake, key) -> None:
    """Describe, without Read."""
    await admin.set_limits({"max.partitions": 1})
    fake.control(key, TOPIC_DENIED, keep=True)
    for call in (admin.create_topic("t", 1, 1), admin.check_limits(), admin.limits()):
        with pytest.raises(AuthorizationError, match=LIMITS_TOPIC):
            await call
    assert "t" not in inspect(fake).topics


# --- throttles --------------------------------------------------------------------------------


def moving_cluster() -> FakeCluster:
    """What the calls below are made on."""
    fake = FakeCluster(5)
    fake.create_topic("foo", assignments=[(0, 1, 2), (1, 2, 3)])
    fake.create_topic("bar", assignments=[(3, 2, 1)])
    inspect(fake).topics["foo"].configs[FOLLOWER_REPLICAS] = "7:7"
    inspect(fake).broker_configs["1"] = {LEADER_RATE: "77"}
    return fake


def admin_of(fake: FakeCluster, **options: Any) -> Admin:
    return Admin(
        fake.bootstrap,
        dialer=fake,
        rng=Random(1),
        wall_clock=lambda: asyncio.get_running_loop().time(),
        **options,
    )


CALLS: dict[str, Callable[[Admin], Any]] = {
    "begin": lambda a: a.reassigner.begin({FOO0: [0, 1, 4]}, 1000, additional=True),
    "verify": lambda a: a.reassigner.verify({FOO0: (0, 1, 4)}),
    "cancel": lambda a: a.reassigner.cancel([FOO0]),
    "clear": lambda a: a.replication_quotas.clear(),
    "wipe": lambda a: a.replication_quotas.clear(everyone=True),
    "set_rate": lambda a: a.replication_quotas.set_rate(2000),
    "describe": lambda a: a.replication_quotas.describe(),
    "list": lambda a: a.list_partition_reassignments(),
    "estimate": lambda a: a.reassigner.estimate({FOO0: [0, 1, 4]}),
}
DENIED = {
    ApiKey.DESCRIBE_CONFIGS: CLUSTER_DENIED,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: CLUSTER_DENIED,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: CLUSTER_DENIED,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: CLUSTER_DENIED,
}
MOST = 40  # a call makes fewer requests of one kind


def refuse_one(fake: FakeCluster, key: ApiKey, number: int) -> Counter[str]:
    """Deny a request of this kind: the first, the second, ..."""
    made: Counter[str] = Counter()

    def decide(request: Request) -> int | None:
        if request.client_id != "denied":
            return None
        made["all"] += 1
        return DENIED[key] if made["all"] == number else None

    fake.control(key, decide, keep=True)
    return made


@pytest.mark.parametrize("under_way", [True, False], ids=["moving", "idle"])
@pytest.mark.parametrize("key", DENIED, ids=lambda key: key.name)
@pytest.mark.parametrize("call", CALLS)
def test_each_request_denied_in_turn(call, key, under_way) -> None:
    """Whatever is denied, a move that is under way stays throttled, and one who may do everything
    finds what is left."""

    @virtual_time
    async def deny(number: int) -> bool:
        fake = moving_cluster()
        before = configured(fake)
        async with admin_of(fake) as other:
            if under_way:
                await other.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
            made = refuse_one(fake, key, number)
            async with admin_of(fake, client_id="denied") as admin:
                with suppress(AuthorizationError):
                    await CALLS[call](admin)
            assert unthrottled(fake) == []
            fake.finish_reassignments()
            await asyncio.sleep(120)  # for what nobody could withdraw
            assert (await other.replication_quotas.clear()).failures == {}
            assert call == "wipe" or configured(fake) == before
        return made["all"] >= number

    number = 1
    while deny(number):
        number += 1
        assert number < MOST


@virtual_time
async def test_rates_stay_for_topics_that_cannot_be_seen() -> None:
    """Without Describe on the topic that moves, or without DescribeConfigs on it."""
    fake = moving_cluster()
    before = configured(fake)
    async with admin_of(fake) as other, admin_of(fake) as admin:
        await other.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
        for control in (hide(fake, "foo"), hide_configs(fake, "foo")):
            lifted = await admin.reassigner.verify({TopicPartition("bar", 0): (3, 2, 1)})
            assert lifted.lifted.brokers == ()
            assert lifted.lifted.needed_brokers == (0, 1, 2, 3)
            await admin.replication_quotas.clear()
            assert unthrottled(fake) == []
            control.remove()
        control = hide_configs(fake, "foo")
        fake.finish_reassignments()
        told = await admin.replication_quotas.clear()
        assert "may not DescribeConfigs" in str(told.failures["topic 'foo'"])
        described = await admin.replication_quotas.describe()
        assert described.topic_failures.keys() == {"foo"}
        control.remove()
        await other.replication_quotas.clear()
    assert configured(fake) == before


async def test_a_topic_that_may_not_be_described_is_not_missing() -> None:
    fake = moving_cluster()
    hide(fake, "foo")
    async with admin_of(fake) as admin:
        for call in (
            admin.reassigner.verify({FOO0: (0, 1, 2)}),
            admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000),
            admin.reassigner.estimate({FOO0: [0, 1, 3]}),
            admin.reassigner.generate(["foo"]),
        ):
            with pytest.raises(AuthorizationError, match="may not Describe on the topic 'foo'"):
                await call
    assert unthrottled(fake) == []


@virtual_time
async def test_a_cancelled_move_of_a_hidden_topic_is_told() -> None:
    """Its list may stay, and so the rates of brokers stay."""
    fake = moving_cluster()
    async with admin_of(fake) as admin:
        await admin.reassigner.begin({FOO0: [0, 1, 4]}, 1000)
        controls = [hide(fake, "foo"), hide_configs(fake, "foo")]
        told: list[Lifted] = []
        assert await admin.reassigner.cancel(on_lifted=told.append) == {FOO0: None}
        (lifted,) = told
        assert isinstance(lifted.failures["topic 'foo'"], AuthorizationError)
        assert lifted.needed_brokers
        for control in controls:
            control.remove()
        await admin.replication_quotas.clear()
    assert configured(fake) == {"foo": {FOLLOWER_REPLICAS: "7:7"}, "1": {LEADER_RATE: "77"}}
