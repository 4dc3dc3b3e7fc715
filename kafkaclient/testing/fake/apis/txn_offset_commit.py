"""TxnOffsetCommit (28): adds offsets of a group to a transaction.

Behavior
    Only the group's coordinator answers. Before version 5 the group must be part of the
    transaction; from 5 on this request adds it (KIP-890). If a test has set the group's generation,
    a member of another generation gets ILLEGAL_GENERATION (KIP-447).

Versions
    0 to 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode
from kafkaclient.testing.fake.transactions import Committed

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 5)

_FIRST_OF_V2 = 5
_FIRST_WITH_GENERATION = 3
_NO_GENERATION = -1


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """Add the pending offsets; the response's fields."""
    code = _refusal(state, request)
    if not code:
        message, coordinator = request.message, state.transactions
        coordinator.add(message.transactional_id, group=message.group_id)
        known = coordinator.ids[message.transactional_id]
        for topic in message.topics:
            for p in topic.partitions:
                known.offsets[message.group_id, topic.name, p.partition_index] = Committed(
                    p.committed_offset, p.committed_metadata or ""
                )
    return refuse(request, code)


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same for every partition."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": int(error_code)}
                    for p in topic.partitions
                ],
            }
            for topic in request.message.topics
        ]
    }


def _refusal(state: ClusterState, request: Request) -> ErrorCode:
    message, coordinator = request.message, state.transactions
    group, name = message.group_id, message.transactional_id
    code = coordinator.refusal(group, request.broker) or coordinator.check(
        name, message.producer_id, message.producer_epoch
    )
    if code:
        return code
    if request.version < _FIRST_OF_V2 and group not in coordinator.ids[name].groups:
        return ErrorCode.INVALID_TXN_STATE
    if request.version >= _FIRST_WITH_GENERATION and message.generation_id != _NO_GENERATION:
        current = coordinator.generations.get(group, message.generation_id)
        if current != message.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE
