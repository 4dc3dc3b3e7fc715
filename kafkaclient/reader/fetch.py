"""Fetch requests: which are due, and what their responses mean."""

from __future__ import annotations

import asyncio
import logging
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.cluster.backoff import retry_pause_s
from kafkaclient.cluster.identity import differs
from kafkaclient.cluster.view import LeaderHint
from kafkaclient.errors import (
    KafkaError,
    LeaderChangedError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    defect,
)
from kafkaclient.reader.batch import FetchedPart
from kafkaclient.reader.cursor import Fetch
from kafkaclient.reader.session import FetchSession
from kafkaclient.wire.fetch import FetchByNameCall, FetchCall, FetchPartition, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from kafkaclient.config import ReaderConfig
    from kafkaclient.reader.cluster import ReaderCluster
    from kafkaclient.reader.cursor import Cursor
    from kafkaclient.wire.fetch import FetchedPartition, FetchResult

_log = logging.getLogger(__name__)


_SESSION_OVER = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

_LATE_S = 1.0
"""A response that is later than this makes the reader refresh the metadata, again and again after
this time."""


class Response(NamedTuple):
    """A response whose memory is in use until the caller has taken all of its parts."""

    node_id: int
    size: int
    parts: list[FetchedPart]

    @property
    def used_up(self) -> bool:
        """Whether no part has records left."""
        return not any(self.parts)


