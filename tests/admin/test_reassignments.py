"""Moves of replicas within limits, against the fake cluster."""

from __future__ import annotations

import pytest

from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    PartitionLimitRaceError,
    PolicyViolationError,
    UnknownTopicError,
)
from kafkaclient.testing.fake import CLOSE_ANSWER
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def hosted(admin) -> list[int]:
    return [broker.hosted for broker in (await admin.check_limits()).brokers]


async def test_a_move_from_its_beginning_to_its_end(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0, 1), (1, 0)])
    assert await admin.list_partition_reassignments() == {}
    assert await admin.alter_partition_reassignments({T0: [2, 1]}) == {T0: None}
    move = (await admin.list_partition_reassignments())[T0]
    assert (move.replicas, move.adding, move.removing) == ((2, 1, 0), (2,), (0,))
    assert await hosted(admin) == [2, 2, 1]
    fake.finish_reassignments()
    assert await admin.list_partition_reassignments() == {}
    assert (await admin.describe_topic("t")).partitions[0].replicas == (2, 1)


async def test_a_move_cancelled(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0, 1), (1, 0)])
    await admin.alter_partition_reassignments({T0: [2, 1]})
    results = await admin.alter_partition_reassignments({T0: None, T1: None})
    assert results[T0] is None
    assert isinstance(results[T1], BrokerError)
    assert results[T1].name == "NO_REASSIGNMENT_IN_PROGRESS"
    assert await hosted(admin) == [2, 2, 0]


async def test_the_limit_holds_for_the_peak_of_a_move(admin, fake) -> None:
    """Both brokers are full: to swap a replica would take one of them above the limit meanwhile."""
    fake.create_topic("t", assignments=[(0,), (1,)])
    await admin.set_limits({"max.broker.partitions": 1, "max.partitions": 1})
    with pytest.raises(PolicyViolationError, match="broker 0 would have 2, broker 1 would have 2"):
        await admin.alter_partition_reassignments({T0: [1], T1: [0]})
    assert await admin.list_partition_reassignments() == {}
    # max.partitions is not for moves, though the cluster is above it.
    assert await admin.alter_partition_reassignments({T0: [2]}) == {T0: None}


async def test_of_two_that_take_the_same_room_the_later_one_is_told(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0,)])
    await admin.set_limits({"max.broker.partitions": 1})

    def somebody_is_first(_request) -> None:
        if "theirs" not in inspect(fake).topics:
            fake.create_topic("theirs", assignments=[(1,)])

    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, somebody_is_first)
    with pytest.raises(PartitionLimitRaceError, match="broker 1 has 2 replicas"):
        await admin.alter_partition_reassignments({T0: [1]})
    assert T0 in await admin.list_partition_reassignments()


async def test_a_broker_above_the_limit_can_be_drained(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0,)] * 3)
    await admin.set_limits({"max.broker.partitions": 2})
    await admin.alter_partition_reassignments({T0: [1], T1: [2]})
    fake.finish_reassignments()
    assert await hosted(admin) == [1, 1, 1]


async def test_internal_topics_move_freely(admin, fake) -> None:
    fake.create_topic("__consumer_offsets", assignments=[(0,)])
    fake.create_topic("t", assignments=[(1,)])
    await admin.set_limits({"max.broker.partitions": 1})
    offsets = TopicPartition("__consumer_offsets", 0)
    assert await admin.alter_partition_reassignments({offsets: [1]}) == {offsets: None}


async def test_the_topic_of_the_limits_moves_freely(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0,), (1,), (2,)])
    await admin.set_limits({"max.broker.partitions": 1})
    limits = TopicPartition(LIMITS_TOPIC, 0)
    assert await admin.alter_partition_reassignments({limits: [0]}) == {limits: None}
    fake.finish_reassignments()
    assert await admin.alter_partition_reassignments({limits: [1, 2]}) == {limits: None}


async def test_what_is_not_there_and_what_is_refused(admin, fake) -> None:
    with pytest.raises(UnknownTopicError, match="t-0"):
        await admin.alter_partition_reassignments({T0: [1]})
    fake.create_topic("t", 1)
    results = await admin.alter_partition_reassignments({T0: [1, 1]})
    assert results[T0].name == "INVALID_REPLICA_ASSIGNMENT"
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 31)
    with pytest.raises(AuthorizationError, match="may not Alter on the cluster"):
        await admin.alter_partition_reassignments({T0: [1]})


@in_virtual_time
async def test_requests_are_made_again(fake, admin) -> None:
    fake.create_topic("t", 1)
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 41)
    assert await admin.alter_partition_reassignments({T0: [1]}) == {T0: None}
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, CLOSE_ANSWER)
    assert await admin.alter_partition_reassignments({T0: None}) == {T0: None}
    fake.control(ApiKey.LIST_PARTITION_REASSIGNMENTS, 41)
    assert await admin.list_partition_reassignments() == {}
