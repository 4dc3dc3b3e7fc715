"""Elections of leaders, against the fake cluster."""

from __future__ import annotations

import pytest

from kafkaclient.errors import AuthorizationError, ConfigError, UnknownTopicError
from kafkaclient.testing.fake import CLOSE_ANSWER
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


async def leaders(admin) -> list[int]:
    return [partition.leader for partition in (await admin.describe_topic("t")).partitions]


def moved(fake) -> None:
    """The leaders of two of three partitions are not the preferred ones."""
    fake.create_topic("t", assignments=[(0, 1), (1, 0), (2, 1)])
    fake.move_leader("t", 0, 1)
    fake.move_leader("t", 1, 0)


async def test_preferred_leaders(admin, fake) -> None:
    moved(fake)
    assert await admin.elect_leaders([T0, T2]) == {T0: None, T2: None}
    assert await leaders(admin) == [0, 0, 2]
    assert await admin.elect_leaders() == {T1: None}
    assert await leaders(admin) == [0, 1, 2]
    assert await admin.elect_leaders() == {}
    assert await admin.elect_leaders([]) == {}


async def test_a_preferred_leader_that_is_down(admin, fake) -> None:
    moved(fake)
    fake.stop_broker(0)
    results = await admin.elect_leaders([T0, T1])
    assert results[T0].name == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert "t-0" in str(results[T0])
    assert results[T1] is None


async def test_an_unclean_election(admin, fake) -> None:
    fake.create_topic("t", assignments=[(0, 1), (1, 2)])
    fake.set_isr("t", 0, [0])
    fake.stop_broker(0)
    assert await leaders(admin) == [-1, 1]
    results = await admin.elect_leaders([T0])
    assert results[T0].name == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert await admin.elect_leaders([T0, T1], election_type="unclean") == {T0: None, T1: None}
    assert await leaders(admin) == [1, 1]


@in_virtual_time
async def test_what_is_refused_and_what_is_made_again(fake, admin) -> None:
    moved(fake)
    unknown = TopicPartition("nothing", 0)
    results = await admin.elect_leaders([unknown, T0])
    assert isinstance(results[unknown], UnknownTopicError)
    assert results[T0] is None
    fake.control(ApiKey.ELECT_LEADERS, CLOSE_ANSWER)
    assert await admin.elect_leaders([T1]) == {T1: None}
    fake.control(ApiKey.ELECT_LEADERS, 41)
    assert await admin.elect_leaders([T1]) == {T1: None}
    fake.control(ApiKey.ELECT_LEADERS, 31)
    with pytest.raises(AuthorizationError, match="may not Alter on the cluster"):
        await admin.elect_leaders()
    with pytest.raises(ConfigError, match="neither preferred nor unclean"):
        await admin.elect_leaders(election_type="any")
