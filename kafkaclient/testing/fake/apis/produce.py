"""Produce (0): appends record batches to the partitions that this broker leads.

Behavior
    Each partition is checked by itself: scripted failures, the topic and partition, the leader,
    acks, the in-sync replicas, then the batch (``log.py``).
    The answer for a partition with another leader contains the leader and its address (KIP-951).
    With acks=0 there is no answer; if a partition fails, the connection is closed instead.
    ``delay_produce`` delays answers one after the other, as a sleep in the request handler.

Versions
    3 to 13. Zstd needs 7 (KIP-110); error messages and record errors 8 (KIP-467); leader hints 10.
    From 12 on a batch adds its partition to the transaction (KIP-890). Before, a batch whose
    partition is not part of the transaction gets INVALID_TXN_STATE, as with brokers since 3.6.
    From 13 on topics are named by id; an unknown id gets UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api, by_partition
from kafkaclient.testing.fake.log import ErrorCode, RefusedBatchError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import Codec
from kafkaclient.wire.produce import FIRST_WITH_TOPIC_IDS
from kafkaclient.wire.record_reader import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    HEADER,
    TRANSACTIONAL,
    batch_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import PartitionFailure, Request
    from kafkaclient.testing.fake.log import FakePartition
    from kafkaclient.testing.fake.state import ClusterState

_FIRST_ZSTD_VERSION = 7
_FIRST_OF_TRANSACTIONS_V2 = 12
_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE = -1, 1, 0


def _produce(state: ClusterState, request: Request) -> Fields:
    moved: set[int] = set()

    def append(topic: Any, data: Any) -> Fields:
        name = state.name_of(topic) if request.version >= FIRST_WITH_TOPIC_IDS else topic.name
        if name is None:
            return _failed(data.index, ErrorCode.UNKNOWN_TOPIC_ID)
        return _append(state, request, name, data, moved)

    responses = _each_partition(request, append)
    endpoints = [state.endpoint(node_id) for node_id in sorted(moved)]
    return {"responses": responses, "node_endpoints": endpoints}


def _each_partition(request: Request, answer: Callable[[Any, Any], Fields]) -> list[Fields]:
    return by_partition(
        request.message.topic_data,
        answer,
        identity=("name", "topic_id"),
        requested="partition_data",
        answered="partition_responses",
    )


def _refuse(request: Request, error_code: int) -> Fields:
    return {"responses": _each_partition(request, lambda _, data: _failed(data.index, error_code))}


def has_error(fields: Any) -> bool:
    """Whether any partition failed."""
    return any(
        partition["error_code"]
        for topic in fields["responses"]
        for partition in topic["partition_responses"]
    )


def _append(
    state: ClusterState, request: Request, topic: str, data: Any, moved: set[int]
) -> Fields:
    failure = state.next_failure(state.produce_failures, topic, data.index)
    if failure is not None and not failure.append:
        return _scripted(data.index, failure)
    partition = state.partition(topic, data.index)
    if partition is None:
        return _failed(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader != request.broker:
        if state.is_alive(partition.leader):
            moved.add(partition.leader)
        hint = {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}
        return _failed(data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER) | {"current_leader": hint}
    try:
        appended = _checked_append(state, request, partition, bytes(data.records or b""))
    except RefusedBatchError as refused:
        return _failed(data.index, refused.code, refused.message)
    if failure is not None:
        return _scripted(data.index, failure)
    return {
        "index": data.index,
        "error_code": ErrorCode.NONE,
        "base_offset": appended,
        "log_append_time_ms": -1,
        "log_start_offset": partition.log.start_offset,
    }


def _checked_append(
    state: ClusterState, request: Request, partition: FakePartition, batch: bytes
) -> int:
    acks = request.message.acks
    topic = state.topics[partition.topic]
    if acks not in {_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE}:
        raise RefusedBatchError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
    if acks == _ACKS_ALL and len(partition.isr) < topic.min_insync_replicas:
        raise RefusedBatchError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR {partition.isr} is insufficient to satisfy the "
            f"min.isr requirement of {topic.min_insync_replicas} for partition "
            f"{partition.topic}-{partition.index}",
        )
    if request.version < _FIRST_ZSTD_VERSION and _codec(batch) == Codec.ZSTD:
        raise RefusedBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {request.version} are not allowed to use ZStandard",
        )
    name = request.message.transactional_id
    if name is not None and _is_transactional(batch):
        _check_transaction(state, request, partition, batch)
    return partition.log.append(batch, topic.max_message_bytes).base_offset


def _check_transaction(
    state: ClusterState, request: Request, partition: FakePartition, batch: bytes
) -> None:
    name, coordinator = request.message.transactional_id, state.transactions
    header = batch_header(batch)
    code = coordinator.check(name, header.producer_id, header.producer_epoch)
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if not code and request.version >= _FIRST_OF_TRANSACTIONS_V2:
        coordinator.add(name, [(partition.topic, partition.index)])
    elif not code and not coordinator.is_open(name, partition.topic, partition.index):
        code = ErrorCode.INVALID_TXN_STATE
    if code:
        raise RefusedBatchError(code, f"{header.producer_id} epoch {header.producer_epoch}")


def _codec(batch: bytes) -> int:
    return _attributes(batch) & CODEC_MASK


def _is_transactional(batch: bytes) -> bool:
    return bool(_attributes(batch) & TRANSACTIONAL)


def _attributes(batch: bytes) -> int:
    if len(batch) < BATCH_OVERHEAD:
        return 0
    attributes: int = HEADER.unpack_from(batch)[5]
    return attributes


def _failed(index: int, error_code: int, message: str | None = None) -> Fields:
    return {
        "index": index,
        "error_code": error_code,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "error_message": message,
    }


def _scripted(index: int, failure: PartitionFailure) -> Fields:
    return _failed(index, failure.error_code, failure.message) | {
        "record_errors": [
            {"batch_index": record, "batch_index_error_message": message}
            for record, message in failure.record_errors
        ]
    }


APIS = (Api(ApiKey.PRODUCE, (3, 13), _produce, _refuse),)
