"""The APIs of coordinators and committed offsets.

FindCoordinator (10), versions 0 to 5
    The coordinator of a group or a transactional id. Any broker answers. The coordinator is the
    broker that a test has chosen, else a live broker by the hash of the key. Without a live broker
    the answer is COORDINATOR_NOT_AVAILABLE. From 4 on a request may have several keys (KIP-699).

OffsetCommit (8), versions 2 to 9
    Sets the committed offsets of a group. Only the group's coordinator answers. If the group has
    members, the request must be by one of them and in the current generation; without members any
    client may commit. Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION.

OffsetFetch (9), versions 1 to 9
    The committed offsets of a group. Only the group's coordinator answers, for the named
    partitions, or without names for all partitions that have one. With ``require_stable``, from
    version 7 on, a partition with a pending offset in an open transaction gets
    UNSTABLE_OFFSET_COMMIT (KIP-447). Several groups need version 8.

TxnOffsetCommit (28), versions 0 to 5
    Adds offsets of a group to a transaction. Only the group's coordinator answers. Before version 5
    the group must be part of the transaction; from 5 on this request adds it (KIP-890). A member
    that is not in the group's current generation is refused (KIP-447). A test can set the
    generation of a group without members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api, by_partition
from kafkaclient.testing.fake.log import ErrorCode
from kafkaclient.testing.fake.transactions import Committed
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

_FIRST_FIND_BATCHED = 4
_FIRST_FETCH_OF_GROUPS = 8
_FIRST_COMMIT_OF_V2 = 5
_FIRST_COMMIT_WITH_GENERATION = 3
_NO_GENERATION = -1
_ILLEGAL = ErrorCode.ILLEGAL_GENERATION


def _find_coordinator(state: ClusterState, request: Request) -> Fields:
    def found(key: str) -> Fields:
        node_id = state.transactions.node_of(key)
        if node_id < 0:
            return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        broker = state.brokers[node_id]
        address = {"node_id": node_id, "host": broker.host, "port": broker.port}
        return {"key": key, "error_code": ErrorCode.NONE, "error_message": None} | address

    return _each_key(request, found)


def _each_key(request: Request, found: Callable[[str], Fields]) -> Fields:
    if request.version >= _FIRST_FIND_BATCHED:
        return {"coordinators": [found(key) for key in request.message.coordinator_keys]}
    fields = found(request.message.key)
    del fields["key"]
    return fields


def _not_found(key: str, error_code: int) -> Fields:
    return {
        "key": key,
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": error_code,
        "error_message": None,
    }


def _offset_commit(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    group, generation = message.group_id, message.generation_id_or_member_epoch
    refusal = coordinator.refusal(group, request.broker) or _not_a_member(
        state, group, message.member_id, message.group_instance_id, generation
    )

    def commit(topic: Any, p: Any) -> Fields:
        code = refusal
        if not code and state.partition(topic.name, p.partition_index) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not code:
            committed = Committed(p.committed_offset, p.committed_metadata or "")
            coordinator.committed[group, topic.name, p.partition_index] = committed
        return {"partition_index": p.partition_index, "error_code": code}

    return {"topics": by_partition(message.topics, commit)}


def _not_a_member(
    state: ClusterState, group: str, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """The error if these may not commit offsets of the group."""
    current = state.transactions.generations.get(group)
    if current is None:
        return state.groups.commit_refusal(group, member_id, instance_id, generation)
    return ErrorCode.NONE if generation in (current, _NO_GENERATION) else _ILLEGAL


def _offset_fetch(state: ClusterState, request: Request) -> Fields:
    coordinator, stable = state.transactions, request.message.require_stable

    def offset(group: str, topic: str, partition: int) -> Fields:
        code = coordinator.refusal(group, request.broker)
        if not code and stable and coordinator.pending(group, topic, partition):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        found = None if code else coordinator.committed.get((group, topic, partition))
        return _offset(code, -1 if found is None else found.offset, found and found.metadata)

    return _each_offset(request, offset, coordinator.committed)


def _offset(error_code: int, offset: int = -1, metadata: str | None = None) -> Fields:
    return {"error_code": error_code, "committed_offset": offset, "metadata": metadata or ""}


def _each_offset(
    request: Request,
    offset: Callable[[str, str, int], Fields],
    committed: Iterable[tuple[str, str, int]] = (),
) -> Fields:
    def topics(group: Any) -> list[Fields]:
        if group.topics is None:
            return _all(group.group_id)
        return by_partition(
            group.topics,
            lambda topic, p: {"partition_index": p} | offset(group.group_id, topic.name, p),
            requested="partition_indexes",
        )

    def _all(group: str) -> list[Fields]:
        found: dict[str, list[Fields]] = {}
        for topic, index in [key[1:] for key in committed if key[0] == group]:
            partitions = found.setdefault(topic, [])
            partitions.append({"partition_index": index} | offset(group, topic, index))
        return [{"name": topic, "partitions": each} for topic, each in found.items()]

    message = request.message
    if request.version < _FIRST_FETCH_OF_GROUPS:
        return {"topics": topics(message)}
    return {"groups": [{"group_id": g.group_id, "topics": topics(g)} for g in message.groups]}


def _txn_offset_commit(state: ClusterState, request: Request) -> Fields:
    code = _commit_refusal(state, request)
    if not code:
        message, coordinator = request.message, state.transactions
        coordinator.add(message.transactional_id, group=message.group_id)
        known = coordinator.ids[message.transactional_id]
        for topic in message.topics:
            for p in topic.partitions:
                known.offsets[message.group_id, topic.name, p.partition_index] = Committed(
                    p.committed_offset, p.committed_metadata or ""
                )
    return _committed(request, code)


def _committed(request: Request, error_code: int) -> Fields:
    """The same error code for every partition."""
    return {
        "topics": by_partition(
            request.message.topics,
            lambda _, p: {"partition_index": p.partition_index, "error_code": error_code},
        )
    }


def _commit_refusal(state: ClusterState, request: Request) -> ErrorCode:
    message, coordinator = request.message, state.transactions
    group, name = message.group_id, message.transactional_id
    code = coordinator.refusal(group, request.broker) or coordinator.check(
        name, message.producer_id, message.producer_epoch
    )
    if code:
        return code
    if request.version < _FIRST_COMMIT_OF_V2 and group not in coordinator.ids[name].groups:
        return ErrorCode.INVALID_TXN_STATE
    if request.version < _FIRST_COMMIT_WITH_GENERATION or message.generation_id == _NO_GENERATION:
        return ErrorCode.NONE
    known = group in coordinator.generations or group in state.groups.groups
    if not known:
        return ErrorCode.NONE  # a member that a test has made up
    return _not_a_member(
        state, group, message.member_id, message.group_instance_id, message.generation_id
    )


APIS = (
    Api(
        ApiKey.FIND_COORDINATOR,
        (0, 5),
        _find_coordinator,
        lambda request, code: _each_key(request, lambda key: _not_found(key, code)),
    ),
    Api(ApiKey.OFFSET_COMMIT, (2, 9), _offset_commit, _committed),
    Api(
        ApiKey.OFFSET_FETCH,
        (1, 9),
        _offset_fetch,
        lambda request, code: _each_offset(request, lambda *_: _offset(code)),
    ),
    Api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), _txn_offset_commit, _committed),
)
