"""Subscriptions, compared with bytes that Kafka Streams 4.3.1 made."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.streams import TaskId
from kafkaclient.streams.group_protocol import (
    AssignorError,
    FutureSubscriptionInfo,
    SubscriptionInfo,
    decode_subscription,
)
from tests.streams.group import tasks
from tests.streams.older_formats import subscription_bytes

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
def test_bytes_of_kafka_streams_are_decoded(info: SubscriptionInfo, encoded: str) -> None:
    assert decode_subscription(bytes.fromhex(encoded)) == info


@pytest.mark.parametrize("name", ["S0", "S1", "S2"])
def test_encoded_subscriptions_equal_those_of_kafka_streams(name: str) -> None:
    info, encoded = VECTORS[name]
    assert info.encode() == bytes.fromhex(encoded)


def test_before_version_7_offsets_are_lost_and_tasks_are_sorted() -> None:
    # In Java this is a set: the order of its two elements has no meaning.
    java = bytes.fromhex(VECTORS["S4"][1])
    ours = subscription_bytes(replace(S1, version=6))
    assert len(ours) == len(java)
    assert decode_subscription(ours) == decode_subscription(java) == VECTORS["S4"][0]


def test_sizes_by_version() -> None:
    info = replace(S1, client_tags={})
    sizes = [len(subscription_bytes(replace(info, version=version))) for version in range(1, 12)]
    assert sizes == [52, 63, 67, 67, 67, 67, 91, 92, 96, 98, 102]
    assert len(S0.encode()) == 41
    assert len(replace(S0, task_offset_sums={TaskId(0, 0): 0}).encode()) == 41 + 18


@pytest.mark.parametrize("version", [1, 2])
def test_versions_1_and_2_have_no_latest_supported_version(version: int) -> None:
    decoded = decode_subscription(subscription_bytes(replace(S1, version=version)))
    assert isinstance(decoded, SubscriptionInfo)
    assert decoded.latest_supported_version == -1
    assert decoded.task_offset_sums.keys() == tasks("0_0 0_1 1_0")


def test_a_newer_subscription_yields_its_versions() -> None:
    assert decode_subscription(bytes.fromhex("0000000c 0000000c")) == (12, 12)
    found = decode_subscription(bytes.fromhex("00000063 00000064") + b"later fields")
    assert found == FutureSubscriptionInfo(version=99, latest_supported_version=100)


def test_a_task_of_a_named_topology_is_decoded() -> None:
    info = replace(S0, version=10, task_offset_sums={TaskId(0, 0, "orders"): 5})
    assert decode_subscription(subscription_bytes(info)) == info


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
def test_an_encoded_subscription_decodes_to_the_same_values(info: SubscriptionInfo) -> None:
    assert decode_subscription(info.encode()) == info
    assert info.encode() == subscription_bytes(info)


@pytest.mark.parametrize("version", FROM_7)
@given(infos)
def test_older_versions_keep_their_fields(version: int, info: SubscriptionInfo) -> None:
    sums = {TaskId(*task[:2]): total for task, total in info.task_offset_sums.items()}
    old = replace(info, version=version, task_offset_sums=sums)
    decoded = decode_subscription(subscription_bytes(old))
    assert isinstance(decoded, SubscriptionInfo)
    assert decoded.task_offset_sums == sums
    assert decoded.user_end_point == info.user_end_point
    assert subscription_bytes(decoded) == subscription_bytes(old)


@given(infos, st.data())
def test_a_truncated_subscription_is_rejected(info: SubscriptionInfo, data: st.DataObject) -> None:
    encoded = info.encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        decode_subscription(encoded[:cut])


@given(st.binary(max_size=80) | st.binary(max_size=60).map(S0.encode()[:24].__add__))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    try:
        decode_subscription(data)
    except ProtocolError:
        return


def test_text_that_is_not_utf_8_is_rejected() -> None:
    broken = bytes.fromhex(f"0000000b 0000000b {HEAD} 00000002 c328 00000000 00 00000000 00000000")
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decode_subscription(broken)
    with pytest.raises(ProtocolError, match="version 0"):
        decode_subscription(bytes(41))
