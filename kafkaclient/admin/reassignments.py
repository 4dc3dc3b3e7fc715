"""Lists and alters partition reassignments (KIP-455), within the partition limits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkaclient.admin.error_codes import (
    NO_REASSIGNMENT_IN_PROGRESS,
    NOT_NOW,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkaclient.admin.limits import Addition
from kafkaclient.admin.limits_guard import is_exempt, usage_of
from kafkaclient.admin.session import CONTROLLER
from kafkaclient.admin.topics import partitions_of
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.wire.admin import AlterReassignmentsCall, ListReassignmentsCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import AlterReassignmentsResult, OngoingReassignment
    from kafkaclient.wire.results import MetadataResult


class Reassignments:
    """The requests for reassignments. Each runs within the time limit of the session."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._timeout_ms = session.controller_timeout_ms

    async def ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        """The ongoing reassignments. Raises the controller's error."""
        call = ListReassignmentsCall(timeout_ms=self._timeout_ms)

        async def attempt() -> dict[TopicPartition, OngoingReassignment]:
            answer = await self._session.once(call, CONTROLLER)
            if answer.error_code:
                code, detail = answer.error_code, answer.error_message
                raise _error(code, "listing reassignments", detail, "Describe")
            return {move.partition: move for move in answer.partitions}

        return await self._session.until_answered(attempt)

    def check_limits(
        self,
        moves: Mapping[TopicPartition, tuple[int, ...] | None],
        limits: Limits,
        cluster: MetadataResult,
    ) -> None:
        """Raise PolicyViolationError if a broker would exceed its limit during the reassignments,
        while removed replicas still count. Reassignments do not change the total number of
        partitions. Raises UnknownTopicError."""
        usage_of(cluster).check_gains(limits, _request(moves, cluster))

    async def alter(
        self, moves: Mapping[TopicPartition, tuple[int, ...] | None], cluster: MetadataResult
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start reassignments, or cancel them (None). Returns by partition None or the error.
        Raises UnknownTopicError, and the controller's error for the whole request."""
        _request(moves, cluster)
        call = AlterReassignmentsCall(moves, self._timeout_ms)
        attempts = 0

        async def attempt() -> AlterReassignmentsResult:
            nonlocal attempts
            attempts += 1
            answer = await self._session.once(call, CONTROLLER)
            if answer.error_code in NOT_NOW:
                raise broker_error(answer.error_code, "reassigning partitions")
            return answer

        answer = await self._session.until_answered(attempt)
        if answer.error_code:
            raise _error(answer.error_code, "reassigning partitions", answer.error_message)
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition, code, detail in answer.partitions:
            # An earlier attempt, whose answer was lost, may have cancelled the reassignment.
            done = not code or (code == NO_REASSIGNMENT_IN_PROGRESS and attempts > 1)
            results[partition] = None if done else _error(code, f"reassigning {partition}", detail)
        return results

    async def check_race(
        self,
        begun: Mapping[TopicPartition, tuple[int, ...] | None],
        limits: Limits,
        cluster: MetadataResult,
        *,
        undone: bool = False,
    ) -> None:
        """Raise PartitionLimitRaceError if the reassignments that have ``begun`` and a concurrent
        change used the same capacity. ``cluster`` is metadata from before the reassignments.
        ``undone``: the caller cancels the reassignments."""
        request = _request(begun, cluster)
        if limits.max_broker_partitions is not None and any(request.gains.values()):
            targets = {p: set(nodes or ()) for p, nodes in begun.items()}

            def includes_targets(now: MetadataResult) -> bool:
                present = {p: set(view.replicas) for p, view in partitions_of(now).items()}
                return all(nodes <= present.get(p, nodes) for p, nodes in targets.items())

            now = await self._session.poll(lambda: self._session.metadata(None), includes_targets)
            usage_of(now).check_race(limits, request, undone=undone)


def _request(
    moves: Mapping[TopicPartition, tuple[int, ...] | None], cluster: MetadataResult
) -> Addition:
    """The replicas that each broker gains. Partitions of internal topics and of the topic of the
    limits do not count."""
    views = partitions_of(cluster)
    internal = {topic.name for topic in cluster.topics if topic.is_internal}
    gains: Counter[int] = Counter()
    for partition, replicas in moves.items():
        if replicas is None:
            continue
        if partition not in views:
            raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"reassigning partition {partition}")
        if partition.topic not in internal and not is_exempt(partition.topic):
            gains.update(set(replicas) - set(views[partition].replicas))
    return Addition(f"reassigning {len(moves)} partitions", 0, 0, gains)


def _error(code: int, what: str, detail: str | None, operation: str = "Alter") -> KafkaError:
    return broker_error(code, what, detail, advice=denied(code, operation))
