"""Subscriptions against bytes that Kafka Streams 4.3.1 made."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.streams import TaskId
from kafkaclient.streams.subscription_info import (
    FutureSubscriptionInfo,
    SubscriptionInfo,
    decode_subscription,
)
from kafkaclient.streams.versions import AssignorError
from tests.streams.group import tasks

PROCESS = UUID("00112233-4455-6677-8899-aabbccddeeff")
S0 = SubscriptionInfo(process_id=PROCESS)
S1 = SubscriptionInfo(
    process_id=PROCESS,
    user_end_point="h1:9090",
    task_offset_sums={TaskId(0, 0): -2, TaskId(0, 1): 150_000, TaskId(1, 0): -3},
    unique_field=7,
    client_tags={"zone": "eu-1"},
)
S2 = SubscriptionInfo(
    process_id=PROCESS, unique_field=-1, error_code=AssignorError.SHUTDOWN_REQUESTED
)
HEAD = "00112233445566778899aabbccddeeff"
VECTORS = {
    "S0": (S0, f"0000000b 0000000b {HEAD} 00000000 00000000 00 00000000 00000000"),
    "S1": (
        S1,
        f"0000000b 0000000b {HEAD} 00000007 68313a39303930 00000003"
        "00000000 00000000 fffffffffffffffe ffff  00000000 00000001 00000000000249f0 ffff"
        "00000001 00000000 fffffffffffffffd ffff"
        "07 00000000 00000001 00000004 7a6f6e65 00000004 65752d31",
    ),
    "S2": (S2, f"0000000b 0000000b {HEAD} 00000000 00000000 ff 00000004 00000000"),
    "S3": (
        replace(S1, version=7, unique_field=0, client_tags={}),
        f"00000007 0000000b {HEAD} 00000007 68313a39303930 00000002"
        "00000000 00000002 00000000 fffffffffffffffe 00000001 00000000000249f0"
        "00000001 00000001 00000000 fffffffffffffffd",
    ),
    "S4": (
        replace(
            S1,
            version=6,
            unique_field=0,
            client_tags={},
            task_offset_sums={TaskId(0, 0): -2, TaskId(0, 1): -3, TaskId(1, 0): -3},
        ),
        f"00000006 0000000b {HEAD} 00000001 00000000 00000000"
        "00000002 00000001 00000000  00000000 00000001  00000007 68313a39303930",
    ),
}
FROM_7 = range(7, 12)


@pytest.mark.parametrize(("info", "encoded"), VECTORS.values(), ids=VECTORS)
def test_what_kafka_streams_wrote_is_read(info: SubscriptionInfo, encoded: str) -> None:
    assert decode_subscription(bytes.fromhex(encoded)) == info


@pytest.mark.parametrize("name", ["S0", "S1", "S2", "S3"])
def test_the_same_bytes_are_written(name: str) -> None:
    info, encoded = VECTORS[name]
    assert info.encode() == bytes.fromhex(encoded)


def test_fields_that_a_version_lacks_are_left_out() -> None:
    assert replace(S1, version=7).encode() == VECTORS["S3"][0].encode()


def test_before_version_7_offsets_are_lost_and_tasks_are_sorted() -> None:
    # A set in Java, so that the order of its two elements says nothing.
    java = bytes.fromhex(VECTORS["S4"][1])
    ours = replace(S1, version=6).encode()
    assert len(ours) == len(java)
    assert decode_subscription(ours) == decode_subscription(java) == VECTORS["S4"][0]


def test_sizes_by_version() -> None:
    info = replace(S1, client_tags={})
    sizes = [len(replace(info, version=version).encode()) for version in range(1, 12)]
    assert sizes == [52, 63, 67, 67, 67, 67, 91, 92, 96, 98, 102]
    assert len(S0.encode()) == 41
    assert len(replace(S0, task_offset_sums={TaskId(0, 0): 0}).encode()) == 41 + 18


@pytest.mark.parametrize("version", [1, 2])
def test_versions_1_and_2_have_no_latest_supported_version(version: int) -> None:
    decoded = decode_subscription(replace(S1, version=version).encode())
    assert isinstance(decoded, SubscriptionInfo)
    assert decoded.latest_supported_version == -1
    assert decoded.task_offset_sums.keys() == tasks("0_0 0_1 1_0")


def test_a_newer_subscription_yields_its_versions() -> None:
    assert decode_subscription(bytes.fromhex("0000000c 0000000c")) == (12, 12)
    found = decode_subscription(bytes.fromhex("00000063 00000064") + b"whatever it is")
    assert found == FutureSubscriptionInfo(version=99, latest_supported_version=100)


@pytest.mark.parametrize("version", [0, 12])
def test_other_versions_are_not_written(version: int) -> None:
    with pytest.raises(ValueError, match="1 to 11"):
        replace(S0, version=version).encode()


@pytest.mark.parametrize("version", [1, 6, 7, 9])
def test_named_topologies_need_version_10(version: int) -> None:
    info = replace(S0, task_offset_sums={TaskId(0, 0, "orders"): 5})
    assert decode_subscription(replace(info, version=10).encode()) == replace(info, version=10)
    with pytest.raises(ValueError, match="orders__0_0 is of a named topology"):
        replace(info, version=version).encode()


task_ids = st.builds(
    TaskId, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.sampled_from(["", "a", "ü"])
)
int32s = st.integers(-(2**31), 2**31 - 1)
infos = st.builds(
    SubscriptionInfo,
    process_id=st.uuids(),
    user_end_point=st.none() | st.text(min_size=1, max_size=20),
    task_offset_sums=st.dictionaries(task_ids, st.integers(-3, 2**63 - 1)),
    unique_field=st.integers(-128, 127),
    error_code=int32s,
    client_tags=st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
)


@given(infos)
def test_what_is_written_is_read_again(info: SubscriptionInfo) -> None:
    assert decode_subscription(info.encode()) == info


@pytest.mark.parametrize("version", FROM_7)
@given(infos)
def test_older_versions_keep_their_fields(version: int, info: SubscriptionInfo) -> None:
    sums = {TaskId(*task[:2]): total for task, total in info.task_offset_sums.items()}
    old = replace(info, version=version, task_offset_sums=sums)
    decoded = decode_subscription(old.encode())
    assert isinstance(decoded, SubscriptionInfo)
    assert decoded.task_offset_sums == sums
    assert decoded.user_end_point == info.user_end_point
    assert decoded.encode() == old.encode()


@given(infos, st.data())
def test_a_truncated_subscription_is_refused(info: SubscriptionInfo, data: st.DataObject) -> None:
    encoded = info.encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        decode_subscription(encoded[:cut])


@given(st.binary(max_size=80) | st.binary(max_size=60).map(S0.encode()[:24].__add__))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode_subscription(data)
    except ProtocolError:
        return


def test_text_that_is_not_utf_8_is_refused() -> None:
    broken = bytes.fromhex(f"0000000b 0000000b {HEAD} 00000002 c328 00000000 00 00000000 00000000")
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decode_subscription(broken)
    with pytest.raises(ProtocolError, match="version 0"):
        decode_subscription(bytes(41))
