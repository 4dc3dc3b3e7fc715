"""Assignments against bytes that Kafka Streams 4.3.1 made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError, TaskAssignmentError
from kafkaclient.streams import TaskId
from kafkaclient.streams.assignment_info import (
    NO_REBALANCE,
    AssignmentInfo,
    HostInfo,
    align,
    tasks_by_partition,
)
from kafkaclient.streams.data import read_utf, utf
from kafkaclient.types import TopicPartition
from kafkaclient.wire.reader import Reader

A0 = AssignmentInfo()
A1 = AssignmentInfo(
    active_tasks=(TaskId(0, 0), TaskId(1, 0)),
    standby_tasks={TaskId(0, 1): {TopicPartition("in", 1)}},
    partitions_by_host={HostInfo("h1", 9090): {TopicPartition("in", 0), TopicPartition("in2", 0)}},
    standby_partitions_by_host={HostInfo("h1", 9090): {TopicPartition("in", 1)}},
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
def test_kafka_streams_bytes(info: AssignmentInfo, encoded: str) -> None:
    assert AssignmentInfo.decode(bytes.fromhex(encoded)) == info
    assert info.encode() == bytes.fromhex(encoded)


def test_an_empty_assignment_takes_40_bytes() -> None:
    assert len(A0.encode()) == 40
    assert A0.next_rebalance_ms == NO_REBALANCE


@pytest.mark.parametrize("version", [0, 1, 6, 12, 99])
def test_other_versions_are_refused(version: int) -> None:
    encoded = version.to_bytes(4, "big") + A0.encode()[4:]
    with pytest.raises(TaskAssignmentError, match=rf"version {version}; this client reads 7 to 11"):
        AssignmentInfo.decode(encoded)
    with pytest.raises(ValueError, match="7 to 11 can be written"):
        replace(A0, version=version).encode()


def test_named_topologies_need_version_10() -> None:
    info = replace(A0, version=10, active_tasks=(TaskId(0, 0, "orders"),))
    assert AssignmentInfo.decode(info.encode()) == info
    with pytest.raises(ValueError, match="orders__0_0 is of a named topology"):
        replace(info, version=9).encode()


names = st.text(min_size=1, max_size=8)
int32s = st.integers(0, 2**31 - 1)
task_ids = st.builds(TaskId, int32s, int32s, st.sampled_from(["", "a", "ü𝄞"]))
partition_sets = st.frozensets(st.builds(TopicPartition, names, int32s), max_size=4)
hosts = st.dictionaries(st.builds(HostInfo, names, int32s), partition_sets, max_size=3)
infos = st.builds(
    AssignmentInfo,
    version=st.sampled_from([10, 11]),
    commonly_supported_version=int32s,
    active_tasks=st.lists(task_ids, max_size=4).map(tuple),
    standby_tasks=st.dictionaries(task_ids, partition_sets, max_size=3),
    partitions_by_host=hosts,
    standby_partitions_by_host=hosts,
    error_code=int32s,
    next_rebalance_ms=st.integers(0, 2**63 - 1),
)


@given(infos)
def test_what_is_written_is_read_again(info: AssignmentInfo) -> None:
    assert AssignmentInfo.decode(info.encode()) == info


@pytest.mark.parametrize("version", [7, 8, 9])
@given(infos)
def test_before_version_10_tasks_are_two_numbers(version: int, info: AssignmentInfo) -> None:
    old = replace(
        info,
        version=version,
        active_tasks=tuple(TaskId(*task[:2]) for task in info.active_tasks),
        standby_tasks={TaskId(*task[:2]): own for task, own in info.standby_tasks.items()},
    )
    assert AssignmentInfo.decode(old.encode()) == old


@given(infos, st.data())
def test_a_truncated_assignment_is_refused(info: AssignmentInfo, data: st.DataObject) -> None:
    encoded = info.encode()
    with pytest.raises(ProtocolError):
        AssignmentInfo.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=120).map(b"\0\0\0\x0b\0\0\0\x0b".__add__))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        AssignmentInfo.decode(data)
    except ProtocolError:
        return


def test_a_topic_that_the_dictionary_lacks_is_refused() -> None:
    encoded = bytearray(A1.encode())
    at = encoded.index(bytes.fromhex("00000002 00000000 0002 696e")) + 4
    encoded[at + 3] = 9
    with pytest.raises(ProtocolError, match=r"topic 0 .* is not in the dictionary"):
        AssignmentInfo.decode(encoded)


def test_modified_utf_8() -> None:
    assert utf("a\0ü𝄞") == bytes.fromhex("000b 61 c080 c3bc eda0b4 edb49e")
    assert read_utf(Reader(utf("a\0ü𝄞"), flexible=False)) == "a\0ü𝄞"
    with pytest.raises(ValueError, match="at most 65535"):
        utf("x" * 65536)
    assert read_utf(Reader(utf("x" * 65535), flexible=False)) == "x" * 65535
    for broken in ("0002 c328", "0003 eda0b4", "0001 c0"):
        with pytest.raises(ProtocolError, match="not modified UTF-8"):
            read_utf(Reader(bytes.fromhex(broken), flexible=False))


def test_a_topology_name_of_half_a_character_is_refused() -> None:
    info = replace(A0, active_tasks=(TaskId(0, 0, "x"),)).encode()
    broken = info.replace(b"\0x", b"\xd8\x34")
    with pytest.raises(ProtocolError, match="not UTF-16"):
        AssignmentInfo.decode(broken)


def test_tasks_are_aligned_with_partitions() -> None:
    one, two = TaskId(0, 0), TaskId(0, 1)
    partitions, aligned = align(
        {
            two: {TopicPartition("b", 1), TopicPartition("a", 1)},
            one: {TopicPartition("b", 0), TopicPartition("a", 10)},
        }
    )
    assert partitions == [("a", 1), ("a", 10), ("b", 0), ("b", 1)]
    assert aligned == (two, one, one, two)
    # The consumer may hand its partitions over in any order.
    assert tasks_by_partition(aligned, reversed(partitions)) == dict(
        zip(partitions, aligned, strict=True)
    )
    with pytest.raises(TaskAssignmentError, match="3 partitions with 4 tasks"):
        tasks_by_partition(aligned, partitions[:3])
