"""Assignments, compared with bytes that Kafka Streams 4.3.1 made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError, TaskAssignmentError
from kafkaclient.streams import TaskId
from kafkaclient.streams.group_protocol import (
    NO_REBALANCE,
    AssignmentInfo,
    HostInfo,
    align,
    tasks_by_partition,
)
from kafkaclient.types import TopicPartition
from tests.streams.older_formats import assignment_bytes

A0 = AssignmentInfo()
A1 = AssignmentInfo(
    active_tasks=(TaskId(0, 0), TaskId(1, 0)),
    standby_tasks={TaskId(0, 1): {TopicPartition("in", 1)}},
    hosts={HostInfo("h1", 9090): frozenset({TopicPartition("in", 0), TopicPartition("in2", 0)})},
    standby_hosts={HostInfo("h1", 9090): frozenset({TopicPartition("in", 1)})},
    next_rebalance_ms=1_700_000_000_000,
)
A2 = AssignmentInfo(version=9, active_tasks=(TaskId(0, 0),), next_rebalance_ms=0)
A3 = AssignmentInfo(error_code=4)
VECTORS = {
    "A0": (
        A0,
        "0000000b 0000000b 00000000 00000000 00000000 00000000 00000000 00000000 7fffffffffffffff",
    ),
    "A1": (
        A1,
        "0000000b 0000000b 00000002 00000000 00000000 00000000 00000001 00000000 00000000"
        "00000001 00000000 00000001 00000000 00000001 0002 696e 00000001"
        "00000002 00000000 0002 696e 00000001 0003 696e32"
        "00000001 0002 6831 00002382 00000002 00000000 00000000 00000001 00000000"
        "00000001 0002 6831 00002382 00000001 00000000 00000001  00000000 0000018bcfe56800",
    ),
    "A2": (
        A2,
        "00000009 0000000b 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
        "0000000000000000",
    ),
    "A3": (
        A3,
        "0000000b 0000000b 00000000 00000000 00000000 00000000 00000000 00000004 7fffffffffffffff",
    ),
}


@pytest.mark.parametrize(("info", "encoded"), VECTORS.values(), ids=VECTORS)
def test_bytes_of_kafka_streams_are_decoded(info: AssignmentInfo, encoded: str) -> None:
    assert AssignmentInfo.decode(bytes.fromhex(encoded)) == info


def test_encoded_assignments_equal_those_of_kafka_streams() -> None:
    for info, encoded in (VECTORS["A0"], VECTORS["A1"], VECTORS["A3"]):
        assert info.encode() == bytes.fromhex(encoded)
    assert assignment_bytes(A2) == bytes.fromhex(VECTORS["A2"][1])


def test_an_empty_assignment_takes_40_bytes() -> None:
    assert len(A0.encode()) == 40
    assert A0.next_rebalance_ms == NO_REBALANCE


@pytest.mark.parametrize("version", [0, 1, 6, 12, 99])
def test_other_versions_are_rejected(version: int) -> None:
    encoded = version.to_bytes(4, "big") + A0.encode()[4:]
    with pytest.raises(TaskAssignmentError, match=rf"version {version}; this client reads 7 to 11"):
        AssignmentInfo.decode(encoded)


def test_a_task_of_a_named_topology_is_decoded() -> None:
    info = replace(A0, version=10, active_tasks=(TaskId(0, 0, "orders"),))
    assert AssignmentInfo.decode(assignment_bytes(info)) == info


names = st.text(min_size=1, max_size=8)
int32s = st.integers(0, 2**31 - 1)
task_ids = st.builds(TaskId, int32s, int32s, st.sampled_from(["", "a", "ü𝄞"]))
partition_sets = st.frozensets(st.builds(TopicPartition, names, int32s), max_size=4)
hosts = st.dictionaries(st.builds(HostInfo, names, int32s), partition_sets, max_size=3)
infos = st.builds(
    AssignmentInfo,
    commonly_supported_version=int32s,
    active_tasks=st.lists(task_ids, max_size=4).map(tuple),
    standby_tasks=st.dictionaries(task_ids, partition_sets, max_size=3),
    hosts=hosts,
    standby_hosts=hosts,
    error_code=int32s,
    next_rebalance_ms=st.integers(0, 2**63 - 1),
)


@given(infos)
def test_an_encoded_assignment_decodes_to_the_same_values(info: AssignmentInfo) -> None:
    assert AssignmentInfo.decode(info.encode()) == info
    assert info.encode() == assignment_bytes(info)


def test_hosts_of_a_topic_without_name_are_rejected() -> None:
    encoded = bytes.fromhex(
        VECTORS["A1"][1].replace(
            "00000002 00000000 0002 696e 00000001 0003", "00000002 00000000 0002 696e 00000007 0003"
        )
    )
    with pytest.raises(ProtocolError, match="no topic with the index 1"):
        AssignmentInfo.decode(encoded)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("h1:9090", HostInfo("h1", 9090)),
        ("10.0.0.1:1", HostInfo("10.0.0.1", 1)),
        ("[::1]:65535", HostInfo("::1", 65535)),
    ],
)
def test_addresses(text: str, host: HostInfo) -> None:
    assert HostInfo.parse(text) == host
    assert str(host) == text


@pytest.mark.parametrize(
    "text", ["", "h1", "h1:", ":9090", "h1:0", "h1:65536", "h1:x", "::1:80", "h1:²", "[]:80"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="no host:port"):
        HostInfo.parse(text)


@pytest.mark.parametrize("version", [7, 8, 9])
@given(infos)
def test_before_version_10_tasks_are_two_numbers(version: int, info: AssignmentInfo) -> None:
    old = replace(
        info,
        version=version,
        active_tasks=tuple(TaskId(*task[:2]) for task in info.active_tasks),
        standby_tasks={TaskId(*task[:2]): own for task, own in info.standby_tasks.items()},
    )
    assert AssignmentInfo.decode(assignment_bytes(old)) == old


@given(infos, st.data())
def test_a_truncated_assignment_is_rejected(info: AssignmentInfo, data: st.DataObject) -> None:
    encoded = info.encode()
    with pytest.raises(ProtocolError):
        AssignmentInfo.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=120).map(b"\0\0\0\x0b\0\0\0\x0b".__add__))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    try:
        AssignmentInfo.decode(data)
    except ProtocolError:
        return


def test_a_topology_name_with_half_a_surrogate_pair_is_rejected() -> None:
    info = replace(A0, active_tasks=(TaskId(0, 0, "x"),)).encode()
    broken = info.replace(b"\0x", b"\xd8\x34")
    with pytest.raises(ProtocolError, match="not UTF-16"):
        AssignmentInfo.decode(broken)


def test_align_and_tasks_by_partition_are_inverse() -> None:
    one, two = TaskId(0, 0), TaskId(0, 1)
    partitions, aligned = align(
        {
            two: {TopicPartition("b", 1), TopicPartition("a", 1)},
            one: {TopicPartition("b", 0), TopicPartition("a", 10)},
        }
    )
    assert partitions == [("a", 1), ("a", 10), ("b", 0), ("b", 1)]
    assert aligned == (two, one, one, two)
    # The consumer may return its partitions in any order.
    assert tasks_by_partition(aligned, reversed(partitions)) == dict(
        zip(partitions, aligned, strict=True)
    )
    with pytest.raises(TaskAssignmentError, match="3 partitions with 4 tasks"):
        tasks_by_partition(aligned, partitions[:3])
