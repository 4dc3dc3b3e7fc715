from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest

from kafkaclient.errors import ProtocolError, UnsupportedVersionError
from kafkaclient.wire.api import ApiKey, BrokerInfo, MetadataResult, PartitionView, TopicInfo
from kafkaclient.wire.api_versions import ApiVersions, ApiVersionsCall
from kafkaclient.wire.codec import decode_request, encode_response
from kafkaclient.wire.fetch import ListOffsetsCall, ListOffsetsResult, PartitionOffset
from kafkaclient.wire.metadata import MetadataCall
from kafkaclient.wire.producer_ids import InitProducerIdCall, InitProducerIdResult
from kafkaclient.wire.telemetry import (
    GetTelemetrySubscriptionsCall,
    PushTelemetryCall,
    TelemetryPushed,
    TelemetrySubscription,
)
from kafkaclient.wire.topics import (
    CreateTopicsCall,
    DeleteTopicsCall,
    NewTopic,
    TopicOutcome,
    TopicOutcomes,
)
from tests.wire.conftest import sent

TOPIC_ID = uuid.UUID(int=77)

PARTITION = {
    "error_code": 0,
    "partition_index": 0,
    "leader_id": 1,
    "leader_epoch": 4,
    "replica_nodes": [1, 2],
    "isr_nodes": [1],
}

# Every call, the fields a broker answers with, and what they mean in the newest version.
CALLS: list[tuple[Any, dict[str, Any], Any]] = [
    (
        ApiVersionsCall(),
        {
            "api_keys": [{"api_key": 0, "min_version": 3, "max_version": 13}],
            "throttle_time_ms": 0,
        },
        ApiVersions(0, {0: (3, 13)}, 0),
    ),
    (
        MetadataCall(("t",)),
        {
            "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": "r"}],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [
                {"error_code": 0, "name": "t", "topic_id": TOPIC_ID, "partitions": [PARTITION]}
            ],
            "throttle_time_ms": 5,
        },
        MetadataResult(
            brokers=(BrokerInfo(1, "h", 9092, "r"),),
            cluster_id="c",
            controller_id=1,
            topics=(TopicInfo("t", 0, TOPIC_ID, False, (PartitionView(0, 1, 4, (1, 2), (1,)),)),),
            throttle_ms=5,
        ),
    ),
    (
        InitProducerIdCall(),
        {"throttle_time_ms": 5, "error_code": 0, "producer_id": 4000, "producer_epoch": 3},
        InitProducerIdResult(0, 4000, 3, 5),
    ),
    (
        CreateTopicsCall((NewTopic("t", 3, 1, {"retention.ms": "1"}),)),
        {
            "throttle_time_ms": 5,
            "topics": [{"name": "t", "error_code": 36, "error_message": "exists"}],
        },
        TopicOutcomes((TopicOutcome("t", 36, "exists"),), 5),
    ),
    (
        DeleteTopicsCall(("t",)),
        {"throttle_time_ms": 5, "responses": [{"name": "t", "error_code": 3}]},
        TopicOutcomes((TopicOutcome("t", 3, None),), 5),
    ),
    (
        ListOffsetsCall({"t": (0, 1)}),
        {
            "throttle_time_ms": 5,
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 1, "offset": 99, "leader_epoch": 2}],
                }
            ],
        },
        ListOffsetsResult((PartitionOffset("t", 1, 0, 99, -1, 2),), 5),
    ),
    (
        GetTelemetrySubscriptionsCall(TOPIC_ID),
        {
            "throttle_time_ms": 5,
            "error_code": 3,
            "client_instance_id": TOPIC_ID,
            "subscription_id": -9,
            "compression_types": [4, 1],
            "push_interval_ms": 300_000,
            "max_bytes": 1_048_576,
            "delta_temporality": True,
            "requested_metrics": ["org.apache.kafka.producer.", ""],
        },
        TelemetrySubscription(
            3,
            TOPIC_ID,
            -9,
            (4, 1),
            300_000,
            1_048_576,
            True,
            ("org.apache.kafka.producer.", ""),
            5,
        ),
    ),
    (
        PushTelemetryCall(TOPIC_ID, -9, True, 4, b"metrics"),
        {"throttle_time_ms": 5, "error_code": 118},
        TelemetryPushed(118, 5),
    ),
]
for _, fields, _ in CALLS[-3:-2]:
    fields["topics"][0]["partitions"][0]["error_code"] = 0

