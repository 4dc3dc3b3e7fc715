"""Partitions given other replicas (KIP-455), within the partition limits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkaclient.admin.guard import usage_of
from kafkaclient.admin.limits import Request
from kafkaclient.admin.session import CONTROLLER, NOT_NOW
from kafkaclient.admin.topics import topic_error
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.types import TopicPartition
from kafkaclient.wire.reassignments import AlterReassignmentsCall, ListReassignmentsCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.session import Session
    from kafkaclient.errors import KafkaError
    from kafkaclient.wire.reassignments import AlterReassignmentsResult, OngoingReassignment
    from kafkaclient.wire.results import MetadataResult

__all__ = ["Reassignments"]

_UNKNOWN_TOPIC = 3
_NO_REASSIGNMENT = 85


class Reassignments:
    """The calls about moves; each within the session's limit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timeout_ms = session.config.request_timeout_ms * 3 // 4

    async def ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        """The moves under way. Raises the controller's error."""
        call = ListReassignmentsCall(timeout_ms=self._timeout_ms)

        async def attempt() -> dict[TopicPartition, OngoingReassignment]:
            told = await self._session.once(call, CONTROLLER)
            if told.error_code:
                code, detail = told.error_code, told.error_message
                raise _error(code, "listing reassignments", detail, "Describe")
            return {move.partition: move for move in told.partitions}

        return await self._session.until_answered(attempt)

    def check(
        self,
        moves: Mapping[TopicPartition, tuple[int, ...] | None],
        limits: Limits,
        cluster: MetadataResult,
    ) -> None:
        """Raise PolicyViolationError if a broker would gain replicas above its limit. What a broker
        is to give away counts until it has: the limit per broker holds for the peak; the total is
        not affected by moves. Raises UnknownTopicError."""
        usage_of(cluster).check_gains(limits, _request(moves, cluster))

    async def alter(
        self,
        moves: Mapping[TopicPartition, tuple[int, ...] | None],
        cluster: MetadataResult,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin moves, or cancel them (None). Raises UnknownTopicError, and the controller's
        error for all of them."""
        _request(moves, cluster)
        call = AlterReassignmentsCall(moves, self._timeout_ms)
        attempts = 0

        async def attempt() -> AlterReassignmentsResult:
            nonlocal attempts
            attempts += 1
            told = await self._session.once(call, CONTROLLER)
            if told.error_code in NOT_NOW:
                raise broker_error(told.error_code, "reassigning partitions")
            return told

        told = await self._session.until_answered(attempt)
        if told.error_code:
            raise _error(told.error_code, "reassigning partitions", told.error_message)
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition, code, detail in told.partitions:
            # The first attempt, whose answer was lost, may have cancelled it.
            gone = code == _NO_REASSIGNMENT and attempts > 1
            results[partition] = (
                _error(code, f"reassigning {partition}", detail) if code and not gone else None
            )
        return results

    async def check_room(
        self,
        begun: Mapping[TopicPartition, tuple[int, ...] | None],
        limits: Limits,
        cluster: MetadataResult,
        *,
        undone: bool = False,
    ) -> None:
        """Raise PartitionLimitRaceError if moves that have begun took the same room as somebody
        else's change. ``cluster``: as it was before; ``undone``: they are cancelled then."""
        request = _request(begun, cluster)
        if limits.max_broker_partitions is not None and any(request.gains.values()):
            told = await self._seen({p: set(nodes or ()) for p, nodes in begun.items()})
            usage_of(told).check_outcome(limits, request, undone=undone)

    async def _seen(self, begun: Mapping[TopicPartition, set[int]]) -> MetadataResult:
        """Metadata of all topics that has the new replicas."""
        waits = 0
        while True:
            cluster = await self._session.metadata(None)
            told = {
                TopicPartition(topic.name, p.partition): set(p.replicas)
                for topic in cluster.topics
                for p in topic.partitions
            }
            if all(wanted <= told.get(at, wanted) for at, wanted in begun.items()):
                return cluster
            waits += 1
            await self._session.pause(waits)


def _request(
    moves: Mapping[TopicPartition, tuple[int, ...] | None], cluster: MetadataResult
) -> Request:
    """What brokers gain by the moves; partitions of internal topics are free."""
    has = {
        TopicPartition(topic.name, p.partition): (topic.is_internal, p.replicas)
        for topic in cluster.topics
        for p in topic.partitions
    }
    gains: Counter[int] = Counter()
    for partition, replicas in moves.items():
        if partition not in has:
            raise topic_error(_UNKNOWN_TOPIC, str(partition), "reassigning", "Alter")
        internal, present = has[partition]
        if replicas is not None and not internal:
            gains.update(set(replicas) - set(present))
    return Request(f"reassigning {len(moves)} partitions", 0, 0, gains)


def _error(code: int, what: str, detail: str | None, operation: str = "Alter") -> KafkaError:
    return broker_error(code, what, detail, advice=denied(code, operation, by_itself=True))
