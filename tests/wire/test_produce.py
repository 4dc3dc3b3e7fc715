from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from kafkaclient.errors import ProtocolError, UnsupportedVersionError
from kafkaclient.wire.api import BrokerInfo
from kafkaclient.wire.codec import decode_request, encode_response
from kafkaclient.wire.produce import PartitionResult, decode_response, encode_request
from tests.wire.conftest import id_of

VERSIONS = range(3, 14)
versions = st.sampled_from(VERSIONS)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=12).filter(lambda name: name != "")
nullable_names = st.none() | names

topic_lists = st.lists(
    st.tuples(
        names, st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=300)), max_size=3)
    ),
    max_size=3,
)

partitions = st.builds(
    dict,
    index=int32,
    error_code=st.integers(-1, 130),
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    record_errors=st.lists(
        st.builds(dict, batch_index=int32, batch_index_error_message=nullable_names), max_size=2
    ),
    error_message=nullable_names,
    current_leader=st.none() | st.builds(dict, leader_id=int32, leader_epoch=int32),
)
responses = st.lists(
    st.builds(dict, name=names, partition_responses=st.lists(partitions, max_size=3)), max_size=3
)
endpoints = st.lists(
    st.builds(dict, node_id=int32, host=names, port=int32, rack=nullable_names), max_size=3
)


def asked(version: int, topic: str) -> str | bytes:
    """How a request of the version names the topic."""
    return topic if version < 13 else id_of(topic).bytes


def told(version: int, topics: list[dict]) -> tuple[list[dict], dict[bytes, str]]:
    """The topics of a response with their ids, and the names of the ids."""
    fields = [topic | {"topic_id": id_of(topic["name"])} for topic in topics]
    return fields, {id_of(topic["name"]).bytes: topic["name"] for topic in topics}


# --- requests -----------------------------------------------------------------------------------


