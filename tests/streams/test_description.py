"""The description of a group's members, with and without the fake cluster."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import BrokerError, StreamsError
from kafkaclient.streams import AssignmentConfigs, Role, TaskId, describe_application
from kafkaclient.streams.description import build_description, decode_members
from kafkaclient.streams.group_protocol import AssignmentInfo, SubscriptionInfo
from kafkaclient.streams.leader import compute_assignments
from kafkaclient.testing.fake import Control, FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.groups import ConsumerSubscription, DescribedGroup, DescribedMember
from tests.streams.fakes import topology_of

if TYPE_CHECKING:
    from kafkaclient.streams.topology import Topology

A, B = UUID(int=1), UUID(int=2)
DENIED = {
    "partition_index": 0,
    "error_code": 29,
    "high_watermark": -1,
    "last_stable_offset": -1,
    "log_start_offset": -1,
    "aborted_transactions": None,
    "preferred_read_replica": -1,
    "records": b"",
}
TASKS = [TaskId(0, 0), TaskId(0, 1)]


async def _nothing(*_: object) -> None:
    """A processor."""


def topology() -> Topology:
    return topology_of(_nothing, topic="in", store="s")


def group(
    sums: dict[UUID, dict[TaskId, int]], end: int = 100_000, **options: Any
) -> DescribedGroup:
    """A group as brokers describe it. The members reported ``sums``, the real leader assigned the
    tasks, and aiokafka encoded both, in older versions."""
    subscriptions = {
        f"member-{process.int}": SubscriptionInfo(process_id=process, task_offset_sums=found)
        for process, found in sums.items()
    }
    answers = compute_assignments(
        {
            member: ConsumerSubscription(("in",), each.encode())
            for member, each in subscriptions.items()
        },
        topology(),
        {"in": len(TASKS)},
        dict.fromkeys(TASKS, end),
        AssignmentConfigs(**options),
        next_probing_ms=5_000,
        follow_up_ms=1_000,
    )
    members = []
    for member, subscription in subscriptions.items():
        topics = defaultdict(list)
        for topic, number in answers[member].partitions:
            topics[topic].append(number)
        metadata = ConsumerProtocolMemberMetadata(0, ["in"], subscription.encode())
        assignment = ConsumerProtocolMemberAssignment(
            0, list(topics.items()), answers[member].info.encode()
        )
        members.append(DescribedMember(member, "c", "/h", metadata.encode(), assignment.encode()))
    return DescribedGroup("app", 0, None, "Stable", "consumer", "stream", tuple(members))


def copies_of(found: DescribedGroup, ends: int = 100_000) -> list[tuple[Any, ...]]:
    partitions = [TopicPartition(t, p) for t in ("in", "app-s-changelog") for p in range(2)]
    committed = {TopicPartition("in", 0): 99_990}
    described = build_description(
        found, decode_members(found), committed, dict.fromkeys(partitions, ends), {}
    )
    return [
        (member.process_id.int, str(copy.task), copy.role, copy.lag, copy.progress)
        for member in described.members
        for copy in member.copies
    ]


def test_a_warm_up_is_described() -> None:
    running = dict.fromkeys(TASKS, -2)
    found = group({A: running, B: {TASKS[1]: 25_000}})
    assert copies_of(found) == [
        (1, "0_0", Role.ACTIVE, 10, None),
        (1, "0_1", Role.ACTIVE, None, None),
        (2, "0_1", Role.WARMUP, 75_000, 0.25),
    ]
    described = build_description(found, decode_members(found), {}, {}, {})
    assert not described.is_balanced
    assert described.next_rebalance_ms == 5_000
    assert [copy.lag for member in described.members for copy in member.copies] == [None] * 3


def test_a_copy_with_unknown_position_lacks_all_records() -> None:
    found = copies_of(group({A: dict.fromkeys(TASKS, -2), B: {}}))
    assert found[-1] == (2, "0_1", Role.WARMUP, 100_000, 0.0)


def test_published_positions_come_before_reported_positions() -> None:
    found = group({A: dict.fromkeys(TASKS, -2), B: {TASKS[1]: 25_000}})
    changelog = TopicPartition("app-s-changelog", 1)
    described = build_description(
        found, decode_members(found), {}, {changelog: 100_000}, {B: {changelog: 60_000}}
    )
    (copy,) = described.members[1].copies
    assert (copy.position, copy.lag, copy.progress) == (60_000, 40_000, 0.6)


def test_standbys_of_a_balanced_application() -> None:
    found = group(
        {A: {TASKS[0]: -2, TASKS[1]: 100_000}, B: {TASKS[1]: -2, TASKS[0]: 95_000}},
        num_standby_replicas=1,
    )
    assert copies_of(found) == [
        (1, "0_0", Role.ACTIVE, 10, None),
        (1, "0_1", Role.STANDBY, 0, 1.0),
        (2, "0_1", Role.ACTIVE, None, None),
        (2, "0_0", Role.STANDBY, 5_000, 0.95),
    ]
    assert build_description(found, decode_members(found), {}, {}, {}).is_balanced


def test_a_partition_without_a_task_is_not_balanced() -> None:
    found = group({A: {TASKS[0]: -2}, B: {TASKS[1]: -2}})
    nowhere = TopicPartition("in", 2)
    described = build_description(found, decode_members(found), {}, {}, {}, [nowhere])
    assert described.unassigned == (nowhere,)
    assert described.next_rebalance_ms is None
    assert not described.is_balanced


def test_a_former_owner_has_the_whole_changelog() -> None:
    """The member reported the task as running, without an offset."""
    found = group(
        {A: dict.fromkeys(TASKS, -2), B: dict.fromkeys(TASKS, 100_000)}, num_standby_replicas=1
    )
    given = next(row for row in copies_of(found) if row[0] == 1 and row[2] is Role.STANDBY)
    assert given[3:] == (0, 1.0)


def of_kafka_streams(
    standby: TaskId, offsets: int, *, more: dict[TaskId, frozenset[TopicPartition]] | None = None
) -> DescribedGroup:
    """Two members as ``StreamsPartitionAssignor`` describes them: a standby comes with what its
    task reads, not with its changelogs."""

    def member(number: int, sums: dict[TaskId, int], info: AssignmentInfo) -> DescribedMember:
        described = SubscriptionInfo(process_id=UUID(int=number), task_offset_sums=sums).encode()
        topics = [("in", [task.partition for task in info.active_tasks])]
        assignment = ConsumerProtocolMemberAssignment(0, topics, info.encode())
        metadata = ConsumerProtocolMemberMetadata(0, ["in"], described)
        return DescribedMember(
            f"member-{number}", "c", "/h", metadata.encode(), assignment.encode()
        )

    source = frozenset([TopicPartition("in", standby.partition)])
    active = AssignmentInfo(active_tasks=(standby,))
    copies = AssignmentInfo(standby_tasks={standby: source, **(more or {})})
    members = (member(1, {standby: -2}, active), member(2, {standby: offsets}, copies))
    return DescribedGroup("app", 0, None, "Stable", "consumer", "stream", members)


SOURCE_END = {TopicPartition("in", 0): 1_000_000}


def test_a_standby_of_kafka_streams_is_behind_its_changelogs_only() -> None:
    """The input topic does not count."""
    found = of_kafka_streams(TASKS[0], 50_000)
    (copy,) = build_description(found, decode_members(found), {}, SOURCE_END, {}).members[1].copies
    assert (copy.role, copy.partitions, copy.position) == (Role.STANDBY, (), 50_000)
    assert (copy.end, copy.lag, copy.progress) == (None, None, None)
    changelogs = {"app-a-changelog": 2, "app-b-changelog": 1}
    ends = {**SOURCE_END, TopicPartition("app-a-changelog", 0): 40_000}
    ends[TopicPartition("app-b-changelog", 0)] = 10_500
    read = decode_members(found, changelogs)
    (copy,) = build_description(found, read, {}, ends, {}).members[1].copies
    assert (copy.end, copy.lag) == (50_500, 500)


def test_changelogs_stay_unknown_with_several_subtopologies() -> None:
    """No field says which subtopology a changelog belongs to."""
    found = of_kafka_streams(TASKS[0], 5, more={TaskId(1, 0): frozenset()})
    read = decode_members(found, {"app-a-changelog": 1})
    ends = {TopicPartition("app-a-changelog", 0): 10}
    copies = build_description(found, read, {}, ends, {}).members[1].copies
    assert [(copy.position, copy.lag) for copy in copies] == [(5, None), (None, None)]


async def test_missing_changelogs_are_filled_in_from_the_topics() -> None:
    fake = FakeCluster(3, partitions=1)
    fake.set_versions(ApiKey.DESCRIBE_GROUPS, 0, 6)
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        for name in ("in", "app-s-changelog", "application-s-changelog"):
            await admin.create_topic(name, 1)
        answer_with(fake, of_kafka_streams(TASKS[0], 0))
        (copy,) = (await describe_application(admin, "app")).members[1].copies
    assert copy.partitions == (TopicPartition("app-s-changelog", 0),)
    assert (copy.lag, copy.progress) == (0, 1.0)


def test_an_empty_changelog_is_complete() -> None:
    found = group({A: {TASKS[0]: -2}, B: {TASKS[1]: -2}}, end=0, num_standby_replicas=1)
    progress = {row[4] for row in copies_of(found, ends=0) if row[2] is Role.STANDBY}
    assert progress == {1.0}


@pytest.mark.parametrize("state", ["Empty", "Dead", "PreparingRebalance"])
def test_a_group_without_assignments_has_no_members(state: str) -> None:
    found = group({A: {}})._replace(state=state)
    described = build_description(found, decode_members(found), {}, {}, {})
    assert (described.members, described.is_rebalancing) == ((), state == "PreparingRebalance")


def test_a_group_with_another_protocol_is_rejected() -> None:
    found = group({A: {}})._replace(protocol="range")
    with pytest.raises(StreamsError, match="agreed on 'range'"):
        decode_members(found)


def test_a_member_with_a_newer_version_is_rejected() -> None:
    found = group({A: {}})
    (member,) = found.members
    newer = ConsumerProtocolMemberMetadata(0, ["in"], b"\0\0\0\x0c\0\0\0\x0c").encode()
    with pytest.raises(StreamsError, match="member-1 speaks version 12"):
        decode_members(found._replace(members=(member._replace(metadata=newer),)))


def answer_with(fake: FakeCluster, found: DescribedGroup) -> Control:
    fields = {
        "error_code": found.error_code,
        "group_id": found.group_id,
        "group_state": found.state,
        "protocol_type": found.protocol_type,
        "protocol_data": found.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "client_host": member.host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in found.members
        ],
    }
    return fake.control(ApiKey.DESCRIBE_GROUPS, lambda _request: {"groups": [fields]}, keep=True)


async def test_describe_application_sends_requests_to_brokers() -> None:
    fake = FakeCluster(3, partitions=2)
    fake.set_versions(ApiKey.DESCRIBE_GROUPS, 0, 6)
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        await admin.create_topic("in", 2)
        running = answer_with(fake, group({A: dict.fromkeys(TASKS, -2), B: {}}))
        described = await describe_application(admin, "app")
        copies = [copy for member in described.members for copy in member.copies]
        assert [copy.role for copy in copies] == [Role.ACTIVE, Role.ACTIVE, Role.WARMUP]
        # Nothing is committed; the topic is empty; there is no changelog.
        assert [(c.position, c.end) for c in copies] == [(0, 0), (0, 0), (None, None)]
        running.remove()
        denied = answer_with(fake, group({})._replace(error_code=69, state=""))
        assert (await describe_application(admin, "app")).state == "Dead"
        denied.remove()
        answer_with(fake, group({})._replace(error_code=30))
        with pytest.raises(BrokerError, match="Describe on the group 'app'"):
            await describe_application(admin, "app")


async def test_transaction_markers_are_no_lag() -> None:
    fake = FakeCluster(3, partitions=2)
    fake.set_versions(ApiKey.DESCRIBE_GROUPS, 0, 6)
    source = TopicPartition("in", 0)

    async def lags() -> list[int | None]:
        described = await describe_application(admin, "app")
        return [copy.lag for copy in described.members[0].copies]

    async with (
        Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin,
        Producer(fake.bootstrap, dialer=fake, transactional_id="x") as producer,
    ):
        await admin.create_topic("in", 2)
        answer_with(fake, group({A: dict.fromkeys(TASKS, -2)}))
        async with producer.transaction():
            await producer.send("in", b"", partition=0)
        await producer.begin_transaction()
        await (await producer.send("in", b"", partition=0))
        await producer.abort_transaction()
        assert await lags() == [None, 0]  # nothing is committed, so the first lag is not known
        await admin.alter_offsets("app", {source: 0})
        assert await lags() == [4, 0]
        await admin.alter_offsets("app", {source: 1})
        assert await lags() == [0, 0]
        fake.control(ApiKey.FETCH, {"responses": [{"topic": "in", "partitions": [DENIED]}]})
        assert await lags() == [3, 0]
