"""ListTransactions (66): the transactional ids that a broker coordinates (KIP-664).

Behavior
    States filter the ids; the answer lists unknown states. Other filters are not implemented.

Versions
    0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.transactions import TxnState

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 0)


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    coordinator, wanted = state.transactions, request.message.state_filters
    return {
        "error_code": 0,
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


def refuse(_: Request, error_code: int) -> dict[str, Any]:
    """The answer without transactions."""
    return {"error_code": int(error_code), "unknown_state_filters": [], "transaction_states": []}
