"""The calls of the admin client, in every version, as the broker's side reads and answers them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import (
    AlterConfigsResult,
    AlterReassignmentsCall,
    AlterReassignmentsResult,
    ConfigEntry,
    ConfigKind,
    ConfigOperation,
    ConfigOutcome,
    ConfigSource,
    DescribeConfigsCall,
    DescribeConfigsResult,
    DescribedConfigs,
    DescribeLogDirsCall,
    DescribeLogDirsResult,
    DescribeQuorumCall,
    DescribeQuorumResult,
    IncrementalAlterConfigsCall,
    ListReassignmentsCall,
    ListReassignmentsResult,
    LogDir,
    OngoingReassignment,
    ReassignmentOutcome,
    ReplicaSize,
)
from kafkaclient.wire.codec import CodecCall, encode_response
from kafkaclient.wire.groups import (
    ConsumerAssignment,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsCall,
    DescribeGroupsResult,
    OffsetCommitCall,
    assignment_in,
    subscription_in,
)
from kafkaclient.wire.topics import CreatePartitionsCall, NewPartitions, TopicOutcome, TopicOutcomes
from kafkaclient.wire.transactions import PartitionCodes
from tests.wire.conftest import sent

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

# Every call, what a broker answers, and what that means in the newest version.
CALLS: list[tuple[CodecCall[Any], dict[str, Any], Any]] = [
    (
        CreatePartitionsCall((NewPartitions("t", 5, ((1, 2), (2, 3))),)),
        {"results": [{"name": "t", "error_code": 39, "error_message": "no"}]},
        TopicOutcomes((TopicOutcome("t", 39, "no"),), 7),
    ),
    (
        DescribeConfigsCall(((ConfigKind.TOPIC, "t"),), ("retention.ms",)),
        {
            "results": [
                {
                    "error_message": None,
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [
                        {
                            "name": "retention.ms",
                            "value": "5",
                            "config_source": 1,
                            "read_only": True,
                            "is_sensitive": False,
                        },
                        {
                            "name": "secret",
                            "value": None,
                            "config_source": 77,
                            "is_sensitive": True,
                        },
                    ],
                }
            ]
        },
        DescribeConfigsResult(
            (
                DescribedConfigs(
                    2,
                    "t",
                    0,
                    None,
                    (
                        ConfigEntry(
                            "retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG, True, False
                        ),
                        ConfigEntry("secret", None, ConfigSource.UNKNOWN, False, True),
                    ),
                ),
            ),
            7,
        ),
    ),
    (
        IncrementalAlterConfigsCall(
            (ConfigKind.BROKER, "1"),
            (("a", ConfigOperation.SET, "1"), ("b", ConfigOperation.DELETE, None)),
        ),
        {
            "responses": [
                {"resource_type": 4, "resource_name": "1", "error_code": 40, "error_message": "no"}
            ]
        },
        AlterConfigsResult((ConfigOutcome(4, "1", 40, "no"),), 7),
    ),
    (
        DescribeGroupsCall(("g",)),
        {
            "groups": [
                {
                    "error_code": 0,
                    "group_id": "g",
                    "group_state": "Stable",
                    "protocol_type": "consumer",
                    "protocol_data": "stream",
                    "members": [
                        {
                            "member_id": "m",
                            "client_id": "c",
                            "client_host": "/h",
                            "member_metadata": b"told",
                            "member_assignment": b"given",
                        }
                    ],
                }
            ]
        },
        DescribeGroupsResult(
            (
                DescribedGroup(
                    "g",
                    0,
                    None,
                    "Stable",
                    "consumer",
                    "stream",
                    (DescribedMember("m", "c", "/h", b"told", b"given"),),
                ),
            ),
            7,
        ),
    ),
    (
        OffsetCommitCall("g", {T1: 7}),
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "error_code": 25}]}]},
        PartitionCodes({T1: 25}, 7),
    ),
    (
        AlterReassignmentsCall({T0: (1, 2), T1: None, U0: (3,)}),
        {
            "error_message": None,
            "responses": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 1, "error_code": 85, "error_message": "no"}],
                },
            ],
        },
        AlterReassignmentsResult(0, None, (ReassignmentOutcome(T1, 85, "no"),), 7),
    ),
    (
        ListReassignmentsCall((T0, U0, T1)),
        {
            "error_message": None,
            "topics": [
                {
                    "name": "u",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "replicas": [3, 4, 1, 2],
                            "adding_replicas": [3, 4],
                            "removing_replicas": [1, 2],
                        }
                    ],
                }
            ],
        },
        ListReassignmentsResult(
            0, None, (OngoingReassignment(U0, (3, 4, 1, 2), (3, 4), (1, 2)),), 7
        ),
    ),
    (
        DescribeLogDirsCall({"t": (0, 1)}),
        {
            "results": [
                {
                    "log_dir": "/d",
                    "topics": [
                        {
                            "name": "t",
                            "partitions": [
                                {
                                    "partition_index": 1,
                                    "partition_size": 99,
                                    "offset_lag": 3,
                                    "is_future_key": True,
                                }
                            ],
                        }
                    ],
                    "total_bytes": 1000,
                    "usable_bytes": 900,
                }
            ]
        },
        DescribeLogDirsResult(0, (LogDir("/d", 0, (ReplicaSize(T1, 99, 3, True),), 1000, 900),), 7),
    ),
    (
        DescribeQuorumCall(),
        {
            "topics": [
                {
                    "topic_name": "__cluster_metadata",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "leader_id": 2,
                            "current_voters": [{"replica_id": 1}, {"replica_id": 2}],
                        }
                    ],
                }
            ]
        },
        DescribeQuorumResult(0, 2, (1, 2)),
    ),
]
EVERY = [
    pytest.param(*case, version, id=f"{type(case[0]).__name__}-{version}")
    for case in CALLS
    for version in range(case[0].min_version, case[0].max_version + 1)
]


@pytest.mark.parametrize(("call", "fields", "meaning", "version"), EVERY)
def test_every_version_is_understood_both_ways(call, fields, meaning, version) -> None:
    assert sent(call, version) is not None
    untold = isinstance(call, DescribeQuorumCall) or (
        # Brokers told it later than the rest.
        (isinstance(call, DescribeGroupsCall) and version == 0)
        or (isinstance(call, OffsetCommitCall) and version == 2)
    )
    throttled = {} if untold else {"throttle_time_ms": 7}
    answer = encode_response(call.api_key, version, 1, **throttled, **fields)[8:]
    result = call.decode(version, answer)
    if version == call.max_version:
        assert result == meaning


@pytest.mark.parametrize("call", [case[0] for case in CALLS], ids=lambda c: type(c).__name__)
@given(data=st.data())
def test_answers_that_are_none_are_refused(call, data) -> None:
    version = data.draw(st.integers(call.min_version, call.max_version))
    with contextlib.suppress(ProtocolError):
        call.decode(version, data.draw(st.binary(max_size=60)))


def test_partitions_without_replicas_leave_the_choice_to_the_controller() -> None:
    (topic,) = sent(CreatePartitionsCall((NewPartitions("t", 5),)), 3).topics
    assert (topic.count, topic.assignments) == (5, None)
    (topic,) = sent(CALLS[0][0], 3).topics
    assert [each.broker_ids for each in topic.assignments] == [[1, 2], [2, 3]]


def test_changes_of_a_configuration() -> None:
    (resource,) = sent(CALLS[2][0], 1).resources
    assert (resource.resource_type, resource.resource_name) == (4, "1")
    changes = [(c.name, c.config_operation, c.value) for c in resource.configs]
    assert changes == [("a", 0, "1"), ("b", 1, None)]


def test_a_move_and_its_end() -> None:
    message = sent(CALLS[5][0], 0)
    moves = {
        (topic.name, p.partition_index): p.replicas
        for topic in message.topics
        for p in topic.partitions
    }
    assert moves == {("t", 0): [1, 2], ("t", 1): None, ("u", 0): [3]}


def test_none_asks_for_everything() -> None:
    assert sent(ListReassignmentsCall(), 0).topics is None
    assert sent(DescribeLogDirsCall(), 4).topics is None
    (resource,) = sent(DescribeConfigsCall(((ConfigKind.TOPIC, "t"),)), 4).resources
    assert resource.configuration_keys is None


def test_disk_space_is_unknown_before_version_4() -> None:
    answer = encode_response(35, 3, 1, results=[{"log_dir": "/d", "topics": []}])[8:]
    (found,) = DescribeLogDirsCall().decode(3, answer).directories
    assert (found.total_bytes, found.usable_bytes) == (-1, -1)


def test_a_quorum_that_is_not_told() -> None:
    answer = encode_response(55, 2, 1, error_code=31, topics=[])[8:]
    assert DescribeQuorumCall().decode(2, answer) == DescribeQuorumResult(31, -1, ())


@given(st.binary(max_size=60))
def test_what_consumers_put_into_a_group_or_a_clear_error(data) -> None:
    with contextlib.suppress(ProtocolError):
        subscription_in(data)
    with contextlib.suppress(ProtocolError):
        assignment_in(data)


def test_what_consumers_put_into_a_group() -> None:
    """Version 1 of the subscription has the partitions that were owned behind the user data."""
    topics = b"\0\0\0\1" + b"\0\1t"
    assert subscription_in(b"\0\0" + topics + b"\0\0\0\2ab").user_data == b"ab"
    assert subscription_in(b"\0\1" + topics + b"\0\0\0\2ab" + b"\0\0\0\0").user_data == b"ab"
    assert subscription_in(b"\0\0" + topics + b"\xff\xff\xff\xff").user_data is None
    numbers = b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1"
    told = b"\0\0" + topics + numbers + b"\0\0\0\2ab"
    assert assignment_in(told) == ConsumerAssignment((T0, T1), b"ab")
