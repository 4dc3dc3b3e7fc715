"""Fetch against kafka-python's codec, byte for byte, and against hostile bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest

from kafkaclient.errors import ProtocolError, UnsupportedVersionError
from kafkaclient.wire.api import BrokerInfo
from kafkaclient.wire.codec import decode_request, encode_response
from kafkaclient.wire.fetch import (
    AbortedTransaction,
    FetchByNameCall,
    FetchCall,
    FetchedPartition,
    FetchPartition,
    FetchTopic,
)
from tests.wire.conftest import id_of

VERSIONS = range(4, 17)
versions = st.sampled_from(VERSIONS)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(min_size=1, max_size=12)


wanted = st.builds(FetchPartition, st.integers(0, 2**31 - 1), int64, int32, int32, int32)
topics = st.lists(
    st.tuples(names, st.lists(wanted, max_size=3)), max_size=3, unique_by=lambda t: t[0]
)


def call_of(asked, **options) -> FetchCall:
    found = tuple(FetchTopic(name, id_of(name).bytes, parts) for name, parts in asked)
    return FetchCall(found, 500, 1, 10_000, **options)


@given(versions, st.integers(0, 2**31 - 1), names, topics, st.booleans(), names)
def test_request_equals_the_reference_byte_for_byte(
    version, correlation_id, client_id, asked, read_committed, rack
):
    call = call_of(asked, read_committed=read_committed, rack=rack)
    message = FetchRequest(
        version=version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_000,
        isolation_level=int(read_committed),
        rack_id=rack,
        topics=[
            FetchRequest.FetchTopic(
                topic=name,
                topic_id=id_of(name),
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        partition=p.partition,
                        current_leader_epoch=p.leader_epoch,
                        fetch_offset=p.offset,
                        last_fetched_epoch=p.last_epoch,
                        partition_max_bytes=p.max_bytes,
                    )
                    for p in parts
                ],
            )
            for name, parts in asked
        ],
    )
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    ours = call.encode(version, correlation_id, client_id)
    assert ours == bytes(message.encode(header=True, framed=True))
    assert decode_request(ours[4:]).message is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_as_plain_values(version):
    aborted = [{"producer_id": 7, "first_offset": 12}, {"producer_id": 8, "first_offset": 40}]
    frame = encode_response(
        1,
        version,
        99,
        throttle_time_ms=5,
        error_code=0,
        responses=[
            {
                "topic": "t",
                "topic_id": id_of("t"),
                "partitions": [
                    {
                        "partition_index": 3,
                        "error_code": 6,
                        "high_watermark": 100,
                        "last_stable_offset": 90,
                        "log_start_offset": 10,
                        "aborted_transactions": aborted,
                        "preferred_read_replica": 2,
                        "records": b"some records",
                        "current_leader": {"leader_id": 1, "leader_epoch": 4},
                        "diverging_epoch": {"epoch": 3, "end_offset": 55},
                    },
                    {"partition_index": 4, "records": None, "aborted_transactions": None},
                ],
            }
        ],
        node_endpoints=[{"node_id": 1, "host": "h", "port": 9, "rack": None}],
    )
    result = call_of([("t", [])]).decode(version, frame[8:])
    found, empty = result.partitions
    assert found == FetchedPartition(
        "t",
        3,
        6,
        100,
        90,
        10 if version >= 5 else -1,
        (AbortedTransaction(7, 12), AbortedTransaction(8, 40)),
        2 if version >= 11 else -1,
        memoryview(b"some records"),
        1 if version >= 12 else -1,
        4 if version >= 12 else -1,
        55 if version >= 12 else -1,
    )
    assert (empty.aborted, bytes(empty.records)) == ((), b"")
    assert result.throttle_ms == 5
    assert result.endpoints == ((BrokerInfo(1, "h", 9, None),) if version >= 16 else ())
    assert result.size == len(frame) - 8


def test_topics_without_id_go_by_name():
    topic = FetchTopic("t", None, [FetchPartition(0, 0, 1)])
    call = FetchByNameCall((topic,), 0, 0, 1)
    assert (call.max_version, FetchCall.max_version) == (12, 16)
    request = decode_request(call.encode(12, 1, "c")[4:])
    assert request.message.topics[0].topic == "t"
    with pytest.raises(UnsupportedVersionError, match="has none"):
        FetchCall((topic,), 0, 0, 1).encode(13, 1, "c")
    for version in (3, 17):
        with pytest.raises(UnsupportedVersionError, match="4 to 16"):
            FetchCall((), 0, 0, 1).encode(version, 1, "c")
        with pytest.raises(UnsupportedVersionError, match="4 to 16"):
            FetchCall((), 0, 0, 1).decode(version, b"")


def test_a_topic_id_that_was_not_asked_for_is_left_out():
    other = {"topic_id": id_of("other"), "partitions": [{"partition_index": 0, "records": b""}]}
    mine = {"topic_id": id_of("t"), "partitions": [{"partition_index": 5, "records": b""}]}
    frame = encode_response(1, 16, 1, responses=[other, mine])
    (found,) = call_of([("t", [])]).decode(16, frame[8:]).partitions
    assert (found.topic, found.partition) == ("t", 5)


@given(versions, st.binary(max_size=200))
def test_any_bytes_give_a_result_or_a_protocol_error(version, payload):
    with contextlib.suppress(ProtocolError):
        call_of([("t", [])]).decode(version, payload)


@given(versions, st.data())
def test_an_answer_cut_short_is_a_protocol_error(version, data):
    part = {"partition_index": 1, "records": b"x" * 20}
    topic = {"topic": "t", "topic_id": id_of("t"), "partitions": [part]}
    payload = encode_response(1, version, 1, responses=[topic])[8:]
    end = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(ProtocolError):
        call_of([("t", [])]).decode(version, payload[:end])
