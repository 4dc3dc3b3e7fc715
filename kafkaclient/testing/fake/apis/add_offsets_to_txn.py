"""AddOffsetsToTxn (25): makes a group's offsets part of a transaction (v1).

Behavior
    Only the coordinator of the transactional id answers, and only to its current producer.

Versions
    0 to 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 4)


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    message, coordinator = request.message, state.transactions
    name = message.transactional_id
    code = coordinator.refusal(name, request.broker) or coordinator.check(
        name, message.producer_id, message.producer_epoch
    )
    if not code:
        coordinator.add(name, group=message.group_id)
    return refuse(request, code)


def refuse(_: Request, error_code: int) -> dict[str, Any]:
    return {"error_code": int(error_code)}