class Fetches:
    """Fetches the partitions of a read, each from its broker.

    Each broker has an equal share of ``fetch.max.bytes``. The bytes reserved for its request and
    the bytes of its responses stay within it, except for a single batch that is larger (KIP-74).
    ``wake`` is called after each response or failed request.
    """

    def __init__(
        self,
        config: ReaderConfig,
        cluster: ReaderCluster,
        wake: Callable[[], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._purpose = cluster.take_purpose()
        self._wake = wake
        self._to_fetch: list[Cursor] = []
        """The partitions that are not done, in the order in which a broker should serve them."""
        self._in_flight: dict[int, Fetch] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._responses: list[Response] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> int:
        """Bytes of responses in use, and bytes reserved for requests in flight."""
        return sum(r.size for r in self._responses) + sum(
            f.reserved for f in self._in_flight.values()
        )

    @property
    def has_used_up_response(self) -> bool:
        """Whether a response has no records left since the last :meth:`top_up`."""
        return any(response.used_up for response in self._responses)

    def close(self) -> None:
        """Cancel the requests in flight."""
        for task in self._tasks:
            task.cancel()
        self._cluster.give_back(self._purpose, answered=not self._in_flight)

    def add(self, cursor: Cursor) -> None:
        self._to_fetch.append(cursor)

    def remove(self, cursor: Cursor) -> None:
        """Fetch the partition no more, and ignore its response in flight."""
        cursor.give_up()
        if cursor in self._to_fetch:
            self._to_fetch.remove(cursor)

    # --- requests -----------------------------------------------------------------------------

    def top_up(self) -> float | None:
        """Send the requests that are due; returns when to call it again, None: after a response."""
        now = self._cluster.now()
        self._responses = [each for each in self._responses if not each.used_up]
        checks = [self._check_late(fetch, now) for fetch in self._in_flight.values()]
        enough = self._config.max_partition_fetch_bytes
        wanted: dict[int, list[Cursor]] = {}
        self._to_fetch = [cursor for cursor in self._to_fetch if not cursor.done]
        nodes = [self._node_of(cursor, now) for cursor in self._to_fetch]
        undelivered = {
            node
            for node, cursor in zip(nodes, self._to_fetch, strict=True)
            if cursor.parts and not cursor.paused
        }
        """The brokers of partitions that have records which the caller will take."""
        for node_id, cursor in zip(nodes, self._to_fetch, strict=True):
            if not cursor.is_hungry(enough):
                continue
            if cursor.retry_at > now:
                checks.append(cursor.retry_at)
            elif node_id is None:
                what = f"{cursor.topic_partition}: the partition has no leader that is up"
                self._failed(cursor, LeaderChangedError(what), now)
                checks.append(cursor.retry_at)
            else:
                wanted.setdefault(node_id, []).append(cursor)
        share = self._config.fetch_max_bytes // max(1, len({*nodes} - {None}))
        for node_id, cursors in wanted.items():
            if node_id in self._in_flight:
                continue
            others_soon = node_id in undelivered  # its other partitions will soon be due
            if others_soon and all(cursor.idle for cursor in cursors):
                continue  # the broker would hold the request until new records come
            room = self._room(node_id, share)
            if room < min(share, enough):
                self._release_paused()
                room = self._room(node_id, share)
            if room >= min(share, enough):
                checks.append(self._start(node_id, cursors, room, not others_soon, now))
        return min(checks, default=None)

    def _room(self, node_id: int, share: int) -> int:
        """Bytes that may still be fetched from a broker."""
        return share - sum(
            r.size for r in self._responses if r.node_id == node_id and not r.used_up
        )

    def _release_paused(self) -> None:
        """Release what was fetched of paused partitions. They fetch it again when they resume."""
        for cursor in self._to_fetch:
            if cursor.paused and cursor.error is None and cursor.parts:
                cursor.rewind()

    def _node_of(self, cursor: Cursor, now: float) -> int | None:
        view = self._cluster.metadata.view
        leader = view.leader(*cursor.topic_partition)
        if leader is None:
            return None  # perhaps the topic is deleted
        if cursor.replica is not None:
            if now < cursor.replica_until and cursor.replica in view.brokers:
                return cursor.replica
            cursor.replica = None
        return leader.node_id

    def _check_late(self, fetch: Fetch, now: float) -> float:
        """Find the leaders again if a response is late; returns the time of the next check."""
        if now >= fetch.late_at:
            fetch.late_at = now + _LATE_S
            self._cluster.metadata.request_refresh(f"broker {fetch.node_id} is late with a Fetch")
            for cursor in fetch.wanted:
                if self._node_of(cursor, now) != fetch.node_id:
                    cursor.fetch = None
        return fetch.late_at

    def _start(
        self, node_id: int, cursors: list[Cursor], room: int, wait: bool, now: float
    ) -> float:
        most = min(room, len(cursors) * self._config.max_partition_fetch_bytes)
        wait_ms = self._config.fetch_max_wait_ms if wait else 0
        topic_ids = {each.topic_partition.topic: self._topic_id(each) for each in cursors}
        fetch = Fetch(node_id, cursors, most, now + wait_ms / 1000 + _LATE_S, topic_ids)
        self._in_flight[node_id] = fetch
        for cursor in cursors:
            cursor.fetch = fetch
        call = self._call(node_id, cursors, most, wait_ms)
        task = asyncio.create_task(self._run(fetch, call), name=f"fetch from {node_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return fetch.late_at

    def _call(self, node_id: int, cursors: list[Cursor], most: int, wait_ms: int) -> FetchCall:
        config, view = self._config, self._cluster.metadata.view
        for cursor in cursors:
            cursor.cluster_id = cursor.cluster_id or view.cluster_id
        topics = []
        for name, group in groupby(cursors, attrgetter("topic_partition.topic")):
            topic = view.topics[name]
            partitions = [
                FetchPartition(
                    cursor.topic_partition.partition,
                    cursor.fetch_offset or 0,
                    config.max_partition_fetch_bytes,
                    topic.partitions[cursor.topic_partition.partition].leader_epoch,
                    cursor.last_epoch,
                )
                for cursor in group
            ]
            topic_id = None if topic.topic_id is None else topic.topic_id.bytes
            topics.append(FetchTopic(name, topic_id, partitions))
        by_id = all(topic.topic_id is not None for topic in topics)
        listed, session = self._sessions.setdefault(node_id, FetchSession()).request(topics)
        return (FetchCall if by_id else FetchByNameCall)(
            tuple(listed),
            wait_ms,
            config.fetch_min_bytes if wait_ms else 0,
            most,
            config.read_committed,
            config.client_rack,
            session,
        )

    # --- responses ------------------------------------------------------------------------------

    async def _run(self, fetch: Fetch, call: FetchCall) -> None:
        out_of_range: list[Cursor] = []
        try:
            result = await self._cluster.router.call(call, fetch.node_id, purpose=self._purpose)
            result = self._sessions[fetch.node_id].answered(result)
            if result.error_code not in _SESSION_OVER:  # else all partitions are listed at once
                out_of_range = self._on_result(fetch, result)
        except KafkaError as error:
            now = self._cluster.now()
            self._sessions[fetch.node_id].failed()
            self._cluster.metadata.request_refresh(f"a Fetch failed: {error}")
            for cursor in fetch.wanted:
                self._failed(cursor, error, now)
        except Exception as cause:  # noqa: BLE001 - the reader must not wait for ever
            _log.exception("a Fetch failed in an unexpected way")
            for cursor in fetch.wanted:
                cursor.error = defect("reading", cause)
        finally:
            del self._in_flight[fetch.node_id]
            for cursor in fetch.wanted:
                if cursor not in out_of_range:
                    cursor.fetch = None
            self._wake()
        await self._explain(fetch, out_of_range)

    def _on_result(self, fetch: Fetch, result: FetchResult) -> list[Cursor]:
        """Returns the partitions whose offset is not in the log."""
        if code := result.error_code:
            error = broker_error(code, f"Fetch from broker {fetch.node_id}")
            error.retriable |= code == ErrorCode.UNKNOWN_SERVER_ERROR  # as in Java's consumer
            raise error
        now = self._cluster.now()
        fetched = {(p.topic, p.partition): p for p in result.partitions}
        parts: list[FetchedPart] = []
        out_of_range: list[Cursor] = []
        self._learn_leaders(result)
        for cursor in fetch.wanted:
            found = fetched.get(cursor.topic_partition)
            if found is None:
                if result.throttle_ms == 0:  # a throttled response leaves all partitions out
                    what = f"{cursor.topic_partition}: broker {fetch.node_id} did not mention it"
                    self._failed(cursor, LeaderChangedError(what), now)
            elif not self._is_same_topic(cursor, None if found.error_code else fetch):
                continue
            elif found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(cursor)
            elif found.error_code or found.diverging_end >= 0:
                self._refused(cursor, fetch, found, now)
            elif found.preferred_replica >= 0 and not found.records:
                cursor.replica = found.preferred_replica
                cursor.replica_until = now + self._config.metadata_max_age_ms / 1000
            else:
                self._arrived(cursor, found, parts)
        if parts:
            self._responses.append(Response(fetch.node_id, result.size, parts))
            # Partitions that were served go to the end.
            served = set(parts)
            self._to_fetch.sort(key=lambda cursor: not served.isdisjoint(cursor.parts))
        return out_of_range

    def _arrived(self, cursor: Cursor, found: FetchedPartition, parts: list[FetchedPart]) -> None:
        part = None
        if found.records:
            # A broker sends the first batch of a response whole (KIP-74).
            part = FetchedPart(
                cursor.topic_partition,
                found.records,
                cursor.fetch_offset or 0,
                aborted=found.aborted if self._config.read_committed else None,
                check_crcs=self._config.check_crcs,
            )
            if part.is_fragment and parts:
                part = None
            else:
                parts.append(part)
        committed = self._config.read_committed
        end = found.last_stable_offset if committed else found.high_watermark
        cursor.fetched(part, found.high_watermark, end)
        ends = found.high_watermark, found.last_stable_offset
        cursor.last_fetch = (*ends, self._cluster.now())

    def _topic_id(self, cursor: Cursor) -> UUID | None:
        return self._cluster.metadata.topic_id(cursor.topic_partition.topic)

    def _is_same_topic(self, cursor: Cursor, answered: Fetch | None) -> bool:
        """Whether it is the topic that was fetched before; otherwise sets the cursor's error.

        ``answered`` has records, or none, of the topic that it asked for, which may be an earlier
        one with the same name. If nothing else is known of it, the topic is fetched again."""
        if answered is not None:
            asked = answered.topic_ids.get(cursor.topic_partition.topic)
            if cursor.topic_id is None:
                cursor.topic_id = asked
            elif asked not in (None, cursor.topic_id, self._topic_id(cursor)):
                return False
        cluster_id = self._cluster.metadata.view.cluster_id
        if differs(cursor.cluster_id, cluster_id):
            cursor.error = UnknownTopicError(
                f"{cursor.topic_partition}: the reader has moved from cluster "
                f"{cursor.cluster_id!r} to {cluster_id!r} while the topic was read; offset "
                f"{cursor.position} was one of {cursor.cluster_id!r}"
            )
            return False
        if cursor.topic_id is not None and self._topic_id(cursor) not in (None, cursor.topic_id):
            cursor.error = UnknownTopicError(
                f"{cursor.topic_partition}: the topic was deleted and created again while it "
                f"was read; offset {cursor.position} was one of the old topic"
            )
            return False
        return True

    def _learn_leaders(self, result: FetchResult) -> None:
        hints = [
            LeaderHint(p.topic, p.partition, p.leader_id, p.leader_epoch)
            for p in result.partitions
            if p.leader_id >= 0
        ]
        if hints:
            self._cluster.metadata.apply_leaders(hints, result.endpoints)

    def _refused(self, cursor: Cursor, fetch: Fetch, found: FetchedPartition, now: float) -> None:
        code, topic = found.error_code, cursor.topic_partition.topic
        if not code:
            self._failed(cursor, _truncated(cursor, found), now)
            return
        advice = denied(code, "Read", topic)
        what = f"{cursor.topic_partition}: Fetch from broker {fetch.node_id}"
        error = broker_error(code, what, advice=advice)
        error.retriable |= code == ErrorCode.UNKNOWN_SERVER_ERROR  # as in Java's consumer
        self._cluster.metadata.request_refresh(str(error))
        self._failed(cursor, error, now)

    async def _explain(self, fetch: Fetch, out_of_range: list[Cursor]) -> None:
        """Fail the partitions. The others of the response do not wait for it."""
        for cursor in out_of_range:
            error = await self._out_of_range(cursor, cursor.fetch_offset or 0)
            if cursor.fetch is fetch:
                cursor.fetch, cursor.last_epoch = None, -1  # the broker may not know the epoch
                self._failed(cursor, error, self._cluster.now())
                self._wake()

    async def _out_of_range(self, cursor: Cursor, offset: int) -> OffsetOutOfRangeError:
        """The error with the available offsets; retriable if the broker may not have the whole
        log."""
        where = cursor.topic_partition
        error = OffsetOutOfRangeError(f"{where}: offset {offset} is not in the log")
        error.code, error.name = ErrorCode.OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"
        error.topic_partition, error.offset = where, offset
        follower = cursor.replica is not None
        try:
            first, end = await self._cluster.range_of(where)
        except KafkaError as problem:
            error.retriable, error.__cause__ = problem.retriable, problem
        else:
            error.available = (first, end)
            # The log may have grown between the responses; a follower may lag behind.
            error.retriable = first <= offset <= end
            what = "nothing" if first == end else f"the offsets from {first} to {end - 1}"
            error.args = (
                f"{where}: offset {offset} is not in the log, which has {what}"
                f"{'' if offset > first else '; earlier records have been deleted'}",
            )
        if follower:
            error.retriable = True
        return error

    def _failed(self, cursor: Cursor, error: KafkaError, now: float) -> None:
        pause_s = retry_pause_s(cursor.failures + 1, self._config, self._cluster.rng)
        if isinstance(error, LeaderChangedError):
            self._cluster.metadata.request_refresh(str(error))
        cursor.failed(error, now, pause_s, self._config.max_block_ms / 1000)


def _truncated(cursor: Cursor, found: FetchedPartition) -> LogTruncatedError:
    where, end = cursor.topic_partition, found.diverging_end
    error = LogTruncatedError(
        f"{where}: the log was truncated at offset {end} after it had been read up to offset "
        f"{cursor.fetch_offset}: a broker without the last records was elected leader "
        "(unclean.leader.election.enable), so they are lost, and others may have their offsets"
    )
    error.topic_partition, error.offset = where, cursor.fetch_offset or 0
    error.truncated_to = end
    error.available = (found.log_start_offset, found.high_watermark)
    return error
