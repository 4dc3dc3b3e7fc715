"""The requests to the controller, for topics, reassignments and elections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.admin.description import topic_error
from kafkaclient.admin.session import CONTROLLER, NOT_NOW
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.errors import InvalidTopicError, KafkaError
from kafkaclient.topic_names import check_topic_name
from kafkaclient.wire.admin import AlterReassignmentsCall, ElectLeadersCall, ListReassignmentsCall
from kafkaclient.wire.topics import (
    CreatePartitionsCall,
    CreateTopicsCall,
    DeleteTopicsCall,
    NewPartitions,
    NewTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkaclient.admin.session import AdminSession
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import AlterReassignmentsResult, OngoingReassignment
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.topics import TopicOutcome, TopicOutcomes

_RETRIABLE = NOT_NOW | {
    ErrorCode.THROTTLING_QUOTA_EXCEEDED
}  # a mutation quota (KIP-599) is exceeded

# From 4.0 on brokers refuse to create more than 10,000 partitions in one request. They answer a
# larger extension with UNKNOWN_SERVER_ERROR after they added 10,000 partitions.
MAX_PARTITIONS_PER_REQUEST = 5_000


def errors_of(
    outcomes: Mapping[str, TopicOutcome | KafkaError],
) -> dict[str, KafkaError | None]:
    """By topic None or the error."""
    return {name: o if isinstance(o, KafkaError) else None for name, o in outcomes.items()}


class TopicRequests:
    """The requests to the controller for topics. Each topic of a request has its own outcome."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._timeout_ms = session.controller_timeout_ms

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicOutcome | KafkaError]:
        """Create topics. An outcome contains the topic's numbers, with the cluster's defaults."""
        refused = _invalid_names(topic.name for topic in topics)
        by_name = {topic.name: topic for topic in topics if topic.name not in refused}

        def call(names: tuple[str, ...]) -> CreateTopicsCall:
            chosen = tuple(by_name[name] for name in names)
            return CreateTopicsCall(chosen, self._timeout_ms, validate_only)

        doing = "validating" if validate_only else "creating"
        outcomes: dict[str, TopicOutcome | KafkaError] = {**refused}
        for names in _slices(by_name):
            answered, unsure = await self._request_each(names, call)
            for name, outcome in answered.items():
                code, detail = outcome.error_code, outcome.error_message
                if code == ErrorCode.TOPIC_ALREADY_EXISTS and name in unsure:
                    detail = "an earlier attempt, whose answer was lost, may have created it"
                error = topic_error(code, name, doing, "Create", detail) if code else None
                outcomes[name] = error or outcome
        return {topic.name: outcomes[topic.name] for topic in topics}

    async def delete(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Delete topics. Returns by name None or the error."""

        def call(wanted: tuple[str, ...]) -> DeleteTopicsCall:
            return DeleteTopicsCall(wanted, self._timeout_ms)

        refused = _invalid_names(names)
        wanted = tuple(name for name in names if name not in refused)
        known = {t.name for t in (await self._session.metadata(wanted)).topics if not t.error_code}
        outcomes, unsure = await self._request_each(wanted, call)
        results: dict[str, KafkaError | None] = {**refused}
        for name, outcome in outcomes.items():
            code, detail = outcome.error_code, outcome.error_message
            gone = not code or (
                code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in unsure & known
            )
            results[name] = None if gone else topic_error(code, name, "deleting", "Delete", detail)
        return {name: results[name] for name in names}

    async def extend(
        self, name: str, existing: int, total: int, assignments: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """Increase the number of partitions from ``existing`` to ``total``, in several requests if
        necessary. Raises the controller's error; partitions already added stay."""
        while existing < total:
            upto = min(total, existing + MAX_PARTITIONS_PER_REQUEST)
            await self.extend_once(NewPartitions(name, upto, assignments[: upto - existing]))
            assignments = assignments[upto - existing :]
            existing = upto

    async def extend_once(self, step: NewPartitions, *, validate_only: bool = False) -> None:
        """Add partitions in one request. Raises the controller's error. ``validate_only`` changes
        nothing."""
        call = CreatePartitionsCall((step,), self._timeout_ms, validate_only=validate_only)
        outcomes, unsure = await self._request_each((step.name,), lambda _: call)
        code, detail = outcomes[step.name].error_code, outcomes[step.name].error_message
        if not code:
            return
        # Neither error shows whether partitions were added.
        open_ = code == ErrorCode.UNKNOWN_SERVER_ERROR or (
            code == ErrorCode.INVALID_PARTITIONS and step.name in unsure
        )
        if open_ and not validate_only:
            (info,) = (await self._session.metadata((step.name,))).topics
            if len(info.partitions) == step.total:
                return
            detail = (
                f"{detail or 'no details'}; the topic has {len(info.partitions)} partitions now"
            )
        raise topic_error(code, step.name, "adding partitions to", "Alter", detail)

    async def check_known(self, name: str) -> None:
        """Raise the controller's error if the topic does not exist. The controller knows a new
        topic before the other brokers do."""
        try:
            await self.extend_once(NewPartitions(name, 1), validate_only=True)
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_PARTITIONS:  # else the topic exists
                raise

    async def _request_each(
        self, names: Sequence[str], call: Callable[[tuple[str, ...]], Call[TopicOutcomes]]
    ) -> tuple[dict[str, TopicOutcome], set[str]]:
        """Send the request until each topic has an outcome. Returns the outcomes, and the topics
        that an earlier attempt with an unknown outcome may have changed."""
        outcomes: dict[str, TopicOutcome] = {}
        unsure: set[str] = set()

        async def attempt() -> None:
            wanted = tuple(name for name in names if name not in outcomes)
            answered: set[str] = set()
            last: KafkaError | None = None
            try:
                result = await self._session.once(call(wanted), CONTROLLER)
                for outcome in result.topics:
                    if outcome.error_code in _RETRIABLE:
                        last = broker_error(outcome.error_code, f"topic {outcome.name!r}")
                        if outcome.error_code != ErrorCode.REQUEST_TIMED_OUT:
                            answered.add(outcome.name)
                    else:
                        outcomes[outcome.name] = outcome
            finally:
                unsure.update(set(wanted) - answered - outcomes.keys())
            if len(outcomes) < len(names):
                missing = ", ".join(name for name in names if name not in outcomes)
                raise last or broker_error(ErrorCode.REQUEST_TIMED_OUT, f"topics {missing}")

        if names:
            await self._session.until_answered(attempt)
        return outcomes, unsure


def _invalid_names(names: Iterable[str]) -> dict[str, KafkaError]:
    """The error of each illegal topic name. The other names are not affected."""
    refused: dict[str, KafkaError] = {}
    for name in names:
        try:
            check_topic_name(name)
        except InvalidTopicError as error:
            refused[name] = error
    return refused


def _slices(topics: Mapping[str, NewTopic]) -> Iterable[tuple[str, ...]]:
    """The names in groups of up to ``MAX_PARTITIONS_PER_REQUEST`` partitions."""
    group: list[str] = []
    total = 0
    for name, topic in topics.items():
        size = max(1, topic.partitions, len(topic.assignments))
        if group and total + size > MAX_PARTITIONS_PER_REQUEST:
            yield tuple(group)
            group, total = [], 0
        group.append(name)
        total += size
    if group:
        yield tuple(group)


class Reassignments:
    """Lists and alters reassignments (KIP-455), and elects leaders (KIP-460)."""

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

    async def alter(
        self, moves: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start reassignments, or cancel them (None). Returns by partition None or the error.
        Raises the controller's error for the whole request."""
        call = AlterReassignmentsCall(moves, self._timeout_ms)
        answer, attempts = await self._answered(call, "reassigning partitions")
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition, code, detail in answer.partitions:
            # An earlier attempt, whose answer was lost, may have cancelled the reassignment.
            done = not code or (code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and attempts > 1)
            results[partition] = None if done else _error(code, f"reassigning {partition}", detail)
        return results

    async def elect(
        self, partitions: tuple[TopicPartition, ...] | None, *, unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the preferred leaders, or with ``unclean`` replicas that are not in sync. Returns
        by partition None or the error. Raises the controller's error for the whole request."""
        call = ElectLeadersCall(partitions, unclean, self._timeout_ms)
        answer, _ = await self._answered(call, "electing leaders")
        return {
            partition: None
            if code in (0, ErrorCode.ELECTION_NOT_NEEDED)
            else _error(code, f"electing the leader of {partition}", detail)
            for partition, code, detail in answer.partitions
        }

    async def _answered(
        self, call: Call[AlterReassignmentsResult], what: str
    ) -> tuple[AlterReassignmentsResult, int]:
        """The answer, and the number of attempts. Raises the error for the whole request."""
        attempts = 0

        async def attempt() -> AlterReassignmentsResult:
            nonlocal attempts
            attempts += 1
            answer = await self._session.once(call, CONTROLLER)
            if answer.error_code in NOT_NOW:
                raise broker_error(answer.error_code, what)
            return answer

        answer = await self._session.until_answered(attempt)
        if answer.error_code:
            raise _error(answer.error_code, what, answer.error_message)
        return answer, attempts


def _error(code: int, what: str, detail: str | None, operation: str = "Alter") -> KafkaError:
    return broker_error(code, what, detail, advice=denied(code, operation))
