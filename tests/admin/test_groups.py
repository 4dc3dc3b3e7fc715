"""Groups described, their offsets, and the ends of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import AuthorizationError
from kafkaclient.producer.producer import Producer
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.admin import Admin
    from kafkaclient.testing.fake import FakeCluster, Request

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def answer(fake: FakeCluster, code: int, state: str = "Stable") -> None:
    """The next DescribeGroups is answered so."""
    fields: dict[str, Any] = {
        "error_code": code,
        "group_id": "g",
        "group_state": state,
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": [],
    }
    fake.control(ApiKey.DESCRIBE_GROUPS, lambda _request: {"groups": [fields]})


@pytest.fixture(autouse=True)
def describes(fake: FakeCluster) -> None:
    fake.set_versions(ApiKey.DESCRIBE_GROUPS, 0, 6)


async def test_a_group_that_moves_to_another_coordinator(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    answer(fake, 16)  # NOT_COORDINATOR
    answer(fake, 0)
    async with new_admin(retry_backoff_ms=1) as admin:
        found = await admin.describe_group("g")
    assert (found.state, found.protocol, found.members) == ("Stable", "range", ())


async def test_a_group_that_does_not_exist(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    answer(fake, 69, "")
    async with new_admin() as admin:
        assert (await admin.describe_group("g")).state == "Dead"


async def test_a_group_that_is_not_for_this_client(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    answer(fake, 30, "")
    async with new_admin() as admin:
        with pytest.raises(AuthorizationError, match="describing group 'g'"):
            await admin.describe_group("g")


async def test_what_is_committed_and_what_is_there(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    """What an open transaction has written does not count."""
    async with new_admin() as admin:
        await admin.create_topic("t", 2)
        async with Producer(fake.bootstrap, transactional_id="x", dialer=fake) as producer:
            async with producer.transaction():
                await producer.send("t", b"1", partition=0)
                await producer.send_offsets_to_transaction(
                    {T0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g")
                )
            ends = await admin.end_offsets([T0, T1, TopicPartition("missing", 0)])
            assert ends == {T0: 2, T1: 0}  # the record, and the end of its transaction
            await producer.begin_transaction()
            await (await producer.send("t", b"2", partition=0))
            assert (await admin.end_offsets([T0])) == {T0: 2}
            await producer.abort_transaction()
        assert await admin.committed_offsets("g", [T0, T1]) == {T0: 7}
        assert await admin.committed_offsets("g", []) == {}
        assert await admin.end_offsets([]) == {}


async def test_offsets_are_set(fake: FakeCluster, new_admin: Callable[..., Admin]) -> None:
    asked: list[Any] = []

    def commit(request: Request) -> dict[str, Any]:
        asked.append(request.message)
        numbers = [{"partition_index": n, "error_code": 0} for n in (0, 1)]
        return {"topics": [{"name": "t", "partitions": numbers}]}

    fake.set_versions(ApiKey.OFFSET_COMMIT, 2, 9)
    fake.control(ApiKey.OFFSET_COMMIT, commit)
    async with new_admin() as admin:
        await admin.alter_offsets("g", {T0: 5, T1: 6})
    (message,) = asked
    assert (message.group_id, message.generation_id_or_member_epoch, message.member_id) == (
        "g",
        -1,
        "",
    )
    (topic,) = message.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 5), (1, 6)]