EVERY_VERSION = [
    pytest.param(call, version, fields, id=f"{call.api_key.name}-v{version}")
    for call, fields, _ in CALLS
    for version in range(call.min_version, call.max_version + 1)
]


@pytest.mark.parametrize(("call", "version", "fields"), EVERY_VERSION)
def test_a_broker_reads_the_request(call, version, fields):
    frame = call.encode(version, 42, "client")
    assert isinstance(frame, bytes)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = decode_request(frame[4:])
    assert request[:4] == (call.api_key, version, 42, "client")
    assert request.message is not None
    assert request.expects_response


@pytest.mark.parametrize(("call", "fields", "expected"), CALLS, ids=lambda x: type(x).__name__)
def test_the_answer_as_plain_values(call, fields, expected):
    frame = encode_response(call.api_key, call.max_version, 42, **fields)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 42
    assert call.decode(call.max_version, frame[8:]) == expected
    assert call.decode(call.max_version, memoryview(frame)[8:]) == expected


@pytest.mark.parametrize(("call", "version", "fields"), EVERY_VERSION)
def test_every_version_answers_and_none_reads_past_the_end(call, version, fields):
    payload = encode_response(call.api_key, version, 42, **fields)[8:]
    call.decode(version, payload)
    # kafka-python does not notice when a string at the very end is cut: here the error message.
    tail = len("exists") if isinstance(call, CreateTopicsCall) and version < 5 else 0
    for end in range(len(payload) - tail):
        with pytest.raises(ProtocolError, match=f"{call.api_key.name} v{version}|ends early"):
            call.decode(version, payload[:end])


@given(data=st.binary(max_size=120), case=st.sampled_from(EVERY_VERSION))
def test_random_answers_are_read_or_refused(data, case):
    call, version, _ = case.values
    with contextlib.suppress(ProtocolError):
        call.decode(version, data)


# --- requests in detail -------------------------------------------------------------------------


def test_metadata_asks_for_all_some_or_no_topics():
    for version in range(4, 14):
        assert sent(MetadataCall(None), version).topics is None
        assert sent(MetadataCall(()), version).topics == []
        assert [t.name for t in sent(MetadataCall(("a", "b")), version).topics] == ["a", "b"]
        quiet = MetadataCall(("a",), allow_auto_topic_creation=False)
        assert sent(quiet, version).allow_auto_topic_creation is False


def test_init_producer_id_bumps_an_epoch_where_the_version_can():
    call = InitProducerIdCall("tx", 1000, producer_id=5, producer_epoch=6)
    for version in range(6):
        message = sent(call, version)
        assert (message.transactional_id, message.transaction_timeout_ms) == ("tx", 1000)
        identity = (message.producer_id, message.producer_epoch)
        assert identity == ((5, 6) if version >= 3 else (-1, -1))


def test_create_topics_with_assignments_and_configs():
    topics = (
        NewTopic("a", configs={"cleanup.policy": "compact", "x": None}),
        NewTopic("b", assignments={0: (1, 2), 1: (2, 1)}),
    )
    message = sent(CreateTopicsCall(topics, timeout_ms=9, validate_only=True), 7)
    a, b = message.topics
    assert (a.num_partitions, a.replication_factor) == (-1, -1)
    assert [(c.name, c.value) for c in a.configs] == [("cleanup.policy", "compact"), ("x", None)]
    assert [(x.partition_index, x.broker_ids) for x in b.assignments] == [(0, [1, 2]), (1, [2, 1])]
    assert (message.timeout_ms, message.validate_only) == (9, True)


