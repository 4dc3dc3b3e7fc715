"""The APIs that describe the cluster.

Metadata (3), versions 0 to 13
    The live brokers, the requested topics, and the leaders of their partitions. A topic that does
    not exist is created if both the request and the cluster allow it. This first answer still has
    UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, where the creation takes time. A partition without a
    leader has LEADER_NOT_AVAILABLE. The answer omits stopped brokers. Every broker gives the same
    answer; the controller is the live broker with the lowest id.
    Version 0 requests all topics with an empty list, later versions with null. Leader epochs need
    7, topic ids 10, requests by topic id 12 (KIP-516), REBOOTSTRAP_REQUIRED 13 (KIP-1102).

DescribeQuorum (55), versions 0 to 2
    The voters of the controller quorum. Every broker is a controller; the live one with the lowest
    id is the active one.

DescribeLogDirs (35), versions 1 to 5
    The sizes of a broker's replicas on disk. A broker has one directory with all its replicas. The
    size of a replica that is being added is in proportion to the records of
    :meth:`FakeCluster.copy_replica`. No replica lags.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api, Parts
from kafkaclient.testing.fake.log import (
    INTERNAL_TOPICS,
    NO_LEADER,
    ErrorCode,
    FakePartition,
    FakeTopic,
    RefusedError,
    is_valid_topic_name,
)
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

_FIRST_CHOICE_OF_CREATION = 4
_DIRECTORY = "/fake/logs"


_TOPICS = Parts("topics", "topics", {"name": "name", "topic_id": "topic_id"})


def _metadata(state: ClusterState, request: Request) -> Fields:
    message = request.message
    may_create = request.version < _FIRST_CHOICE_OF_CREATION or bool(
        message.allow_auto_topic_creation
    )
    if message.topics is None or (request.version == 0 and not message.topics):
        topics = {"topics": [_known(state, topic) for topic in state.topics.values()]}
    else:
        topics = _TOPICS.answer(message, partial(_requested, state, may_create))
    alive = state.alive_brokers()
    return {
        "brokers": state.endpoints(set(alive)),
        "cluster_id": state.cluster_id,
        "controller_id": min(alive, default=-1),
        **topics,
    }


def _no_metadata(request: Request, error: Fields) -> Fields:
    """The same error for every requested topic, without brokers."""
    requested = request.message.topics or []
    return {"topics": [{"name": topic.name, **error} for topic in requested], **error}


def _requested(state: ClusterState, may_create: bool, requested: Any) -> Fields:
    name = state.name_of(requested) if requested.name is None else requested.name
    if name not in state.topics:
        if not is_valid_topic_name(name):
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if may_create and state.auto_create_topics:
            state.create_topic(name)
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _known(state, state.topics[name])


def _known(state: ClusterState, topic: FakeTopic) -> Fields:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(state, partition) for partition in topic.partitions],
    }


def _partition(state: ClusterState, partition: FakePartition) -> Fields:
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


def _describe_quorum(state: ClusterState, _: Request) -> Fields:
    partition = {
        "partition_index": 0,
        "leader_id": min(state.alive_brokers(), default=-1),
        "current_voters": [{"replica_id": node_id} for node_id in state.brokers],
    }
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}


def _describe_log_dirs(state: ClusterState, request: Request) -> Fields:
    requested = request.message.topics
    wanted = None if requested is None else {each.topic: set(each.partitions) for each in requested}
    topics = []
    for topic in state.topics.values():
        partitions = [
            {
                "partition_index": partition.index,
                "partition_size": _size(partition, request.broker),
            }
            for partition in topic.partitions
            if request.broker in partition.replicas
            and (wanted is None or partition.index in wanted.get(topic.name, ()))
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    cordoned = state.brokers[request.broker].cordoned
    return {"results": [{"log_dir": _DIRECTORY, "topics": topics, "is_cordoned": cordoned}]}


def _size(partition: FakePartition, node_id: int) -> int:
    end = partition.log.end_offset
    whole = sum(header.size for header, _ in partition.log.batches)
    return whole * partition.end_offset_at(node_id) // end if end else 0


APIS = (
    Api(ApiKey.METADATA, (0, 13), _metadata, refused=_no_metadata),
    Api(ApiKey.DESCRIBE_QUORUM, (0, 2), _describe_quorum),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        (1, 5),
        _describe_log_dirs,
        refused=lambda _, error: {"results": [{"log_dir": _DIRECTORY, **error}]},
    ),
)
