"""The calls of a transactional producer, in every version, as the broker's side reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import compact_string
from kafkaclient.wire.codec import CodecCall, encode_response
from kafkaclient.wire.producer_ids import InitTransactionsCall
from kafkaclient.wire.transactions import (
    AddOffsetsToTxnCall,
    AddPartitionsToTxnCall,
    CommittedOffsets,
    CoordinatorFound,
    CoordinatorKind,
    DescribedTransactions,
    DescribeTransactionsCall,
    EndTxnCall,
    EndTxnV2Call,
    FetchedOffset,
    FindCoordinatorCall,
    ListTransactionsCall,
    OffsetFetchCall,
    PartitionCodes,
    TransactionDescription,
    TransactionListing,
    TxnEnded,
    TxnIdentity,
    TxnOffsetCommitByIdCall,
    TxnOffsetCommitCall,
    TxnOffsetCommitV2Call,
    TxnState,
)
from tests.wire.conftest import id_of, sent

WHO = TxnIdentity("tx", 5, 3)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MEMBER = ConsumerGroupMetadata("g", 4, "member", "instance")
OFFSETS = {T0: OffsetAndMetadata(7, "note", 2), U0: OffsetAndMetadata(9)}

CALLS: list[CodecCall[Any]] = [
    FindCoordinatorCall(CoordinatorKind.TRANSACTION, "tx"),
    InitTransactionsCall("tx", 1000, 5, 3),
    AddPartitionsToTxnCall(WHO, (T0, U0, T1)),
    AddOffsetsToTxnCall(WHO, "g"),
    TxnOffsetCommitCall(WHO, MEMBER, OFFSETS),
    TxnOffsetCommitV2Call(WHO, MEMBER, OFFSETS),
    EndTxnCall(WHO, commit=True),
    EndTxnV2Call(WHO, commit=False),
    OffsetFetchCall("g", (T0, U0)),
    ListTransactionsCall((TxnState.ONGOING, TxnState.EMPTY)),
    DescribeTransactionsCall("tx"),
]
CARRY = (InitTransactionsCall, AddOffsetsToTxnCall, TxnOffsetCommitCall, EndTxnCall)
EVERY = [
    pytest.param(call, version, id=f"{type(call).__name__}-{version}")
    for call in CALLS
    for version in range(call.min_version, call.max_version + 1)
]


def answered(call: CodecCall[Any], version: int, **fields: Any) -> Any:
    return call.decode(version, encode_response(call.api_key, version, 1, **fields)[8:])


@pytest.mark.parametrize(("call", "version"), EVERY)
def test_who_asks_is_said_in_every_version(call: CodecCall[Any], version: int) -> None:
    message = sent(call, version)
    if isinstance(call, AddPartitionsToTxnCall):
        assert message.v3_and_below_transactional_id == "tx"
        assert message.v3_and_below_producer_id == 5
        assert message.v3_and_below_producer_epoch == 3
    elif isinstance(call, CARRY):
        assert (message.transactional_id, message.producer_id) == ("tx", 5)
        assert message.producer_epoch == 3


@pytest.mark.parametrize("version", range(1, 6))
def test_find_coordinator(version: int) -> None:
    call = FindCoordinatorCall(CoordinatorKind.GROUP, "g")
    message = sent(call, version)
    assert message.key_type == 0
    assert (message.coordinator_keys == ["g"]) == (version >= 4)
    assert (message.key == "g") == (version < 4)
    found = {"error_code": 15, "error_message": "wait", "node_id": 2}
    fields = {"coordinators": [found | {"key": "g"}]} if version >= 4 else found
    assert answered(call, version, **fields) == CoordinatorFound(15, "wait", 2)


@pytest.mark.parametrize("version", range(4))
def test_add_partitions(version: int) -> None:
    call = AddPartitionsToTxnCall(WHO, (T0, U0, T1))
    topics = sent(call, version).v3_and_below_topics
    assert [(t.name, t.partitions) for t in topics] == [("t", [0, 1]), ("u", [0])]
    results = [
        {
            "name": "t",
            "results_by_partition": [
                {"partition_index": 0, "partition_error_code": 55},
                {"partition_index": 1, "partition_error_code": 29},
            ],
        }
    ]
    answer = answered(call, version, results_by_topic_v3_and_below=results)
    assert answer == PartitionCodes({T0: 55, T1: 29})
    assert answer.error_code == 29  # 55 only says that another one failed
    assert PartitionCodes({T0: 0, T1: 55}).error_code == 55
    assert PartitionCodes({T0: 0}).error_code == PartitionCodes({}).error_code == 0


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_name_the_member(version: int) -> None:
    """KIP-447: from version 3 on."""
    call = (TxnOffsetCommitV2Call if version == 5 else TxnOffsetCommitCall)(WHO, MEMBER, OFFSETS)
    message = sent(call, version)
    assert (message.group_id, message.generation_id, message.member_id) == ("g", 4, "member")
    assert message.group_instance_id == "instance"
    t, u = message.topics
    (p,) = t.partitions
    assert (t.name, p.partition_index, p.committed_offset) == ("t", 0, 7)
    assert (p.committed_leader_epoch, p.committed_metadata) == (2, "note")
    assert (u.name, u.partitions[0].committed_offset) == ("u", 9)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 22}]}]
    assert answered(call, version, topics=topics) == PartitionCodes({T0: 22})


def test_offsets_by_topic_id() -> None:
    """KIP-1319: as version 5, with ids in the place of names."""
    ids = {name: id_of(name) for name in ("t", "u")}
    call = TxnOffsetCommitByIdCall(WHO, MEMBER, OFFSETS, {tp: ids[tp.topic] for tp in OFFSETS})
    assert call.encode(5, 1, "me") == TxnOffsetCommitV2Call(WHO, MEMBER, OFFSETS).encode(5, 1, "me")
    expected = TxnOffsetCommitV2Call(WHO, MEMBER, OFFSETS).encode(5, 1, "me")[8:]
    for name, topic_id in ids.items():
        expected = expected.replace(compact_string(name) + b"\2", topic_id.bytes + b"\2")
    assert call.encode(6, 1, "me")[8:] == expected
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "error_code": code}]}
        for name, code in (("t", 100), ("u", 0))
    ]
    answer_by_name = answered(call, 5, topics=topics)
    assert answer_by_name == CommittedOffsets({T0: 100, U0: 0})
    assert (answer_by_name.error_code, answer_by_name.unknown) == (0, [T0])
    answer = encode_response(call.api_key, 5, 1, topics=topics)[8:]
    for name, topic_id in ids.items():
        answer = answer.replace(compact_string(name) + b"\2", topic_id.bytes + b"\2")
    assert call.decode(6, answer) == answer_by_name
    for size in range(len(answer) - 1):
        with pytest.raises(ProtocolError, match="malformed"):
            call.decode(6, answer[:size])


def test_the_end_names_the_identity_to_go_on_with_from_version_5_on() -> None:
    """KIP-890."""
    fields = {"error_code": 0, "producer_id": 6, "producer_epoch": 1}
    assert answered(EndTxnV2Call(WHO, commit=True), 5, **fields) == TxnEnded(0, 6, 1)
    assert answered(EndTxnCall(WHO, commit=True), 4, **fields) == TxnEnded(0, -1, -1)
    assert sent(EndTxnV2Call(WHO, commit=True), 5).committed is True
    assert sent(EndTxnCall(WHO, commit=False), 0).committed is False


@pytest.mark.parametrize("version", [7, 8, 9])
def test_stable_offsets_are_asked_for(version: int) -> None:
    call = OffsetFetchCall("g", (T0, U0))
    message = sent(call, version)
    assert message.require_stable is True
    group = message if version == 7 else message.groups[0]
    assert group.group_id == "g"
    assert [(t.name, t.partition_indexes) for t in group.topics] == [("t", [0]), ("u", [0])]
    offset = {"partition_index": 0, "committed_offset": 3, "metadata": None, "error_code": 88}
    topics = [{"name": "t", "partitions": [offset | {"committed_leader_epoch": 2}]}]
    inner = {"topics": topics, "error_code": 0}
    fields = inner if version == 7 else {"groups": [inner | {"group_id": "g"}]}
    answer = answered(call, version, **fields)
    assert answer.offsets == {T0: FetchedOffset(88, 3, 2, "")}
    assert answer.error_code == 88
    inner["error_code"] = 16
    fields = inner if version == 7 else {"groups": [inner | {"group_id": "g"}]}
    assert answered(call, version, **fields).error_code == 16


def test_listing_transactions() -> None:
    """KIP-664. States that this client does not know do not make the answer unreadable."""
    call = ListTransactionsCall((TxnState.ONGOING, TxnState.EMPTY))
    assert sent(call, 0).state_filters == ["Ongoing", "Empty"]
    one = {"transactional_id": "a", "producer_id": 7, "transaction_state": "PrepareCommit"}
    states = [one, one | {"transaction_state": "Later"}]
    told = answered(call, 0, error_code=0, transaction_states=states)
    assert told.transactions == (
        TransactionListing("a", 7, TxnState.PREPARE_COMMIT),
        TransactionListing("a", 7, TxnState.UNKNOWN),
    )


def test_describing_a_transaction() -> None:
    call = DescribeTransactionsCall("tx")
    assert sent(call, 0).transactional_ids == ["tx"]
    one = {
        "error_code": 0,
        "transactional_id": "tx",
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 60_000,
        "transaction_start_time_ms": 5,
        "producer_id": 7,
        "producer_epoch": 2,
        "topics": [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}],
    }
    description = TransactionDescription(
        "tx", TxnState.ONGOING, 7, 2, 60_000, 5, frozenset({T0, T1, U0})
    )
    assert answered(call, 0, transaction_states=[one]) == DescribedTransactions(0, description)
    told = answered(call, 0, transaction_states=[one | {"error_code": 105}])
    assert told == DescribedTransactions(105, None)


@pytest.mark.parametrize(("call", "version"), EVERY)
@given(payload=st.binary(max_size=60))
def test_bytes_that_are_no_answer(call: CodecCall[Any], version: int, payload: bytes) -> None:
    try:
        answer = call.decode(version, payload)
    except ProtocolError:
        return
    assert isinstance(answer.error_code, int)
