"""Metadata by hand against kafka-python's classes, which are generated from Kafka's schemas."""

from __future__ import annotations

import contextlib
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import ApiKey, BrokerInfo, MetadataResult, PartitionView, TopicInfo
from kafkaclient.wire.codec import decode_request, encode_response
from kafkaclient.wire.metadata import MetadataCall, TopicCache

versions = st.sampled_from(range(4, 14))
int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=12)
nullable_names = st.none() | names

# Few lengths, so that neighbours often have the same, and often have not; now and then so many
# nodes that a compact array counts them in two bytes.
nodes = st.lists(st.integers(0, 3), max_size=3) | st.just([7] * 130)

operations = st.sets(st.integers(0, 30), max_size=3)  # of a bit field

partitions = st.builds(
    dict,
    error_code=st.integers(-1, 130),
    partition_index=int32,
    leader_id=int32,
    leader_epoch=int32,
    replica_nodes=nodes,
    isr_nodes=nodes,
    offline_replicas=nodes,
)
topics = st.builds(
    dict,
    error_code=st.integers(-1, 130),
    name=names,
    topic_id=st.uuids(),
    is_internal=st.booleans(),
    partitions=st.lists(partitions, max_size=6),
    authorized_operations=operations,
)
topic_lists = st.lists(topics, max_size=3, unique_by=lambda topic: topic["name"])
brokers = st.builds(dict, node_id=int32, host=names, port=int32, rack=nullable_names)


def encoded(version, topics, **fields):
    """What follows the frame's size and the correlation id."""
    return encode_response(ApiKey.METADATA, version, 1, topics=topics, **fields)[8:]


def topic_info(version, topic):
    return TopicInfo(
        topic["name"],
        topic["error_code"],
        topic["topic_id"] if version >= 10 and topic["topic_id"].int else None,
        topic["is_internal"],
        tuple(
            PartitionView(
                p["partition_index"],
                p["leader_id"],
                p["leader_epoch"] if version >= 9 else -1,
                tuple(p["replica_nodes"]),
                tuple(p["isr_nodes"]),
            )
            for p in topic["partitions"]
        ),
    )


# --- requests -----------------------------------------------------------------------------------


@given(
    version=versions,
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=names,
    asked=st.none() | st.lists(names, max_size=3).map(tuple),
    create=st.booleans(),
)
def test_a_request_is_read_as_it_was_meant(version, correlation_id, client_id, asked, create):
    frame = MetadataCall(asked, create).encode(version, correlation_id, client_id)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    request = decode_request(frame[4:])
    assert request[:4] == (ApiKey.METADATA, version, correlation_id, client_id)
    message = request.message
    assert (None if asked is None else [topic.name for topic in message.topics]) == (
        None if asked is None else list(asked)
    )
    assert message.allow_auto_topic_creation is create
    assert not message.include_topic_authorized_operations
    assert not message.include_cluster_authorized_operations
    # kafka-python writes the same, to the last byte.
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    assert bytes(message.encode(header=True, framed=True)) == frame


# --- answers ------------------------------------------------------------------------------------


