"""Metadata (3): the live brokers, the requested topics, and the leaders of their partitions.

Behavior
    A topic that does not exist is created if both the request and the cluster allow it. This first
    answer still has UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, where the creation takes time. A
    partition without a leader has LEADER_NOT_AVAILABLE. The answer omits stopped brokers. Every
    broker gives the same answer; the controller is the live broker with the lowest id.

Versions
    0 to 13. Version 0 requests all topics with an empty list, later versions with null. Leader
    epochs need 7, topic ids 10, requests by topic id 12 (KIP-516), REBOOTSTRAP_REQUIRED 13
    (KIP-1102).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode
from kafkaclient.testing.fake.topics import (
    INTERNAL_TOPICS,
    NO_LEADER,
    FakePartition,
    FakeTopic,
    is_valid_topic_name,
)

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 13)

_FIRST_CHOICE_OF_CREATION = 4


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields; may create topics."""
    message = request.message
    if message.topics is None or (request.version == 0 and not message.topics):
        topics = [_known(state, topic) for topic in state.topics.values()]
    else:
        may_create = request.version < _FIRST_CHOICE_OF_CREATION or bool(
            message.allow_auto_topic_creation
        )
        topics = [_asked(state, asked, may_create) for asked in message.topics]
    return _cluster(state) | {"topics": topics}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every requested topic, without brokers."""
    asked = request.message.topics or []
    return {
        "brokers": [],
        "topics": [_unknown(topic.name, error_code) for topic in asked],
        "error_code": error_code,
    }


def _cluster(state: ClusterState) -> dict[str, Any]:
    alive = state.alive_brokers()
    return {
        "brokers": [state.endpoint(node_id) for node_id in alive],
        "cluster_id": state.cluster_id,
        "controller_id": alive[0] if alive else -1,
    }


def _asked(state: ClusterState, asked: Any, may_create: bool) -> dict[str, Any]:
    if asked.name is None:
        for topic in state.topics.values():
            if topic.topic_id == asked.topic_id:
                return _known(state, topic)
        return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID) | {"topic_id": asked.topic_id}
    known = state.topics.get(asked.name)
    if known is not None:
        return _known(state, known)
    if not is_valid_topic_name(asked.name):
        return _unknown(asked.name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if may_create and state.auto_create_topics:
        state.create_topic(asked.name)
    return _unknown(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _unknown(name: str | None, error_code: int) -> dict[str, Any]:
    return {"error_code": int(error_code), "name": name, "partitions": []}


def _known(state: ClusterState, topic: FakeTopic) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(state, partition) for partition in topic.partitions],
    }


def _partition(state: ClusterState, partition: FakePartition) -> dict[str, Any]:
    leaderless = partition.leader == NO_LEADER
    return {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE if leaderless else ErrorCode.NONE,
        "partition_index": partition.index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": [node for node in partition.replicas if not state.is_alive(node)],
    }