def test_delete_topics_names_them_in_both_forms():
    assert sent(DeleteTopicsCall(("a", "b")), 5).topic_names == ["a", "b"]
    assert [t.name for t in sent(DeleteTopicsCall(("a", "b")), 6).topics] == ["a", "b"]


def test_list_offsets_asks_for_the_end():
    message = sent(ListOffsetsCall({"t": (0, 3)}), 7)
    (topic,) = message.topics
    assert [(p.partition_index, p.timestamp) for p in topic.partitions] == [(0, -1), (3, -1)]
    assert message.replica_id == -1


@pytest.mark.parametrize("version", range(1, 8))
def test_list_offsets_sends_the_leader_epochs_that_it_is_given(version):
    message = sent(ListOffsetsCall({"t": (0, 3)}, epochs={("t", 3): 5}), version)
    (topic,) = message.topics
    assert [(p.partition_index, p.timestamp) for p in topic.partitions] == [(0, -1), (3, -1)]
    if version >= 4:
        assert [p.current_leader_epoch for p in topic.partitions] == [-1, 5]


def test_telemetry_names_the_client_and_carries_bytes():
    asked = sent(GetTelemetrySubscriptionsCall(TOPIC_ID), 0)
    assert asked.client_instance_id == TOPIC_ID
    pushed = sent(PushTelemetryCall(TOPIC_ID, -9, True, 4, b"metrics" * 100), 0)
    assert (pushed.client_instance_id, pushed.subscription_id) == (TOPIC_ID, -9)
    assert (pushed.terminating, pushed.compression_type) == (True, 4)
    assert pushed.metrics == b"metrics" * 100
    assert sent(PushTelemetryCall(TOPIC_ID, 1, False, 0, b""), 0).metrics == b""


# --- ApiVersions --------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", range(5))
def test_a_broker_too_old_for_the_question_answers_in_version_0(asked):
    ours = [{"api_key": 18, "min_version": 0, "max_version": 2}]
    frame = encode_response(ApiKey.API_VERSIONS, 0, 1, error_code=35, api_keys=ours)
    answer = ApiVersionsCall().decode(asked, frame[8:])
    assert answer.error_code == 35
    assert answer.pick(ApiKey.API_VERSIONS, 0, 4) == 2


def test_an_api_versions_answer_never_has_a_flexible_header():
    frame = encode_response(ApiKey.API_VERSIONS, 3, 1, error_code=0, api_keys=[])
    assert frame[8:10] == b"\0\0"  # the error code at once, no tagged fields before it


FEATURES = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 99), max_size=3)