@given(
    version=versions,
    known=st.lists(brokers, max_size=3),
    topics=topic_lists,
    cluster_id=nullable_names,
    controller_id=int32,
    throttle_ms=int32,
    allowed=operations,
    error_code=st.integers(-1, 130),
)
def test_an_answer_says_what_the_reference_put_into_it(
    version, known, topics, cluster_id, controller_id, throttle_ms, allowed, error_code
):
    payload = encoded(
        version,
        topics,
        brokers=known,
        cluster_id=cluster_id,
        controller_id=controller_id,
        throttle_time_ms=throttle_ms,
        authorized_operations=allowed,
        error_code=error_code,
    )
    expected = MetadataResult(
        tuple(BrokerInfo(**broker) for broker in known),
        cluster_id,
        controller_id,
        tuple(topic_info(version, topic) for topic in topics),
        throttle_ms,
        error_code if version >= 13 else 0,
    )
    assert MetadataCall().decode(version, payload) == expected
    assert MetadataCall().decode(version, memoryview(payload)) == expected
    for end in range(0, len(payload), len(payload) // 10 + 1):
        with pytest.raises(ProtocolError, match=rf"METADATA v{version} response of {end} bytes"):
            MetadataCall().decode(version, payload[:end])


def partition(index, replicas, *, tags=b"\0"):
    """A partition as of version 12, as a broker writes it."""
    array = struct.pack(f">B{len(replicas)}i", len(replicas) + 1, *replicas)
    return struct.pack(">hiii", 0, index, replicas[0], 5) + array + array + b"\1" + tags


def test_partitions_with_tagged_fields_stand_between_others():
    """A broker that is newer than this client may add fields (KIP-482)."""
    added = b"\2\7\3new\x09\1!"
    told = (
        partition(0, (1, 2)) + partition(1, (2, 1), tags=added) + partition(2, (1, 2))
        + partition(3, (3,)) + partition(4, (3,)) + partition(5, (2, 1), tags=added)
    )  # fmt: skip
    empty = {"name": "t", "error_code": 0, "topic_id": uuid.UUID(int=1), "partitions": []}
    before, after = encoded(12, [empty]).split(uuid.UUID(int=1).bytes + b"\0\1", 1)
    payload = before + uuid.UUID(int=1).bytes + b"\0\7" + told + after
    (topic,) = MetadataCall().decode(12, payload).topics
    replicas = [(1, 2), (2, 1), (1, 2), (3,), (3,), (2, 1)]
    assert topic.partitions == tuple(
        PartitionView(n, r[0], 5, r, r) for n, r in enumerate(replicas)
    )


@given(data=st.binary(max_size=80), version=versions, topics=topic_lists, at=st.integers(0))
def test_hostile_answers_are_read_or_refused(data, version, topics, at):
    payload = bytearray(encoded(version, topics))
    at %= len(payload)
    payload[at : at + len(data)] = data
    with contextlib.suppress(ProtocolError):
        MetadataCall().decode(version, payload)


# --- what has been told before ------------------------------------------------------------------


@given(st.lists(st.tuples(versions, topic_lists), max_size=6))
def test_what_was_told_before_changes_no_answer(answers):
    told = TopicCache()
    for version, topics in answers:
        payload = encoded(version, topics)
        fresh = MetadataCall().decode(version, payload)
        assert MetadataCall(None, cache=told).decode(version, payload) == fresh
        again = MetadataCall(None, cache=told).decode(version, payload)
        assert again == fresh


@given(version=versions, topics=topic_lists)
def test_a_topic_that_is_told_once_more_is_the_same_object(version, topics):
    told = TopicCache()
    first = MetadataCall(None, cache=told).decode(version, encoded(version, topics)).topics
    other = encoded(version, topics[::-1], throttle_time_ms=3)
    again = MetadataCall(None, cache=told).decode(version, other).topics[::-1]
    assert all(a is b for a, b in zip(first, again, strict=True))


def test_only_the_topic_that_changed_is_decoded():
    told, call = TopicCache(), MetadataCall()
    topics = [
        {
            "error_code": 0,
            "name": name,
            "topic_id": uuid.UUID(int=n + 1),
            "partitions": [{"error_code": 0, "partition_index": 0, "leader_id": 1}],
        }
        for n, name in enumerate(("a", "b", "c"))
    ]
    call = MetadataCall(None, cache=told)
    a, b, c = call.decode(13, encoded(13, topics)).topics
    topics[1]["partitions"][0]["leader_id"] = 2
    a2, b2, c2 = call.decode(13, encoded(13, topics)).topics
    assert (a2 is a, c2 is c) == (True, True)
    assert (b.partitions[0].leader, b2.partitions[0].leader) == (1, 2)
    told.forget("a")
    a3, b3, _ = call.decode(13, encoded(13, topics)).topics
    assert a3 == a
    assert a3 is not a
    assert b3 is b2
