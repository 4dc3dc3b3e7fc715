"""AddPartitionsToTxn (24): makes partitions part of a transaction (v1).

Behavior
    Only the coordinator of the transactional id answers, and only to its current producer. If a
    partition does not exist, it gets UNKNOWN_TOPIC_OR_PARTITION and no partition is added.

Versions
    0 to 3; only brokers use later versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 3)


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """Add the partitions; the response's fields."""
    message, coordinator = request.message, state.transactions
    name = message.v3_and_below_transactional_id
    code = coordinator.refusal(name, request.broker) or coordinator.check(
        name, message.v3_and_below_producer_id, message.v3_and_below_producer_epoch
    )
    if code:
        return refuse(request, code)
    asked = [(t.name, p) for t in message.v3_and_below_topics for p in t.partitions]
    unknown = {tp for tp in asked if state.partition(*tp) is None}
    if unknown:
        return _for_each(
            request,
            lambda tp: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if tp in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            ),
        )
    coordinator.add(name, asked)
    return _for_each(request, lambda _: ErrorCode.NONE)


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every partition."""
    return _for_each(request, lambda _: error_code)


def _for_each(request: Request, code_of: Callable[[tuple[str, int]], int]) -> dict[str, Any]:
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": p, "partition_error_code": int(code_of((topic.name, p)))}
                    for p in topic.partitions
                ],
            }
            for topic in request.message.v3_and_below_topics
        ]
    }
