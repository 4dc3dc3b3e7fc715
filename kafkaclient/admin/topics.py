"""Topics: what the cluster says of them, and requests about each of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafkaclient.admin.session import CONTROLLER, NOT_NOW
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import InvalidTopicError, KafkaError
from kafkaclient.topic_names import check_topic_name
from kafkaclient.wire.admin import CreatePartitionsCall, NewPartitions
from kafkaclient.wire.codec import CreateTopicsCall, DeleteTopicsCall, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from kafkaclient.admin.session import Session
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.results import PartitionView, TopicInfo, TopicOutcome

__all__ = ["Requests", "TopicDescription", "described", "topic_error"]

_UNKNOWN_SERVER_ERROR = -1
_UNKNOWN_TOPIC = 3
_LEADER_NOT_AVAILABLE = 5
_TIMED_OUT = 7
_TOPIC_EXISTS = 36
_INVALID_PARTITIONS = 37
_THROTTLED = 89

_AGAIN = NOT_NOW | {_THROTTLED}
"""The answer of a controller that cannot do it now; a mutation quota (KIP-599) is waited out."""

_MOST_AT_ONCE = 5_000
"""Partitions in one request. Brokers refuse to create more than 10,000 in one (4.0 on), and answer
an extension by more with an unknown error, having added 10,000 of them."""

_MEANINGS = {
    _UNKNOWN_TOPIC: "there is no such topic",
    _TOPIC_EXISTS: "a topic of this name exists",
}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster knows it; ``topic_id`` is None before Kafka 2.8."""

    name: str
    topic_id: UUID | None
    internal: bool
    """Kafka's own (``__consumer_offsets`` and such), by the brokers' word."""
    partitions: tuple[PartitionView, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, as Kafka's tools have it."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    @property
    def under_replicated(self) -> tuple[PartitionView, ...]:
        """Partitions with a replica that is not in sync."""
        return tuple(p for p in self.partitions if len(p.isr) < len(p.replicas))

    @property
    def unavailable(self) -> tuple[PartitionView, ...]:
        """Partitions without a leader."""
        return tuple(p for p in self.partitions if p.leader < 0)


def described(info: TopicInfo) -> TopicDescription:
    """Raises the broker's error for a topic that it could not tell of."""
    if info.error_code and info.error_code != _LEADER_NOT_AVAILABLE:
        raise topic_error(info.error_code, info.name, "describing", "Describe")
    partitions = tuple(sorted(info.partitions))
    return TopicDescription(info.name, info.topic_id, info.is_internal, partitions)


def topic_error(
    code: int, name: str, doing: str, operation: str, detail: str | None = None
) -> KafkaError:
    """The typed error for what a broker answered about a topic."""
    advice = denied(code, operation, name, by_itself=True) or _MEANINGS.get(code)
    return broker_error(code, f"{doing} topic {name!r}", detail, advice=advice)


class _Answer(Protocol):
    @property
    def topics(self) -> tuple[TopicOutcome, ...]: ...


class Requests:
    """Requests to the controller about topics, each of which has its own outcome."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # The controller answers late rather than never, and before this client stops listening.
        self._timeout_ms = session.config.request_timeout_ms * 3 // 4

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicOutcome | KafkaError]:
        """Create topics; the outcomes tell what defaults of the cluster they got."""
        refused = _refused(topic.name for topic in topics)
        by_name = {topic.name: topic for topic in topics if topic.name not in refused}

        def call(names: tuple[str, ...]) -> CreateTopicsCall:
            chosen = tuple(by_name[name] for name in names)
            return CreateTopicsCall(chosen, self._timeout_ms, validate_only)

        doing = "validating" if validate_only else "creating"
        outcomes: dict[str, TopicOutcome | KafkaError] = {**refused}
        for some in _slices(by_name, lambda name: _size(by_name[name])):
            told, unsure = await self._each(some, call)
            for name, outcome in told.items():
                detail = outcome.error_message
                if outcome.error_code == _TOPIC_EXISTS and name in unsure:
                    detail = "an earlier attempt, whose answer was lost, may have created it"
                outcomes[name] = (
                    topic_error(outcome.error_code, name, doing, "Create", detail)
                    if outcome.error_code
                    else outcome
                )
        return {topic.name: outcomes[topic.name] for topic in topics}

    async def delete(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete topics; None for those that are gone."""

        def call(wanted: tuple[str, ...]) -> DeleteTopicsCall:
            return DeleteTopicsCall(wanted, self._timeout_ms)

        names = tuple(dict.fromkeys(names))
        refused = _refused(names)
        wanted = tuple(name for name in names if name not in refused)
        known = {t.name for t in (await self._session.metadata(wanted)).topics if not t.error_code}
        told, unsure = await self._each(wanted, call)
        results: dict[str, KafkaError | None] = {**refused}
        for name, outcome in told.items():
            code = outcome.error_code
            gone = not code or (code == _UNKNOWN_TOPIC and name in unsure & known)
            results[name] = (
                None
                if gone
                else topic_error(code, name, "deleting", "Delete", outcome.error_message)
            )
        return {name: results[name] for name in names}

    async def extend(
        self, name: str, existing: int, total: int, assignments: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """Let a topic have ``total`` partitions, ``existing`` of which it has now. Raises the
        controller's error; many partitions are added in several steps, each for good."""
        while existing < total:
            upto = min(total, existing + _MOST_AT_ONCE)
            step = NewPartitions(name, upto, assignments[: upto - existing])
            await self._extend(step)
            assignments = assignments[upto - existing :]
            existing = upto

    async def _extend(self, step: NewPartitions) -> None:
        told, unsure = await self._each(
            (step.name,), lambda _: CreatePartitionsCall((step,), self._timeout_ms)
        )
        outcome = told[step.name]
        code, detail = outcome.error_code, outcome.error_message
        if not code:
            return
        if code == _UNKNOWN_SERVER_ERROR or (code == _INVALID_PARTITIONS and step.name in unsure):
            # Neither says what was done.
            count = await self._count(step.name)
            if count == step.total:
                return
            detail = f"{detail or 'nothing more'}; the topic has {count} partitions now"
        raise topic_error(code, step.name, "adding partitions to", "Alter", detail)

    async def check_extension(self, step: NewPartitions) -> None:
        """Raise the controller's error if it would not add these partitions; nothing is done."""
        call = CreatePartitionsCall((step,), self._timeout_ms, validate_only=True)
        told, _ = await self._each((step.name,), lambda _: call)
        outcome = told[step.name]
        if outcome.error_code:
            what = "adding partitions to"
            code, detail = outcome.error_code, outcome.error_message
            raise topic_error(code, step.name, what, "Alter", detail)

    async def check_known(self, name: str) -> None:
        """Raise the controller's error if it does not know the topic, to which partitions shall be
        added; of a new one it knows before other brokers do."""
        try:
            await self.check_extension(NewPartitions(name, 1))
        except KafkaError as error:
            if error.code != _INVALID_PARTITIONS:  # a topic that it knows has as many at least
                raise

    async def _count(self, name: str) -> int:
        (info,) = (await self._session.metadata((name,))).topics
        return len(info.partitions)

    async def _each(
        self, names: Sequence[str], call: Callable[[tuple[str, ...]], Call[_Answer]]
    ) -> tuple[dict[str, TopicOutcome], set[str]]:
        """Ask until each topic has its outcome; with those that an earlier attempt, whose outcome
        is not known, may have changed."""
        told: dict[str, TopicOutcome] = {}
        unsure: set[str] = set()

        async def attempt() -> None:
            wanted = tuple(name for name in names if name not in told)
            answered: set[str] = set()
            last: KafkaError | None = None
            try:
                result = await self._session.once(call(wanted), CONTROLLER)
                for outcome in result.topics:
                    if outcome.error_code in _AGAIN:
                        last = broker_error(outcome.error_code, f"topic {outcome.name!r}")
                        if outcome.error_code != _TIMED_OUT:
                            answered.add(outcome.name)
                    else:
                        told[outcome.name] = outcome
            finally:
                unsure.update(set(wanted) - answered - told.keys())
            if len(told) < len(names):
                missing = ", ".join(name for name in names if name not in told)
                raise last or broker_error(_TIMED_OUT, f"topics {missing}")

        if names:
            await self._session.until_answered(attempt)
        return told, unsure


def _refused(names: Iterable[str]) -> dict[str, KafkaError]:
    """Those that no topic can have: each has an outcome of its own, whatever becomes of others."""
    refused: dict[str, KafkaError] = {}
    for name in names:
        try:
            check_topic_name(name)
        except InvalidTopicError as error:
            refused[name] = error
    return refused


def _size(topic: NewTopic) -> int:
    return max(1, topic.partitions, len(topic.assignments))


def _slices(names: Iterable[str], size: Callable[[str], int]) -> Iterable[tuple[str, ...]]:
    """The names in groups of up to ``_MOST_AT_ONCE`` partitions."""
    group: list[str] = []
    total = 0
    for name in names:
        if group and total + size(name) > _MOST_AT_ONCE:
            yield tuple(group)
            group, total = [], 0
        group.append(name)
        total += size(name)
    if group:
        yield tuple(group)
