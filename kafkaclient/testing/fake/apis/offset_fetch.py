"""OffsetFetch (9): the committed offsets of a group.

Behavior
    Only the group's coordinator answers, for the named partitions. With ``require_stable`` a
    partition with a pending offset in an open transaction gets UNSTABLE_OFFSET_COMMIT (KIP-447).

Versions
    1 to 9. ``require_stable`` needs 7, several groups need 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (1, 9)

_FIRST_OF_GROUPS = 8


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    coordinator, stable = state.transactions, request.message.require_stable

    def offset(group: str, topic: str, partition: int) -> dict[str, Any]:
        code = coordinator.refusal(group, request.broker)
        if not code and stable and coordinator.pending(group, topic, partition):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        found = None if code else coordinator.committed.get((group, topic, partition))
        return _offset(code, -1 if found is None else found.offset, found and found.metadata)

    return _for_each(request, offset)


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every partition."""
    return _for_each(request, lambda *_: _offset(error_code, -1, None))


def _offset(error_code: int, offset: int, metadata: str | None) -> dict[str, Any]:
    return {"error_code": int(error_code), "committed_offset": offset, "metadata": metadata or ""}


def _for_each(
    request: Request, offset: Callable[[str, str, int], dict[str, Any]]
) -> dict[str, Any]:
    def topics(group: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p} | offset(group.group_id, topic.name, p)
                    for p in topic.partition_indexes
                ],
            }
            for topic in group.topics or []
        ]

    message = request.message
    if request.version < _FIRST_OF_GROUPS:
        return {"topics": topics(message)}
    return {"groups": [{"group_id": g.group_id, "topics": topics(g)} for g in message.groups]}
