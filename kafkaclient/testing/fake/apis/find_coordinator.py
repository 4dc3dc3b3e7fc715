"""FindCoordinator (10): the coordinator of a group or a transactional id.

Behavior
    Any broker answers. The coordinator is the broker that a test has chosen, else a live broker by
    the hash of the key. Without a live broker the answer is COORDINATOR_NOT_AVAILABLE.

Versions
    0 to 5. From 4 on a request may have several keys (KIP-699).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 5)

_FIRST_BATCHED = 4


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    return _shape(request, [_found(state, key) for key in _keys(request)])


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every key."""
    return _shape(request, [_failed(key, error_code) for key in _keys(request)])


def _keys(request: Request) -> list[str]:
    message = request.message
    return message.coordinator_keys if request.version >= _FIRST_BATCHED else [message.key]


def _shape(request: Request, found: list[dict[str, Any]]) -> dict[str, Any]:
    if request.version >= _FIRST_BATCHED:
        return {"coordinators": found}
    return {name: value for name, value in found[0].items() if name != "key"}


def _found(state: ClusterState, key: str) -> dict[str, Any]:
    node_id = state.transactions.node_of(key)
    if node_id < 0:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker = state.brokers[node_id]
    address = {"node_id": node_id, "host": broker.host, "port": broker.port}
    return {"key": key, "error_code": ErrorCode.NONE, "error_message": None} | address


def _failed(key: str, error_code: int) -> dict[str, Any]:
    return {
        "key": key,
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": int(error_code),
        "error_message": None,
    }
