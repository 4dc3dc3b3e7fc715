"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit of members, and what they exchange."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.types import ConsumerGroupMetadata, TopicPartition
from kafkaclient.wire.codec import decode_request, encode_response
from kafkaclient.wire.groups import (
    ConsumerAssignment,
    ConsumerSubscription,
    OffsetCommitByIdCall,
    OffsetCommitCall,
    assignment_in,
    subscription_in,
)
from kafkaclient.wire.membership import (
    HeartbeatCall,
    JoinedGroup,
    JoinGroupCall,
    LeaveGroupCall,
    SyncedGroup,
    SyncGroupCall,
)
from kafkaclient.wire.transactions import OffsetFetchByIdCall

MEMBER = ConsumerGroupMetadata("g", 7, "m", "i")
JOIN = JoinGroupCall("g", "m", "i", 6000, 60_000, {"range": b"me"}, "r" * 300)
CALLS: list[Any] = [
    JOIN,
    SyncGroupCall(MEMBER, "range", {"m": b"a"}),
    HeartbeatCall(MEMBER),
    LeaveGroupCall("g", "m", "over"),
]


def sent(call: Any, version: int) -> Any:
    return decode_request(call.encode(version, 1, "c")[4:]).message


@pytest.mark.parametrize("call", CALLS)
def test_all_versions_name_the_member(call: Any) -> None:
    for version in range(call.min_version, call.max_version + 1):
        message = sent(call, version)
        assert message.group_id == "g"
        if isinstance(call, LeaveGroupCall) and version >= 3:
            (left,) = message.members
            assert left.member_id == "m"
            assert left.reason == ("over" if version >= 5 else None)
            continue
        assert message.member_id == "m"
        static = version >= {11: 5, 13: 9, 12: 3, 14: 3}[call.api_key]
        if static:
            assert message.group_instance_id == "i"
        if not isinstance(call, JoinGroupCall | LeaveGroupCall):
            assert message.generation_id == 7


def test_a_join_has_its_protocols_and_a_reason_that_brokers_accept() -> None:
    message = sent(JOIN, 9)
    assert [(p.name, bytes(p.metadata)) for p in message.protocols] == [("range", b"me")]
    assert (message.protocol_type, len(message.reason)) == ("consumer", 255)
    assert (message.session_timeout_ms, message.rebalance_timeout_ms) == (6000, 60_000)


@pytest.mark.parametrize("version", range(4, 10))
def test_the_answer_to_a_join(version: int) -> None:
    fields: dict[str, Any] = {
        "error_code": 0,
        "generation_id": 3,
        "protocol_name": "range",
        "leader": "m",
        "skip_assignment": True,
        "member_id": "m",
        "members": [{"member_id": "m", "group_instance_id": None, "metadata": b"x"}],
    }
    answer = JOIN.decode(version, encode_response(11, version, 1, **fields)[8:])
    assert answer == JoinedGroup(0, 3, "range", "m", "m", {"m": b"x"}, version >= 9)


def test_a_leader_serves_static_members_first() -> None:
    members = [
        {"member_id": name, "group_instance_id": instance, "metadata": b""}
        for name, instance in [("a", None), ("z-1", "z"), ("b", None), ("y-2", "y")]
    ]
    answer = JOIN.decode(9, encode_response(11, 9, 1, members=members)[8:])
    assert list(answer.members) == ["y-2", "z-1", "a", "b"]


def test_the_answers_to_the_others() -> None:
    sync = encode_response(14, 5, 1, error_code=27, assignment=b"a")[8:]
    assert CALLS[1].decode(5, sync) == SyncedGroup(27, b"a")
    assert CALLS[2].decode(4, encode_response(12, 4, 1, error_code=25)[8:]).error_code == 25
    left = [{"member_id": "m", "group_instance_id": None, "error_code": 25}]
    assert CALLS[3].decode(5, encode_response(13, 5, 1, members=left)[8:]).error_code == 25
    assert CALLS[3].decode(2, encode_response(13, 2, 1, error_code=16)[8:]).error_code == 16


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_member_commits_with_its_generation(version: int) -> None:
    offsets = {TopicPartition("t", 1): 5}
    message = sent(OffsetCommitCall("g", offsets, MEMBER), version)
    assert message.generation_id_or_member_epoch == 7
    assert (message.member_id, message.group_instance_id) == ("m", "i")
    alone = sent(OffsetCommitCall("g", offsets), version)
    assert (alone.generation_id_or_member_epoch, alone.member_id) == (-1, "")


def test_offsets_of_topics_by_id() -> None:
    """While a topic is created again, its partitions may have different ids."""
    old, new = UUID(int=1), UUID(int=2)
    offsets = {TopicPartition("t", number): 10 + number for number in range(3)}
    ids = dict(zip(offsets, (old, new, old), strict=True))
    call = OffsetCommitByIdCall("g", offsets, MEMBER, topic_ids=ids)
    by_id = [
        (topic.topic_id, [(p.partition_index, p.committed_offset) for p in topic.partitions])
        for topic in sent(call, 10).topics
    ]
    assert by_id == [(old, [(0, 10), (2, 12)]), (new, [(1, 11)])]
    assert {topic.name for topic in sent(call, 9).topics} == {"t"}
    codes = [(0, 100), (2, 0)]
    topics = [
        {
            "topic_id": old,
            "partitions": [{"partition_index": p, "error_code": code} for p, code in codes],
        }
    ]
    answer = call.decode(10, encode_response(call.api_key, 10, 1, topics=topics)[8:])
    assert (answer.error_code, answer.unknown) == (0, [TopicPartition("t", 0)])


def test_fetched_offsets_of_topics_by_id() -> None:
    a, b = TopicPartition("a", 1), TopicPartition("b", 0)
    ids = {"a": UUID(int=1), "b": UUID(int=2)}
    call = OffsetFetchByIdCall("g", (a, b), topic_ids=ids)
    (group,) = sent(call, 10).groups
    assert [(t.topic_id, t.partition_indexes) for t in group.topics] == [
        (ids["a"], [1]),
        (ids["b"], [0]),
    ]
    topics = [
        {
            "topic_id": ids[tp.topic],
            "partitions": [
                {"partition_index": tp.partition, "committed_offset": offset, "error_code": code}
            ],
        }
        for tp, offset, code in ((a, 7, 0), (b, -1, 100))
    ]
    groups = [{"group_id": "g", "topics": topics}]
    answer = call.decode(10, encode_response(call.api_key, 10, 1, groups=groups)[8:])
    assert answer.error_code == 0, "a topic that is not known is no error of the others"
    assert [(each.offset, each.error_code) for each in map(answer.offsets.get, (a, b)) if each] == [
        (7, 0),
        (-1, 100),
    ]


partitions = st.sets(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)), max_size=6
).map(lambda found: tuple(sorted(found)))
user_data = st.none() | st.binary(max_size=5)


@given(st.lists(st.text(max_size=5), max_size=3), user_data, partitions, st.integers(-1, 2**31 - 1))
def test_subscriptions_round_trip(topics, data, owned, generation) -> None:
    made = ConsumerSubscription(tuple(topics), data, owned, generation)
    assert subscription_in(made.encode()) == made


@given(partitions, user_data)
def test_assignments_round_trip(found, data) -> None:
    made = ConsumerAssignment(found, data)
    assert assignment_in(made.encode()) == made


def test_formats_are_those_of_kafka_python() -> None:
    """kafka-python's classes are generated from Kafka's schemas."""
    from kafka.protocol.consumer import (  # noqa: PLC0415
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

    owned = (TopicPartition("t", 0), TopicPartition("t", 2))
    data = ConsumerSubscription(("t",), b"x", owned, 4).encode()
    read = ConsumerProtocolSubscription.decode(data)
    assert list(read.topics) == ["t"]
    assert (bytes(read.user_data), read.generation_id) == (b"x", 4)
    assert [(t.topic, list(t.partitions)) for t in read.owned_partitions] == [("t", [0, 2])]
    given_ = ConsumerProtocolAssignment.decode(ConsumerAssignment(owned, b"y").encode())
    assert [(t.topic, list(t.partitions)) for t in given_.assigned_partitions] == [("t", [0, 2])]


def test_a_member_that_its_leader_left_out_has_nothing() -> None:
    assert assignment_in(b"") == ConsumerAssignment((), None)