@given(
    version=versions,
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=names,
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=st.integers(0, 2**31 - 1),
    topics=topic_lists,
    transactional_id=nullable_names,
)
def test_request_equals_the_reference_byte_for_byte(
    version, correlation_id, client_id, acks, timeout_ms, topics, transactional_id
):
    named = [(asked(version, topic), batches) for topic, batches in topics]
    pieces = encode_request(
        version, correlation_id, client_id, acks, timeout_ms, named, transactional_id
    )
    topic_class = ProduceRequest.TopicProduceData
    partition_class = topic_class.PartitionProduceData
    request = ProduceRequest[version](
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            topic_class(
                name=topic,
                topic_id=id_of(topic),
                partition_data=[partition_class(index=p, records=b) for p, b in batches],
            )
            for topic, batches in topics
        ],
    )
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    assert b"".join(pieces) == bytes(request.encode(header=True, framed=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_reads_the_request(version):
    batch = bytes(range(256)) * 100
    topics = [("flights", [(0, batch), (5, b"b")]), ("ü", [(1, b"c")])]
    named = [(asked(version, topic), batches) for topic, batches in topics]
    frame = b"".join(encode_request(version, 42, "client", 0, 30_000, named))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = decode_request(frame[4:])
    assert request[:4] == (0, version, 42, "client")
    assert not request.expects_response
    read = [
        (
            topic.name if version < 13 else topic.topic_id.bytes,
            [(p.index, bytes(p.records)) for p in topic.partition_data],
        )
        for topic in request.message.topic_data
    ]
    assert read == named
    assert request.message.transactional_id is None


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_pass_through_without_a_copy(version):
    batches = [memoryview(bytearray(b"batch%d" % i)) for i in range(3)]
    t, u = asked(version, "t"), asked(version, "u")
    topics = [(t, [(0, batches[0]), (1, batches[1])]), (u, [(0, batches[2])])]
    pieces = encode_request(version, 1, "c", -1, 1, topics)
    assert [piece for piece in pieces if isinstance(piece, memoryview)] == batches
    assert all(any(piece is batch for piece in pieces) for batch in batches)
    assert all(pieces)


def test_long_strings():
    assert encode_request(9, 1, "c", -1, 1, [("t" * 40_000, [(0, b"b")])])
    with pytest.raises(ValueError, match="40000 bytes"):
        encode_request(8, 1, "c", -1, 1, [("t" * 40_000, [(0, b"b")])])


@pytest.mark.parametrize("version", [2, 14])
def test_versions_that_are_not_spoken(version):
    with pytest.raises(UnsupportedVersionError, match="3 to 13"):
        encode_request(version, 1, "c", -1, 1, [])
    with pytest.raises(UnsupportedVersionError, match="3 to 13"):
        decode_response(version, b"")


@pytest.mark.parametrize(
    ("version", "topic"), [(12, b"0123456789abcdef"), (13, "t"), (13, b"short")]
)
def test_a_topic_named_in_the_way_of_another_version(version, topic):
    with pytest.raises(ValueError, match="cannot name a topic"):
        encode_request(version, 1, "c", -1, 1, [(topic, [(0, b"b")])])


# Size, key, version, correlation id, client id; no transactional id, acks, timeout; one topic, its
# id; two partitions, number and batch each.
GOLDEN_V13 = bytes.fromhex("""
    00000037 0000 000d 0000002a 000163 00
    00 ffff 00007530
    02 000102030405060708090a0b0c0d0e0f
    03 00000000 04 616263 00 00000005 02 64 00 00 00
""")


def test_version_13_byte_for_byte():
    """From the schema of ProduceRequest (KIP-516), by hand."""
    topics = [(bytes(range(16)), [(0, b"abc"), (5, b"d")])]
    frame = b"".join(encode_request(13, 42, "c", -1, 30_000, topics))
    assert frame == GOLDEN_V13


def test_an_id_that_was_not_asked_for_goes_by_its_digits():
    frame = sample(13)
    assert {p.topic for p in decode_response(13, frame).partitions} == {id_of("topic").hex}


# --- responses ----------------------------------------------------------------------------------


def expected_partition(version, topic, fields):
    leader = fields["current_leader"] or {"leader_id": -1, "leader_epoch": -1}
    return PartitionResult(
        topic=topic,
        partition=fields["index"],
        error_code=fields["error_code"],
        base_offset=fields["base_offset"],
        log_append_time_ms=fields["log_append_time_ms"],
        log_start_offset=fields["log_start_offset"] if version >= 5 else -1,
        record_errors=tuple(
            (e["batch_index"], e["batch_index_error_message"]) for e in fields["record_errors"]
        )
        if version >= 8
        else (),
        error_message=fields["error_message"] if version >= 8 else None,
        leader_id=leader["leader_id"] if version >= 10 else -1,
        leader_epoch=leader["leader_epoch"] if version >= 10 else -1,
    )


@given(version=versions, topics=responses, throttle_ms=st.integers(0, 2**31 - 1), nodes=endpoints)
def test_response_equals_what_the_reference_encoded(version, topics, throttle_ms, nodes):
    fields, known = told(version, topics)
    frame = encode_response(
        0, version, 7, responses=fields, throttle_time_ms=throttle_ms, node_endpoints=nodes
    )
    result = decode_response(version, memoryview(frame)[8:], known)
    assert result.partitions == [
        expected_partition(version, topic["name"], partition)
        for topic in topics
        for partition in topic["partition_responses"]
    ]
    assert result.throttle_ms == throttle_ms
    hints = tuple(BrokerInfo(**node) for node in nodes)
    assert result.endpoints == (hints if version >= 10 else ())


@given(version=versions, topics=responses, nodes=endpoints)
def test_response_agrees_with_the_reference_decoder(version, topics, nodes):
    fields, known = told(version, topics)
    frame = encode_response(0, version, 7, responses=fields, node_endpoints=nodes)
    body = frame[9:] if version >= 9 else frame[8:]
    reference = ProduceResponse.decode(body, version=version)
    result = decode_response(version, frame[8:], known)
    assert [(p.topic, p.partition, p.error_code, p.base_offset) for p in result.partitions] == [
        (known[t.topic_id.bytes] if version >= 13 else t.name, p.index, p.error_code, p.base_offset)
        for t in reference.responses
        for p in t.partition_responses
    ]


@pytest.mark.parametrize("leader", [None, {"leader_id": 2, "leader_epoch": 9}])
@pytest.mark.parametrize("message", [None, "", "worse"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_about_one_partition(version, message, leader):
    """The frequent form of it is decoded in one step."""
    partition = {
        "index": 2**31 - 1,
        "error_code": 7,
        "base_offset": 2**62,
        "log_append_time_ms": -1,
        "log_start_offset": 3,
        "record_errors": [],
        "error_message": message,
        "current_leader": leader,
    }
    topics, known = told(version, [{"name": "ü", "partition_responses": [partition]}])
    payload = encode_response(0, version, 7, responses=topics, throttle_time_ms=11)[8:]
    result = decode_response(version, payload, known)
    assert result == ([expected_partition(version, "ü", partition)], 11, ())
    for end in range(len(payload)):
        with pytest.raises(ProtocolError):
            decode_response(version, payload[:end], known)


def sample(version: int) -> bytes:
    partition = {
        "index": 1,
        "error_code": 6,
        "base_offset": 5,
        "log_append_time_ms": 6,
        "log_start_offset": 7,
        "record_errors": [{"batch_index": 3, "batch_index_error_message": "bad"}],
        "error_message": "worse",
        "current_leader": {"leader_id": 2, "leader_epoch": 9},
    }
    node = {"node_id": 2, "host": "host", "port": 9092, "rack": "r"}
    fields = {
        "responses": told(
            version, [{"name": "topic", "partition_responses": [partition, partition]}]
        )[0],
        "throttle_time_ms": 11,
        "node_endpoints": [node],
    }
    return encode_response(0, version, 7, **fields)[8:]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_cut_anywhere_is_a_protocol_error(version):
    payload = sample(version)
    assert len(decode_response(version, payload).partitions) == 2
    for end in range(len(payload)):
        with pytest.raises(ProtocolError):
            decode_response(version, payload[:end])


@given(version=versions, data=st.binary(max_size=120))
def test_random_bytes_are_read_or_refused(version, data):
    with contextlib.suppress(ProtocolError):
        decode_response(version, data)


@given(version=versions, position=st.integers(0, 500), value=st.integers(0, 255))
def test_a_damaged_response_is_read_or_refused(version, position, value):
    payload = bytearray(sample(version))
    payload[position % len(payload)] = value
    with contextlib.suppress(ProtocolError):
        decode_response(version, payload)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe"])
def test_a_claimed_count_beyond_the_message_allocates_nothing(count):
    with pytest.raises(ProtocolError, match="array of"):
        decode_response(3, count + bytes(50))


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """Tagged fields in the compact form, for numbers and sizes below 128."""
    return bytes([len(fields)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in fields)


@pytest.mark.parametrize("version", range(9, 14))
def test_unknown_tagged_fields_are_stepped_over(version):
    unknown = (99, b"whatever")
    hint = (0, b"\0\0\0\2\0\0\0\x09" + tagged(unknown))
    node = b"\0\0\0\2" + b"\5host" + b"\0\0\x23\x84" + b"\0" + tagged(unknown)
    nodes = (0, b"\2" + node)
    record_error = b"\0\0\0\3" + b"\4bad" + tagged(unknown)
    partition = (
        b"\0\0\0\1"
        + b"\0\6"
        + b"\0" * 7
        + b"\5"
        + b"\xff" * 8
        + b"\0" * 8
        + b"\2"
        + record_error
        + b"\0"
        + tagged(hint, unknown)
    )
    name = b"\2t" if version < 13 else id_of("t").bytes
    topic = name + b"\2" + partition + tagged(unknown)
    payload = tagged(unknown) + b"\2" + topic + b"\0\0\0\x0b" + tagged(nodes, unknown)
    result = decode_response(version, payload, {id_of("t").bytes: "t"})
    known = version >= 10
    assert result.partitions == [
        PartitionResult(
            topic="t",
            partition=1,
            error_code=6,
            base_offset=5,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=((3, "bad"),),
            error_message=None,
            leader_id=2 if known else -1,
            leader_epoch=9 if known else -1,
        )
    ]
    assert result.throttle_ms == 11
    assert result.endpoints == ((BrokerInfo(2, "host", 9092, None),) if known else ())
