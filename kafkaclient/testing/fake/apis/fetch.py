"""The APIs that read partitions.

Fetch (1), versions 4 to 16
    Reads the batches of partitions that this broker leads. A read starts at the batch that contains
    the offset. It ends at the log end offset, or with isolation level 1 at the last stable offset;
    the answer then lists the aborted transactions. Batches are returned as written, including
    transaction markers. The last batch is truncated at ``partition_max_bytes`` or ``max_bytes``,
    but the first batch of an answer is complete (KIP-74). If there is nothing to read, the answer
    comes when there is, at the latest after ``max_wait_ms``.
    An offset outside of the log gets OFFSET_OUT_OF_RANGE. A leader epoch older than the partition's
    gets FENCED_LEADER_EPOCH, a newer one UNKNOWN_LEADER_EPOCH (KIP-320). If the log was truncated
    before the offset, the answer has the diverging epoch (version 12).
    With ``rack_aware_fetch`` a client in the rack of a follower is redirected to it (KIP-392). The
    followers of the fake have all records of their leader.
    The answer for a partition with another leader contains the leader and its address (KIP-951).
    Epochs need version 9, racks 11, leader hints 12 and addresses 16. From 13 on topics are named
    by id; an unknown id gets UNKNOWN_TOPIC_ID. Sessions:
    :mod:`~kafkaclient.testing.fake.fetch_sessions`.

ListOffsets (2), versions 1 to 7
    The start and end offsets of a partition, and offsets by timestamp. Only the partition's leader
    answers. For replica id -2 any replica answers with its own log end offset. Timestamp -1 is the
    log end offset, or with isolation level 1 the last stable offset; -2 is the log start offset.
    -3 is the record with the latest timestamp (KIP-734, version 7). Any other timestamp gives the
    first record that is not older, or -1.
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.apis.api import TOPIC_PARTITIONS, Api, Parts, each
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.fetch import FETCH_FIRST_WITH_TOPIC_IDS

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.fetch_sessions import FakeFetchSession
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.log import FakePartition
    from kafkaclient.testing.fake.state import ClusterState

_FETCHED = Parts(
    "topics",
    "responses",
    {"topic": "topic", "topic_id": "topic_id"},
    Parts(
        "partitions",
        "partitions",
        {"partition_index": "partition"},
        failed={"high_watermark": -1, "aborted_transactions": None},
    ),
)
_COMMITTED = 1
_AT_ONCE = {"error_code", "preferred_read_replica", "diverging_epoch"}
_ANY_EPOCH = -1
_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_DEBUG_REPLICA = -2


def _fetch(state: ClusterState, request: Request, session: FakeFetchSession | None) -> Fields:
    left = request.message.max_bytes
    moved: set[int] = set()

    def read(topic: Any, wanted: Any) -> Fields:
        nonlocal left
        by_id = request.version >= FETCH_FIRST_WITH_TOPIC_IDS
        name = state.name_of(topic) if by_id else topic.topic
        partition = state.partition(name, wanted.partition)
        failure = state.next_failure(state.fetch_failures, name, wanted.partition)
        if failure is not None:
            raise failure
        code = _refusal(partition, request, wanted)
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            raise state.not_led(partition, moved, code)
        if code:
            raise RefusedError(code)
        fields = _records(state, request, partition, wanted, left)
        left -= len(fields.get("records", b""))
        return fields

    wanted = request.message if session is None else SimpleNamespace(topics=session.topics())
    return _FETCHED.answer(wanted, read) | {"node_endpoints": state.endpoints(moved)}


def _fetch_or_wait(state: ClusterState, request: Request) -> Fields | asyncio.Future[Fields]:
    try:
        session = state.fetch_sessions.of(request)
    except RefusedError as refused:
        return refused.fields
    news = (lambda fields: fields) if session is None else session.answer
    fields = _fetch(state, request, session)
    wait_s = request.message.max_wait_ms / 1000
    if wait_s <= 0 or _is_enough(fields, request.message.min_bytes):
        return news(fields)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Fields] = loop.create_future()

    def serve(*, at_once: bool = False) -> None:
        found = _fetch(state, request, session)
        if not answer.done() and (at_once or _is_enough(found, request.message.min_bytes)):
            answer.set_result(news(found))

    def done(_: asyncio.Future[Fields]) -> None:
        timer.cancel()
        state.waiting_fetches.discard(serve)

    timer = loop.call_later(wait_s, partial(serve, at_once=True))
    state.waiting_fetches.add(serve)
    answer.add_done_callback(done)
    return answer


def _is_enough(fields: Fields, min_bytes: int) -> bool:
    """Whether the broker answers now instead of waiting for more records."""
    partitions = [partition for topic in fields["responses"] for partition in topic["partitions"]]
    if any(_AT_ONCE & p.keys() for p in partitions):
        return True
    return sum(len(partition["records"]) for partition in partitions) >= min_bytes


def _refusal(partition: FakePartition, request: Request, wanted: Any) -> ErrorCode:
    follows = request.message.rack_id and request.broker in partition.isr
    if partition.leader != request.broker and not follows:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return _epoch_error(partition, wanted)


def _epoch_error(partition: FakePartition, wanted: Any) -> ErrorCode:
    epoch = getattr(wanted, "current_leader_epoch", None)
    if epoch not in (None, _ANY_EPOCH) and epoch != partition.leader_epoch:
        older = epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def _records(
    state: ClusterState, request: Request, partition: FakePartition, wanted: Any, left: int
) -> Fields:
    log, committed = partition.log, request.message.isolation_level == _COMMITTED
    fields: Fields = {
        "high_watermark": log.end_offset,
        "last_stable_offset": log.last_stable_offset,
        "log_start_offset": log.start_offset,
        "aborted_transactions": None,
    }
    last_epoch = getattr(wanted, "last_fetched_epoch", None)
    if last_epoch not in (None, _ANY_EPOCH) and log.end_of(last_epoch) < wanted.fetch_offset:
        end = log.end_of(last_epoch)
        return fields | {"diverging_epoch": {"epoch": log.epoch_at(end - 1), "end_offset": end}}
    if not log.start_offset <= wanted.fetch_offset <= log.end_offset:
        raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE, **fields)
    nearby = _follower_nearby(state, request, partition)
    if nearby >= 0:
        return fields | {"preferred_read_replica": nearby}
    end = log.last_stable_offset if committed else log.end_offset
    stored = log.stored(wanted.fetch_offset, end)
    data = b"".join(stored)
    whole = len(stored[0]) if stored and left == request.message.max_bytes else 0
    fields["records"] = data[: max(whole, min(wanted.partition_max_bytes, max(left, 0)))]
    if committed:
        fields["aborted_transactions"] = [
            {"producer_id": producer_id, "first_offset": first}
            for producer_id, first, last in log.aborted
            if last >= wanted.fetch_offset and first < end
        ]
    return fields


def _follower_nearby(state: ClusterState, request: Request, partition: FakePartition) -> int:
    rack = request.message.rack_id
    if not rack or not state.rack_aware_fetch or partition.leader != request.broker:
        return -1
    if state.brokers[partition.leader].rack == rack:
        return -1
    nearby = [node for node in partition.isr if state.brokers[node].rack == rack]
    return nearby[0] if nearby else -1


def _offset(state: ClusterState, request: Request, topic: Any, requested: Any) -> Fields:
    partition = state.partition(topic.name, requested.partition_index)
    anywhere = request.message.replica_id == _DEBUG_REPLICA
    if partition.leader != request.broker and not (
        anywhere and request.broker in partition.replicas
    ):
        raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if error := _epoch_error(partition, requested):
        raise RefusedError(error)
    committed = request.message.isolation_level == _COMMITTED
    offset, timestamp = _find(partition, requested.timestamp, committed=committed)
    if anywhere and requested.timestamp == _LATEST:
        offset = partition.end_offset_at(request.broker)
    return {"offset": offset, "timestamp": timestamp, "leader_epoch": partition.leader_epoch}


def _find(partition: FakePartition, timestamp: int, *, committed: bool) -> tuple[int, int]:
    log = partition.log
    end = log.last_stable_offset if committed else log.end_offset
    if timestamp == _LATEST:
        return end, -1
    if timestamp == _EARLIEST:
        return log.start_offset, -1
    records = [r for r in log.records() if log.start_offset <= r.offset < end]
    if timestamp == _MAX_TIMESTAMP:
        found = max(records, key=lambda record: record.timestamp, default=None)
    else:
        found = next((record for record in records if record.timestamp >= timestamp), None)
    return (-1, -1) if found is None else (found.offset, found.timestamp)


APIS = (
    Api(ApiKey.FETCH, (4, 16), _fetch_or_wait, _FETCHED),
    each(ApiKey.LIST_OFFSETS, (1, 7), TOPIC_PARTITIONS, _offset),
)
