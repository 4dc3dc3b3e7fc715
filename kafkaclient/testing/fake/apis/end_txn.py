"""EndTxn (26): commits or aborts a transaction.

Behavior
    Only the coordinator of the transactional id answers, and only to its current producer. From
    version 5 on the producer continues with the epoch in the answer (KIP-890), an abort needs no
    open transaction, and a repeated request gets the same answer.

Versions
    0 to 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 5)

_FIRST_OF_V2 = 5


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """End the transaction; the response's fields."""
    message, coordinator = request.message, state.transactions
    name = message.transactional_id
    code = coordinator.refusal(name, request.broker) or coordinator.end(
        name,
        message.producer_id,
        message.producer_epoch,
        commit=message.committed,
        v2=request.version >= _FIRST_OF_V2,
    )
    if code:
        return refuse(request, code)
    known = coordinator.ids[name]
    return {"error_code": 0, "producer_id": known.producer_id, "producer_epoch": known.epoch}


def refuse(_: Request, error_code: int) -> dict[str, Any]:
    return {"error_code": int(error_code), "producer_id": -1, "producer_epoch": -1}
