"""The APIs of idempotent and transactional producers.

Only the coordinator of a transactional id answers, and only to its current producer; see
:mod:`~kafkaclient.testing.fake.transactions`.

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

from typing import TYPE_CHECKING

from kafkaclient.testing.fake.apis.api import Api, by_partition
from kafkaclient.testing.fake.log import ErrorCode
from kafkaclient.testing.fake.transactions import TxnState
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

_FIRST_INIT_WITH_IDENTITY = 3
_FIRST_INIT_FENCED = 4
_FIRST_END_OF_V2 = 5
_NO_PRODUCER = -1


def _init_producer_id(state: ClusterState, request: Request) -> Fields:
    message = request.message
    if message.transactional_id is None:
        return _identity(ErrorCode.NONE, state.new_producer_id(), 0)
    name, coordinator = message.transactional_id, state.transactions
    presents = request.version >= _FIRST_INIT_WITH_IDENTITY
    code = coordinator.refusal(name, request.broker) or coordinator.initialize(
        name,
        message.producer_id if presents else _NO_PRODUCER,
        message.producer_epoch if presents else -1,
    )
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_INIT_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code:
        return _identity(code)
    known = coordinator.ids[name]
    known.timeout_ms = message.transaction_timeout_ms
    return _identity(code, known.producer_id, known.epoch)


def _identity(error_code: int, producer_id: int = _NO_PRODUCER, epoch: int = -1) -> Fields:
    return {"error_code": error_code, "producer_id": producer_id, "producer_epoch": epoch}


def _add_partitions(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    name = message.v3_and_below_transactional_id
    code = coordinator.refusal(name, request.broker) or coordinator.check(
        name, message.v3_and_below_producer_id, message.v3_and_below_producer_epoch
    )
    if code:
        return _each_partition(request, lambda _: code)
    partitions = [(t.name, p) for t in message.v3_and_below_topics for p in t.partitions]
    unknown = {tp for tp in partitions if state.partition(*tp) is None}
    if not unknown:
        coordinator.add(name, partitions)
        return _each_partition(request, lambda _: ErrorCode.NONE)
    return _each_partition(
        request,
        lambda tp: (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if tp in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        ),
    )


def _each_partition(request: Request, code_of: Callable[[tuple[str, int]], int]) -> Fields:
    topics = by_partition(
        request.message.v3_and_below_topics,
        lambda topic, p: {"partition_index": p, "partition_error_code": code_of((topic.name, p))},
        answered="results_by_partition",
    )
    return {"results_by_topic_v3_and_below": topics}


def _add_offsets(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    name = message.transactional_id
    code = coordinator.refusal(name, request.broker) or coordinator.check(
        name, message.producer_id, message.producer_epoch
    )
    if not code:
        coordinator.add(name, group=message.group_id)
    return {"error_code": code}


def _end(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    name = message.transactional_id
    code = coordinator.refusal(name, request.broker) or coordinator.end(
        name,
        message.producer_id,
        message.producer_epoch,
        commit=message.committed,
        v2=request.version >= _FIRST_END_OF_V2,
    )
    if code:
        return _identity(code)
    known = coordinator.ids[name]
    return _identity(code, known.producer_id, known.epoch)


def _describe(state: ClusterState, request: Request) -> Fields:
    return {
        "transaction_states": [
            _described(state, request.broker, name) for name in request.message.transactional_ids
        ]
    }


def _described(state: ClusterState, broker: int, name: str) -> Fields:
    coordinator = state.transactions
    known = coordinator.ids.get(name)
    code = coordinator.refusal(name, broker)
    if code or known is None:
        return _undescribed(name, code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        topics.setdefault(topic, []).append(partition)
    return {
        "error_code": code,
        "transactional_id": name,
        "transaction_state": known.state.value,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.started_ms,
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "topics": [{"topic": topic, "partitions": each} for topic, each in topics.items()],
    }


def _undescribed(name: str, error_code: int) -> Fields:
    return {
        "transactional_id": name,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": -1,
        "topics": [],
    } | _identity(error_code)


def _list(state: ClusterState, request: Request) -> Fields:
    coordinator, wanted = state.transactions, request.message.state_filters
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": sorted(set(wanted) - {known.value for known in TxnState}),
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
    Api(ApiKey.INIT_PRODUCER_ID, (0, 5), _init_producer_id, lambda _, code: _identity(code)),
    Api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (0, 3),
        _add_partitions,
        lambda request, code: _each_partition(request, lambda _: code),
    ),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), _add_offsets),
    Api(ApiKey.END_TXN, (0, 5), _end),
    Api(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        _describe,
        lambda request, code: {
            "transaction_states": [
                _undescribed(name, code) for name in request.message.transactional_ids
            ]
        },
    ),
    Api(ApiKey.LIST_TRANSACTIONS, (0, 0), _list),
)
