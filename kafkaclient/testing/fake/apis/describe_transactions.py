"""DescribeTransactions (65): the coordinator's state of transactional ids (KIP-664).

Behavior
    Only the coordinator of an id answers. An unknown id gets TRANSACTIONAL_ID_NOT_FOUND. Times are
    by the cluster's clock; the timeout is the one of InitProducerId.

Versions
    0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 0)


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    names = request.message.transactional_ids
    return {"transaction_states": [_described(state, request.broker, name) for name in names]}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every id."""
    return {
        "transaction_states": [
            _failed(name, error_code) for name in request.message.transactional_ids
        ]
    }


def _described(state: ClusterState, broker: int, name: str) -> dict[str, Any]:
    coordinator = state.transactions
    known = coordinator.ids.get(name)
    code = coordinator.refusal(name, broker)
    if code or known is None:
        return _failed(name, code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        topics.setdefault(topic, []).append(partition)
    return {
        "error_code": 0,
        "transactional_id": name,
        "transaction_state": known.state.value,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.started_ms,
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "topics": [{"topic": topic, "partitions": each} for topic, each in topics.items()],
    }


def _failed(name: str, error_code: int) -> dict[str, Any]:
    return {
        "error_code": int(error_code),
        "transactional_id": name,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }
