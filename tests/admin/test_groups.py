"""Groups described, their offsets, and the ends of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import AuthorizationError
from kafkaclient.producer.producer import Producer
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.groups import DescribedMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.admin import Admin
    from kafkaclient.testing.fake import Control, FakeCluster, Request

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


async def test_the_right_to_commit_is_named(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    """The coordinator's lookup needs Describe only, but the commit then needs Read."""
    fake.control(ApiKey.FIND_COORDINATOR, 30)
    async with new_admin() as admin:
        with pytest.raises(AuthorizationError, match="--operation Read --group g allows it"):
            await admin.alter_offsets("g", {TopicPartition("t", 0): 5})


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


async def test_groups_are_listed_and_deleted(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    async with new_admin() as admin:
        await admin.create_topic("t", 2)
        await admin.alter_offsets("g", {T0: 5, T1: 6})
        await admin.alter_offsets("h", {T0: 1})
        assert await admin.committed_offsets("g") == {T0: 5, T1: 6}
        assert [group.group_id for group in await admin.list_groups()] == ["g", "h"]
        results = await admin.delete_groups(["g", "missing"])
        assert results["g"] is None
        assert "GROUP_ID_NOT_FOUND" in str(results["missing"])
        assert [group.group_id for group in await admin.list_groups()] == ["h"]
        assert await admin.committed_offsets("g") == {}


async def test_offsets_of_times(fake: FakeCluster, new_admin: Callable[..., Admin]) -> None:
    async with new_admin() as admin:
        await admin.create_topic("t", 2)
        async with Producer(fake.bootstrap, dialer=fake) as producer:
            for time_ms in (1_000, 2_000, 3_000):
                await producer.send("t", b"", partition=0, timestamp_ms=time_ms)
        fake.delete_records("t", 0, 1)
        assert await admin.beginning_offsets([T0, T1]) == {T0: 1, T1: 0}
        assert await admin.list_offsets([T0, T1], 2_500) == {T0: 2, T1: -1}


async def test_whether_readers_find_a_record(
    fake: FakeCluster, new_admin: Callable[..., Admin], fetches: Control
) -> None:
    fetches.remove()
    async with new_admin() as admin:
        await admin.create_topic("t", 1)
        async with Producer(fake.bootstrap, transactional_id="x", dialer=fake) as producer:
            for value, commit in ((b"0", True), (b"2", False), (b"4", True)):
                await producer.begin_transaction()
                await (await producer.send("t", value, partition=0))
                end = producer.commit_transaction if commit else producer.abort_transaction
                await end()
        # 0 committed, 1 marker, 2 aborted, 3 marker, 4 committed, 5 marker
        empty = {
            (start, end)
            for start in range(6)
            for end in range(start, 7)
            if await admin.without_visible_records({T0: (start, end)})
        }
        assert empty == {
            *((start, end) for start in (1, 2, 3) for end in range(start, 5)),
            *((start, start) for start in range(6)),
            (5, 6),
        }
        assert await admin.without_visible_records({T1: (0, 1)}) == set()
        assert await admin.without_visible_records({}) == set()
        fake.delete_records("t", 0, 4)
        assert await admin.without_visible_records({T0: (1, 2)}) == set()


async def test_members_are_removed(fake: FakeCluster, new_admin: Callable[..., Admin]) -> None:
    asked: list[Any] = []

    def leave(request: Request) -> dict[str, Any]:
        asked.extend(request.message.members)
        gone = {"member_id": "a", "group_instance_id": None, "error_code": 25}
        static = {"member_id": "", "group_instance_id": "i", "error_code": 0}
        return {"error_code": 0, "members": [gone, static]}

    members = [
        DescribedMember("a", "", "", b"", b""),
        DescribedMember("b", "", "", b"", b"", group_instance_id="i"),
    ]
    fake.control(ApiKey.LEAVE_GROUP, leave)
    async with new_admin() as admin:
        await admin.remove_members("g", members, reason="reset")
        await admin.remove_members("g", [])
        fake.control(ApiKey.LEAVE_GROUP, {"error_code": 30, "members": []})
        with pytest.raises(AuthorizationError, match="removing members of group 'g'"):
            await admin.remove_members("g", members)
    assert [(each.member_id, each.group_instance_id) for each in asked] == [("a", None), ("", "i")]
