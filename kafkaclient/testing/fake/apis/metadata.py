"""The APIs that open a connection, and those that describe the cluster.

ApiVersions (18), versions 0 to 5
    The answer is the cluster's ``versions``, a range per API, which come from :data:`PROFILES` or
    from a test. Version 5 gets REBOOTSTRAP_REQUIRED if it names another cluster or broker
    (KIP-1242), with SASL only after the login, as in Kafka 4.4. A request in an unsupported version
    is answered in version 0 with UNSUPPORTED_VERSION; from Kafka 2.4 on that answer contains the
    range of ApiVersions (KIP-511). Some brokers, such as Azure Event Hubs, close the connection
    instead above a version (:data:`CLOSES_ABOVE`). The feature level ``transaction.version`` is 2
    if the cluster has transactions v2 (KIP-890).

SaslHandshake (17), versions 0 and 1, and SaslAuthenticate (36), versions 0 to 2
    Without a :class:`~kafkaclient.testing.fake.Sasl` there is no authentication, and both get
    ILLEGAL_SASL_STATE. With it a connection may send only ApiVersions and SASL requests before it
    has authenticated, only SASL requests while it authenticates again (KIP-368), and only
    SaslHandshake after the end of its session. Any other request closes the connection, as in
    Kafka. One message authenticates, as with PLAIN and OAUTHBEARER. After a refusal the client
    closes the connection, or the broker closes it at the next request. SaslAuthenticate returns the
    lifetime of the session from version 1 on.

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

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.apis.api import Api, Parts
from kafkaclient.testing.fake.log import (
    INTERNAL_TOPICS,
    NO_LEADER,
    FakePartition,
    FakeTopic,
    RefusedError,
    is_valid_topic_name,
)
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import FIRST_WITH_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.serving import Sasl
    from kafkaclient.testing.fake.state import ClusterState


_FIRST_FLEXIBLE = 3

PROFILES: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "kafka-4": {ApiKey.PRODUCE: (0, 13)},
    "kafka-4.0": {ApiKey.PRODUCE: (0, 12), ApiKey.API_VERSIONS: (0, 4)},
    "kafka-3": {
        ApiKey.PRODUCE: (0, 9),
        ApiKey.METADATA: (0, 12),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.TXN_OFFSET_COMMIT: (0, 3),
        ApiKey.END_TXN: (0, 3),
    },
    "kafka-2.1": {
        ApiKey.PRODUCE: (0, 7),
        ApiKey.METADATA: (0, 7),
        ApiKey.API_VERSIONS: (0, 2),
        ApiKey.INIT_PRODUCER_ID: (0, 1),
        ApiKey.CREATE_TOPICS: (0, 3),
        ApiKey.LIST_OFFSETS: (0, 4),
    },
    "event-hubs": {
        ApiKey.PRODUCE: (3, 9),
        ApiKey.METADATA: (0, 9),
        ApiKey.API_VERSIONS: (0, 3),
    },
}
"""Profile -> the version ranges that differ from the newest ones that the fake implements.

Brokers since 4.0 still offer Produce from version 0 on, for clients that see from it which formats
a broker knows (KAFKA-18659), and close the connection at versions before 3."""

CLOSES_ABOVE: Mapping[str, int] = {"event-hubs": 3}
"""Profile -> the newest ApiVersions version at which the broker keeps the connection open."""


def _api_versions(state: ClusterState, request: Request) -> Fields:
    if request.version >= FIRST_WITH_NODE and (
        state.sasl is None or state.sasl.is_authenticated(request)
    ):
        meant = request.message.cluster_id, request.message.node_id
        if (meant[0] is None) != (meant[1] == -1):
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        if meant not in ((None, -1), (state.cluster_id, request.broker)):
            raise RefusedError(ErrorCode.REBOOTSTRAP_REQUIRED)
    level = 2 if state.transactions_v2 else 1
    levels = {"max_version_level": level, "min_version_level": level}
    return {
        "api_keys": [_range(key, *versions) for key, versions in sorted(state.versions.items())],
        "finalized_features_epoch": 1,
        "finalized_features": [{"name": "transaction.version", **levels}],
    }


def unsupported(state: ClusterState) -> Fields:
    """The fields of the version 0 answer to an unsupported version of ApiVersions."""
    oldest, newest = state.versions[ApiKey.API_VERSIONS]
    known = [_range(ApiKey.API_VERSIONS, oldest, newest)] if newest >= _FIRST_FLEXIBLE else []
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": known}


def _range(api_key: int, oldest: int, newest: int) -> Fields:
    return {"api_key": int(api_key), "min_version": oldest, "max_version": newest}


def _sasl(state: ClusterState) -> Sasl:
    if state.sasl is None:
        raise RefusedError(ErrorCode.ILLEGAL_SASL_STATE)
    return state.sasl


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
    Api(ApiKey.API_VERSIONS, (0, 5), _api_versions),
    Api(ApiKey.SASL_HANDSHAKE, (0, 1), lambda state, request: _sasl(state).handshake(request)),
    Api(
        ApiKey.SASL_AUTHENTICATE,
        (0, 2),
        lambda state, request: _sasl(state).authenticate(request, state.now()),
    ),
    Api(ApiKey.METADATA, (0, 13), _metadata, refused=_no_metadata),
    Api(ApiKey.DESCRIBE_QUORUM, (0, 2), _describe_quorum),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        (1, 5),
        _describe_log_dirs,
        refused=lambda _, error: {"results": [{"log_dir": _DIRECTORY, **error}]},
    ),
)
