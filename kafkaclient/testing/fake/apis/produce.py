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

from kafkaclient.testing.fake.apis.api import Api, Parts
from kafkaclient.testing.fake.log import ErrorCode, RefusedError
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
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.log import FakePartition
    from kafkaclient.testing.fake.state import ClusterState

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
    if request.version < _FIRST_ZSTD_VERSION and _attributes(batch) & CODEC_MASK == Codec.ZSTD:
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


APIS = (Api(ApiKey.PRODUCE, (3, 13), _produce, _PARTS),)
