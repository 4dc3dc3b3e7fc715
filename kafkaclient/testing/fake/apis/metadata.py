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

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api
from kafkaclient.testing.fake.log import (
    INTERNAL_TOPICS,
    NO_LEADER,
    ErrorCode,
    FakePartition,
    FakeTopic,
    is_valid_topic_name,
)
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

_FIRST_CHOICE_OF_CREATION = 4
_DIRECTORY = "/fake/logs"


def _metadata(state: ClusterState, request: Request) -> Fields:
    message = request.message
    if message.topics is None or (request.version == 0 and not message.topics):
        topics = [_known(state, topic) for topic in state.topics.values()]
    else:
        may_create = request.version < _FIRST_CHOICE_OF_CREATION or bool(
            message.allow_auto_topic_creation
        )
        topics = [_requested(state, requested, may_create) for requested in message.topics]
    alive = state.alive_brokers()
    return {
        "brokers": [state.endpoint(node_id) for node_id in alive],
        "cluster_id": state.cluster_id,
        "controller_id": min(alive, default=-1),
        "topics": topics,
    }


def _no_metadata(request: Request, error_code: int) -> Fields:
    """The same error for every requested topic, without brokers."""
    requested = request.message.topics or []
    return {
        "brokers": [],
        "topics": [_unknown(topic.name, error_code) for topic in requested],
        "error_code": error_code,
    }


def _requested(state: ClusterState, requested: Any, may_create: bool) -> Fields:
    if requested.name is None:
        name = state.name_of(requested)
        if name is not None:
            return _known(state, state.topics[name])
        return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID) | {"topic_id": requested.topic_id}
    known = state.topics.get(requested.name)
    if known is not None:
        return _known(state, known)
    if not is_valid_topic_name(requested.name):
        return _unknown(requested.name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if may_create and state.auto_create_topics:
        state.create_topic(requested.name)
    return _unknown(requested.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _unknown(name: str | None, error_code: int) -> Fields:
    return {"error_code": error_code, "name": name, "partitions": []}


def _known(state: ClusterState, topic: FakeTopic) -> Fields:
    return {
        "error_code": ErrorCode.NONE,
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
                "offset_lag": 0,
                "is_future_key": False,
            }
            for partition in topic.partitions
            if request.broker in partition.replicas
            and (wanted is None or partition.index in wanted.get(topic.name, ()))
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    cordoned = state.brokers[request.broker].cordoned
    return _log_dirs(ErrorCode.NONE, topics, cordoned=cordoned)


def _log_dirs(error_code: int, topics: list[Fields], *, cordoned: bool = False) -> Fields:
    found = {"error_code": error_code, "log_dir": _DIRECTORY, "topics": topics}
    return {"results": [found | {"is_cordoned": cordoned}]}


def _size(partition: FakePartition, node_id: int) -> int:
    end = partition.log.end_offset
    whole = sum(header.size for header, _ in partition.log.batches)
    return whole * partition.end_offset_at(node_id) // end if end else 0


APIS = (
    Api(ApiKey.METADATA, (0, 13), _metadata, _no_metadata),
    Api(ApiKey.DESCRIBE_QUORUM, (0, 2), _describe_quorum),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        (1, 5),
        _describe_log_dirs,
        lambda _, error_code: _log_dirs(error_code, []),
    ),
)
