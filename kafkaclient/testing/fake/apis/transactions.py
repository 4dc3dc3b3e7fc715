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

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api, Parts, each, topics
from kafkaclient.testing.fake.log import ErrorCode, RefusedError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.transaction_states import TxnState

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.transactions import FakeTransaction

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
