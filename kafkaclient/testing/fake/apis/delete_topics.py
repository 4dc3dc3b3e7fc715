"""DeleteTopics (20): deletes topics and their records, at once on all brokers.

Behavior
    Any broker answers; a topic that does not exist gets UNKNOWN_TOPIC_OR_PARTITION.

Versions
    1 to 6, by name. The fake does not implement topic ids, which version 6 allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (1, 6)

_FIRST_WITH_IDS = 6


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """Delete the topics; the response's fields."""
    outcomes = []
    for name in _names(request):
        known = state.topics.pop(name, None)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NONE
        outcomes.append({"name": name, "error_code": int(code)})
    return {"responses": outcomes}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every topic."""
    return {"responses": [{"name": name, "error_code": error_code} for name in _names(request)]}


def _names(request: Request) -> list[str]:
    if request.version >= _FIRST_WITH_IDS:
        return [topic.name for topic in request.message.topics]
    return list(request.message.topic_names)