@pytest.mark.parametrize("version", range(5))
@given(
    ranges=st.dictionaries(
        st.integers(0, 99), st.tuples(st.integers(0, 9), st.integers(10, 19)), max_size=5
    ),
    features=FEATURES,
    supported=FEATURES,
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_api_versions_are_read_as_the_schema_says(
    version, ranges, features, supported, throttle_ms
):
    frame = encode_response(
        ApiKey.API_VERSIONS,
        version,
        1,
        error_code=0,
        api_keys=[
            {"api_key": key, "min_version": oldest, "max_version": newest}
            for key, (oldest, newest) in ranges.items()
        ],
        throttle_time_ms=throttle_ms,
        supported_features=[
            {"name": name, "min_version": 1, "max_version": level}
            for name, level in supported.items()
        ],
        finalized_features_epoch=7,
        finalized_features=[
            {"name": name, "min_version_level": 0, "max_version_level": level}
            for name, level in features.items()
        ],
        zk_migration_ready=True,
    )
    answer = ApiVersionsCall().decode(version, frame[8:])
    assert (answer.error_code, answer.ranges) == (0, ranges)
    assert answer.throttle_ms == (throttle_ms if version >= 1 else 0)
    assert answer.features == (features if version >= 3 else {})


@pytest.mark.parametrize("version", range(5))
def test_the_client_names_its_software(version):
    message = sent(ApiVersionsCall("software", "1.2"), version)
    software = (message.client_software_name, message.client_software_version)
    assert software == (("software", "1.2") if version >= 3 else ("", ""))


def test_pick_takes_the_newest_common_version():
    versions = ApiVersions(0, {ApiKey.PRODUCE: (3, 11), ApiKey.METADATA: (9, 12)})
    assert versions.pick(ApiKey.PRODUCE, 3, 12) == 11
    assert versions.pick(ApiKey.PRODUCE, 3, 9) == 9
    assert versions.pick(ApiKey.METADATA, 4, 9) == 9


@pytest.mark.parametrize(
    ("key", "oldest", "newest", "message"),
    [
        (ApiKey.PRODUCE, 4, 5, "PRODUCE: the broker supports 6 to 9, this client 4 to 5"),
        (ApiKey.PRODUCE, 10, 12, "PRODUCE: the broker supports 6 to 9, this client 10 to 12"),
        (ApiKey.METADATA, 0, 9, "does not offer METADATA"),
    ],
)
def test_pick_without_a_common_version(key, oldest, newest, message):
    with pytest.raises(UnsupportedVersionError, match=message):
        ApiVersions(0, {ApiKey.PRODUCE: (6, 9)}).pick(key, oldest, newest)


# --- metadata answers ---------------------------------------------------------------------------


def test_topics_without_a_name_are_left_out():
    nameless = {"error_code": 100, "name": None, "topic_id": TOPIC_ID, "partitions": []}
    frame = encode_response(3, 12, 1, brokers=[], topics=[nameless])
    assert MetadataCall().decode(12, frame[8:]).topics == ()


def test_the_zero_topic_id_means_none():
    topic = {"error_code": 0, "name": "t", "partitions": []}
    frame = encode_response(3, 12, 1, brokers=[], topics=[topic])
    assert MetadataCall().decode(12, frame[8:]).topics[0].topic_id is None


def test_a_top_level_error_is_kept():
    frame = encode_response(3, 13, 1, brokers=[], topics=[], error_code=129)
    assert MetadataCall().decode(13, frame[8:]).error_code == 129


# --- the broker's side --------------------------------------------------------------------------


def test_unknown_apis_and_versions_decode_to_no_message():
    for key, version in ((999, 0), (18, 99), (3, -1)):
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
        frame += b"\0\0\0\7" + b"\0\2me" + b"anything"
        request = decode_request(frame)
        assert request == (key, version, 7, "me", None)
        assert request.expects_response


def test_produce_with_acks_0_expects_no_response():
    for acks, expected in ((0, False), (1, True), (-1, True)):
        message = ProduceRequest[9](acks=acks, timeout_ms=1, topic_data=[])
        message.with_header(correlation_id=1, client_id="c")
        frame = bytes(message.encode(header=True, framed=True))
        assert decode_request(frame[4:]).expects_response is expected


@given(data=st.binary(max_size=120))
def test_random_requests_are_read_or_refused(data):
    with contextlib.suppress(ProtocolError):
        decode_request(data)


@given(
    data=st.binary(max_size=80), key=st.sampled_from([0, 3, 18, 19, 22]), version=st.integers(0, 13)
)
def test_requests_with_random_bodies_are_read_or_refused(data, key, version):
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\0"
    with contextlib.suppress(ProtocolError):
        decode_request(header + data)


def test_a_misspelt_response_field_is_an_error():
    with pytest.raises(ValueError, match="eror_code"):
        encode_response(ApiKey.INIT_PRODUCER_ID, 4, 1, eror_code=0)
    with pytest.raises(ValueError, match="nme"):
        encode_response(ApiKey.METADATA, 9, 1, topics=[{"nme": "t"}])


def test_offsets_of_committed_records():
    call = ListOffsetsCall({"t": (0,)}, read_committed=True)
    levels = {v: sent(call, v).isolation_level for v in range(1, 8)}
    assert levels.pop(1) == 0  # which cannot say it
    assert set(levels.values()) == {1}
