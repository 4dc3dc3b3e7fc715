"""The APIs of producers: Produce, producer ids and transactions.

Produce (0), versions 3 to 13: appends record batches to the partitions that this broker leads
    Each partition is checked by itself: scripted failures, the topic and partition, the leader,
    acks, the in-sync replicas, then the batch (``log.py``).
    The answer for a partition with another leader contains the leader and its address (KIP-951).
    With acks=0 there is no answer; if a partition fails, the connection is closed instead.
    ``delay_produce`` delays answers one after the other, as a sleep in the request handler.
    Zstd needs 7 (KIP-110); error messages and record errors 8 (KIP-467); leader hints 10.
    From 12 on a batch adds its partition to the transaction (KIP-890). Before, a batch whose
    partition is not part of the transaction gets INVALID_TXN_STATE, as with brokers since 3.6.
    From 13 on topics are named by id; an unknown id gets UNKNOWN_TOPIC_ID.

Only the coordinator of a transactional id answers the following requests, and only to its current
producer; see :mod:`~kafkaclient.testing.fake.transactions`.

InitProducerId (22), versions 0 to 5
    Assigns a producer id and epoch. Without a transactional id any broker answers, and every
    request gets a new producer id with epoch 0, even if it contains an old producer id. With a
    transactional id the producer id stays, and every request increments the epoch. A producer id
    and epoch that are not current are fenced. An open transaction is aborted first. From version 3
    on a request may contain the current producer id and epoch (KIP-360). A fenced producer gets
    PRODUCER_FENCED from 4 on, INVALID_PRODUCER_EPOCH before.

AddPartitionsToTxn (24), versions 0 to 3 (only brokers use later versions)
    Makes partitions part of a transaction (v1). If a partition does not exist, it gets
    UNKNOWN_TOPIC_OR_PARTITION and no partition is added.

AddOffsetsToTxn (25), versions 0 to 4
    Makes a group's offsets part of a transaction (v1).

EndTxn (26), versions 0 to 5
    Commits or aborts a transaction. From version 5 on the producer continues with the epoch in the
    answer (KIP-890), an abort needs no open transaction, and a repeated request gets the same
    answer.

DescribeTransactions (65), version 0 (KIP-664)
    The coordinator's state of transactional ids. An unknown id gets TRANSACTIONAL_ID_NOT_FOUND.
    Times are by the cluster's clock; the timeout is the one of InitProducerId.

ListTransactions (66), version 0 (KIP-664)
    The transactional ids that a broker coordinates. States filter the ids; the answer lists unknown
    states. Other filters are not implemented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.apis.api import Api, Parts, each, topics
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.produce import FIRST_WITH_TOPIC_IDS
from kafkaclient.wire.record_reader import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    HEADER,
    TRANSACTIONAL,
    batch_header,
)
from kafkaclient.wire.transactions import TxnState

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.log import FakePartition
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.transactions import FakeTransaction


_FIRST_ZSTD_VERSION = 7
_FIRST_OF_TRANSACTIONS_V2 = 12
_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE = -1, 1, 0


_PARTS = Parts(
    "topic_data",
    "responses",
    {"name": "name", "topic_id": "topic_id"},
    Parts("partition_data", "partition_responses", {"index": "index"}, failed={"base_offset": -1}),
)


def _produce(state: ClusterState, request: Request) -> Fields:
    moved: set[int] = set()

    def append(topic: Any, data: Any) -> Fields:
        by_id = request.version >= FIRST_WITH_TOPIC_IDS
        name = state.name_of(topic) if by_id else topic.name
        failure = state.next_failure(state.produce_failures, name, data.index)
        if failure is not None and not failure.append:
            raise failure
        partition = state.partition(name, data.index)
        if partition.leader != request.broker:
            raise state.not_led(partition, moved)
        appended = _checked_append(state, request, partition, bytes(data.records or b""))
        if failure is not None:
            raise failure
        return {"base_offset": appended, "log_start_offset": partition.log.start_offset}

    responses = _PARTS.answer(request.message, append)
    return responses | {"node_endpoints": state.endpoints(moved)}


def has_error(fields: Any) -> bool:
    """Whether any partition failed."""
    return any(
        partition.get("error_code")
        for topic in fields["responses"]
        for partition in topic["partition_responses"]
    )


def _checked_append(
    state: ClusterState, request: Request, partition: FakePartition, batch: bytes
) -> int:
    acks = request.message.acks
    topic = state.topics[partition.topic]
    if acks not in {_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE}:
        raise RefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
    if acks == _ACKS_ALL and len(partition.isr) < topic.min_insync_replicas:
        raise RefusedError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR {partition.isr} is insufficient to satisfy the "
            f"min.isr requirement of {topic.min_insync_replicas} for partition "
            f"{partition.topic}-{partition.index}",
        )
    if (
        request.version < _FIRST_ZSTD_VERSION
        and _attributes(batch) & CODEC_MASK == CompressionType.ZSTD
    ):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {request.version} are not allowed to use ZStandard",
        )
    name = request.message.transactional_id
    if name is not None and _attributes(batch) & TRANSACTIONAL:
        _check_transaction(state, request, partition, batch)
    return partition.log.append(batch, topic.max_message_bytes).base_offset


def _check_transaction(
    state: ClusterState, request: Request, partition: FakePartition, batch: bytes
) -> None:
    name, coordinator = request.message.transactional_id, state.transactions
    header = batch_header(batch)
    told = f"{header.producer_id} epoch {header.producer_epoch}"
    try:
        coordinator.check(name, header.producer_id, header.producer_epoch)
    except RefusedError as refused:
        fenced = refused.code == ErrorCode.PRODUCER_FENCED
        code = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else refused.code
        raise RefusedError(code, told) from refused
    if request.version >= _FIRST_OF_TRANSACTIONS_V2:
        coordinator.add(name, [(partition.topic, partition.index)])
    elif not coordinator.is_open(name, partition.topic, partition.index):
        raise RefusedError(ErrorCode.INVALID_TXN_STATE, told)


def _attributes(batch: bytes) -> int:
    if len(batch) < BATCH_OVERHEAD:
        return 0
    attributes: int = HEADER.unpack_from(batch)[5]
    return attributes


_FIRST_INIT_WITH_IDENTITY = 3
_FIRST_INIT_FENCED = 4
_FIRST_END_OF_V2 = 5
_NO_PRODUCER = -1
_STATES = {state.value for state in TxnState if state is not TxnState.UNKNOWN}

_PARTITIONS = topics(
    "v3_and_below_topics",
    "results_by_topic_v3_and_below",
    Parts("partitions", "results_by_partition", {"partition_index": "partition_index"}),
)
_DESCRIBED = Parts(
    "transactional_ids",
    "transaction_states",
    {"transactional_id": "transactional_id"},
    failed={"transaction_start_time_ms": -1, "producer_id": _NO_PRODUCER, "producer_epoch": -1},
)


def _init_producer_id(state: ClusterState, request: Request) -> Fields:
    message = request.message
    if message.transactional_id is None:
        return {"producer_id": state.new_producer_id(), "producer_epoch": 0}
    presents = request.version >= _FIRST_INIT_WITH_IDENTITY
    state.transactions.check_coordinator(message.transactional_id, request.broker)
    try:
        known = state.transactions.initialize(
            message.transactional_id,
            message.producer_id if presents else _NO_PRODUCER,
            message.producer_epoch if presents else -1,
        )
    except RefusedError as refused:
        if refused.code == ErrorCode.PRODUCER_FENCED and request.version < _FIRST_INIT_FENCED:
            raise RefusedError(ErrorCode.INVALID_PRODUCER_EPOCH) from refused
        raise
    known.timeout_ms = message.transaction_timeout_ms
    return _identity(known)


def _identity(known: FakeTransaction) -> Fields:
    return {"producer_id": known.producer_id, "producer_epoch": known.epoch}


def _add_partitions(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    name = message.v3_and_below_transactional_id
    coordinator.check_coordinator(name, request.broker)
    coordinator.check(name, message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    partitions = [(t.name, p) for t in message.v3_and_below_topics for p in t.partitions]
    unknown = {tp for tp in partitions if not state.has_partition(*tp)}
    if not unknown:
        coordinator.add(name, partitions)

    def outcome(topic: Any, partition: int) -> Fields:
        code = ErrorCode.OPERATION_NOT_ATTEMPTED if unknown else ErrorCode.NONE
        if (topic.name, partition) in unknown:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {"partition_error_code": code}

    return _PARTITIONS.answer(message, outcome)


def _no_partitions(request: Request, error: Fields) -> Fields:
    return _PARTITIONS.answer(
        request.message, lambda *_: {"partition_error_code": error["error_code"]}
    )


def _add_offsets(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    coordinator.check_coordinator(message.transactional_id, request.broker)
    coordinator.check(message.transactional_id, message.producer_id, message.producer_epoch)
    coordinator.add(message.transactional_id, group=message.group_id)
    return {}


def _end(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    coordinator.check_coordinator(message.transactional_id, request.broker)
    known = coordinator.end(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        commit=message.committed,
        v2=request.version >= _FIRST_END_OF_V2,
    )
    return _identity(known)


def _describe(state: ClusterState, request: Request, name: str) -> Fields:
    state.transactions.check_coordinator(name, request.broker)
    known = state.transactions.ids.get(name)
    if known is None:
        raise RefusedError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        found.setdefault(topic, []).append(partition)
    return {
        "transaction_state": known.state.value,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.started_ms,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in found.items()],
        **_identity(known),
    }


def _list(state: ClusterState, request: Request) -> Fields:
    coordinator, wanted = state.transactions, request.message.state_filters
    return {
        "unknown_state_filters": sorted(set(wanted) - _STATES),
        "transaction_states": [
            {
                "transactional_id": name,
                "producer_id": known.producer_id,
                "transaction_state": known.state.value,
            }
            for name, known in coordinator.ids.items()
            if coordinator.node_of(name) == request.broker
            and (not wanted or known.state.value in wanted)
        ],
    }


APIS = (
    Api(ApiKey.PRODUCE, (3, 13), _produce, _PARTS),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        (0, 5),
        _init_producer_id,
        refused=lambda _, error: {"producer_epoch": -1, **error},
    ),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3), _add_partitions, refused=_no_partitions),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), _add_offsets),
    Api(ApiKey.END_TXN, (0, 5), _end),
    each(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), _DESCRIBED, _describe),
    Api(ApiKey.LIST_TRANSACTIONS, (0, 0), _list),
)
