"""Groups described, their offsets, and the ends of partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    ProtocolError,
    UnknownTopicError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import INT16, INT32, NO_TAGS, ApiKey, compact_count, compact_string
from kafkaclient.wire.groups import (
    ConsumerGroupDescribeCall,
    ConsumerSubscription,
    DescribedMember,
    assignment_in,
    subscription_in,
)
from tests.admin.conftest import in_virtual_time

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


def assigned(*partitions: int) -> bytes:
    """An assignment of partitions of the topic ``t``."""
    numbers = b"".join(map(INT32.pack, partitions))
    topic = bytes(16) + compact_string("t") + compact_count(len(partitions)) + numbers + NO_TAGS
    return compact_count(1) + topic + NO_TAGS


def consumer_groups(code: int) -> bytes:
    """The body of a ConsumerGroupDescribe response, with one group and its member."""
    member = b"".join(
        (
            *map(compact_string, ("m", "static", None)),
            *(INT32.pack(7), compact_string("client"), compact_string("/h")),
            *(compact_count(2), compact_string("t"), compact_string("u"), compact_string(None)),
            *(assigned(0, 1), assigned(1), NO_TAGS),
        )
    )
    group = b"".join(
        (
            *(INT16.pack(code), compact_string(None), compact_string("g")),
            *(compact_string("Stable"), INT32.pack(7), INT32.pack(7), compact_string("uniform")),
            *(compact_count(1), member, INT32.pack(0), NO_TAGS),
        )
    )
    return NO_TAGS + INT32.pack(9) + compact_count(1) + group + NO_TAGS


def describe_consumer_groups(fake: FakeCluster, code: int) -> None:
    """Brokers say that ``g`` is no classic group, and describe it with this code as KIP-848 has."""
    answer(fake, 69, "")
    fake.set_versions(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1)

    def described(request: Request) -> bytes:
        body = INT32.pack(request.frame.correlation_id) + consumer_groups(code)
        return INT32.pack(len(body)) + body

    fake.control(ApiKey.CONSUMER_GROUP_DESCRIBE, described)


async def test_a_group_of_kip_848_is_described_with_its_members(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    """A coordinator answers DescribeGroups for it as for a group that does not exist."""
    describe_consumer_groups(fake, 0)
    async with new_admin() as admin:
        found = await admin.describe_group("g")
    assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "uniform")
    assert found.kind == "consumer"
    (member,) = found.members
    assert member[:3] == ("m", "client", "/h")
    assert member.group_instance_id == "static"
    assert assignment_in(member.assignment).partitions == (T0, T1)
    assert subscription_in(member.metadata) == ConsumerSubscription(("t", "u"), owned=(T0, T1))


async def test_a_group_of_kip_848_that_is_not_for_this_client(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    describe_consumer_groups(fake, 30)
    async with new_admin() as admin:
        with pytest.raises(AuthorizationError, match="--operation Describe --group g"):
            await admin.describe_group("g")


@pytest.mark.parametrize("kind", ["Share", "streams", None])
async def test_a_group_of_another_type_is_not_dead(
    kind: str | None, fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    describe_consumer_groups(fake, 69)
    group = {"group_id": "g", "protocol_type": "x", "group_state": "Stable", "group_type": kind}
    fake.set_versions(ApiKey.LIST_GROUPS, 0, 5)
    fake.control(ApiKey.LIST_GROUPS, lambda _: {"groups": [group] if kind else []}, keep=True)
    async with new_admin() as admin:
        found = await admin.describe_group("g")
    known = ("Stable", kind.lower()) if kind else ("Dead", "classic")
    assert (found.state, found.kind, found.members) == (*known, ())


def test_bytes_that_are_no_description_of_a_group() -> None:
    whole = consumer_groups(0)
    call = ConsumerGroupDescribeCall(("g",))
    assert call.decode(0, whole).throttle_ms == 9
    for size in range(len(whole) - 1):
        with pytest.raises(ProtocolError, match="malformed CONSUMER_GROUP_DESCRIBE v0"):
            call.decode(0, whole[:size])


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


@pytest.mark.parametrize("wrong", [-1, -2, 2**63])
async def test_offsets_that_no_record_has_are_refused(
    fake: FakeCluster, new_admin: Callable[..., Admin], wrong: int
) -> None:
    """A broker would take -1 as no committed offset."""
    fake.create_topic("t", 2)
    async with new_admin() as admin:
        await admin.alter_offsets("g", {T0: 5})
        with pytest.raises(ConfigError, match=f"'t-0': {wrong}"):
            await admin.alter_offsets("g", {T0: wrong, T1: 6})
        assert await admin.committed_offsets("g") == {T0: 5}


@in_virtual_time
async def test_an_unknown_topic_is_told_at_once_with_what_is_set(
    fake: FakeCluster, admin: Admin
) -> None:
    loop = asyncio.get_running_loop()
    await admin.create_topic("t", 2)
    began = loop.time()
    missing = {TopicPartition("nope", n): 1 for n in (0, 1)}
    with pytest.raises(UnknownTopicError, match=r"for nope-0 and 1 more of 3 parti") as caught:
        await admin.alter_offsets("g", {T0: 5, **missing})
    assert loop.time() - began < 3
    assert not caught.value.retriable
    assert await admin.committed_offsets("g") == {T0: 5}


@in_virtual_time
async def test_a_topic_that_the_coordinator_does_not_know_yet(
    fake: FakeCluster, admin: Admin
) -> None:
    asyncio.get_running_loop().call_later(0.2, fake.create_topic, "t", 2)
    await admin.alter_offsets("g", {T0: 5, T1: 6})
    assert await admin.committed_offsets("g") == {T0: 5, T1: 6}


async def test_an_error_of_a_partition_names_it(
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
    async with new_admin() as admin:
        await admin.create_topic("t", 2)
        fake.control(ApiKey.OFFSET_COMMIT, 29)
        with pytest.raises(AuthorizationError, match=r"t-0 and 1 more.*Read --topic t allows"):
            await admin.alter_offsets("g", {T0: 5, T1: 6})
        fake.control(ApiKey.OFFSET_COMMIT, 25)
        with pytest.raises(BrokerError, match="t-0 of 1 partitions: UNKNOWN_MEMBER_ID"):
            await admin.alter_offsets("g", {T0: 5})
        fake.control(ApiKey.OFFSET_FETCH, 29)
        with pytest.raises(AuthorizationError, match="Describe --topic t allows"):
            await admin.committed_offsets("g", [T0])


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
    fake: FakeCluster, new_admin: Callable[..., Admin]
) -> None:
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
