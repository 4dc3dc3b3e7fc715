"""Creates and extends topics within the partition limits (KIP-578).

A request reads the limits, places the partitions, and sends the explicit replicas to the
controller. There is no lock, so two clients may use the same remaining capacity. Therefore the
client afterwards reads metadata until the metadata includes its own change. The controller orders
all changes, and brokers learn of changes in that order, so this metadata includes every earlier
change. Of two clients that together exceed a limit, the later one always sees the violation and
raises PartitionLimitRaceError. Both changes stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.admin.kip36 import start_of_extension
from kafkaclient.admin.limits import Request, Usage
from kafkaclient.admin.limits_topic import LIMITS_TOPIC
from kafkaclient.admin.placement import place
from kafkaclient.admin.topics import topic_error
from kafkaclient.errors import KafkaError, PartitionLimitRaceError
from kafkaclient.wire.topics import NewPartitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.admin.kip36 import Start
    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.placement import Placement
    from kafkaclient.admin.session import Session
    from kafkaclient.admin.topics import Requests
    from kafkaclient.wire.results import MetadataResult, TopicInfo
    from kafkaclient.wire.topics import NewTopic, TopicOutcome

__all__ = ["EXEMPT", "Guard", "errors_by_topic", "existing_topics", "usage_of"]

# Kafka's internal topics. Metadata marks existing topics as internal, but not future ones.
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

EXEMPT = frozenset({LIMITS_TOPIC})

_TOPIC_EXISTS = 36


def existing_topics(cluster: MetadataResult) -> frozenset[str]:
    """The topics in the metadata, which may lack the latest changes."""
    return frozenset(topic.name for topic in cluster.topics if not topic.error_code)


def already_exists(name: str) -> KafkaError:
    """The error that the controller returns for a topic that exists."""
    return topic_error(_TOPIC_EXISTS, name, "creating", "Create")


def errors_by_topic(
    outcomes: Mapping[str, TopicOutcome | KafkaError], known: frozenset[str]
) -> dict[str, KafkaError | None]:
    """None or the error, by topic. ``known`` are existing topics: the controller accepts them when
    it only validates a request."""
    results: dict[str, KafkaError | None] = {}
    for name, outcome in outcomes.items():
        error = outcome if isinstance(outcome, KafkaError) else None
        results[name] = already_exists(name) if error is None and name in known else error
    return results


def usage_of(cluster: MetadataResult) -> Usage:
    """The usage of the limits, from metadata of all topics."""
    return Usage.of(cluster, EXEMPT)


class Guard:
    """Creates and extends topics, and refuses changes that exceed the limits."""

    def __init__(self, session: Session, requests: Requests, rng: Random) -> None:
        self._session = session
        self._requests = requests
        self._rng = rng

    # --- create -------------------------------------------------------------------------------

    async def create(
        self,
        topics: Sequence[NewTopic],
        limits: Limits,
        cluster: MetadataResult,
        *,
        validate_only: bool,
    ) -> dict[str, KafkaError | None]:
        """Create each topic completely or not at all. Earlier topics use capacity first."""
        results: dict[str, KafkaError | None] = {}
        known = existing_topics(cluster)
        settled = await self._with_defaults([t for t in topics if not _is_exempt(t.name)], results)
        usage, placed = usage_of(cluster), [t for t in topics if _is_exempt(t.name)]
        requests: dict[str, Request] = {}
        for topic in settled:
            try:
                assigned, request = await self._place(topic, limits, usage)
            except KafkaError as error:
                results[topic.name] = already_exists(topic.name) if topic.name in known else error
                continue
            usage = usage.with_topic(assigned.assignments.values())
            placed.append(assigned)
            requests[topic.name] = request
        outcomes = await self._requests.create(placed, validate_only=validate_only)
        results |= errors_by_topic(outcomes, known if validate_only else frozenset())
        if not validate_only:
            done = {name: r for name, r in requests.items() if results[name] is None}
            await self._check_created(done, limits, results)
        return {topic.name: results[topic.name] for topic in topics}

    async def _with_defaults(
        self, topics: Sequence[NewTopic], results: dict[str, KafkaError | None]
    ) -> list[NewTopic]:
        """The topics with the cluster's defaults. Adds errors to ``results``."""
        open_ = [t for t in topics if not t.assignments and min(_counts(t)) < 0]
        outcomes = await self._requests.create(open_, validate_only=True)
        settled = []
        for topic in topics:
            outcome = outcomes.get(topic.name)
            if isinstance(outcome, KafkaError):
                results[topic.name] = outcome
            elif outcome is None:
                settled.append(topic)
            elif min(outcome.partitions, outcome.replication_factor) < 0:
                results[topic.name] = KafkaError(
                    f"creating topic {topic.name!r}: the cluster did not return its defaults; give "
                    "the number of partitions and the replication factor"
                )
            else:
                partitions, factor = outcome.partitions, outcome.replication_factor
                settled.append(replace(topic, partitions=partitions, replication_factor=factor))
        return settled

    async def _place(
        self, topic: NewTopic, limits: Limits, usage: Usage
    ) -> tuple[NewTopic, Request]:
        if topic.assignments:
            # The controller validates the assignment itself.
            request = _request(f"creating topic {topic.name!r}", topic.assignments.values())
            usage.check_total(limits, request)
            usage.check_gains(limits, request)
            return topic, request
        partitions, factor = _counts(topic)
        request = Request(
            f"creating topic {topic.name!r} ({partitions} partitions, replication factor {factor})",
            partitions,
            partitions * factor,
        )
        placement = await self._find_placement(usage, limits, request, factor)
        assigned = replace(
            topic,
            partitions=-1,
            replication_factor=-1,
            assignments=dict(enumerate(placement)),
        )
        return assigned, _request(request.what, placement)

    async def _check_created(
        self,
        done: Mapping[str, Request],
        limits: Limits,
        results: dict[str, KafkaError | None],
    ) -> None:
        if not done:
            return
        usage = usage_of(
            await self._metadata_including({name: r.partitions for name, r in done.items()})
        )
        for name, request in done.items():
            try:
                usage.check_outcome(limits, request)
            except PartitionLimitRaceError as error:
                results[name] = error

    # --- extend -------------------------------------------------------------------------------

    async def extend(
        self,
        topic: TopicInfo,
        total: int,
        assignments: Sequence[Sequence[int]],
        limits: Limits,
        cluster: MetadataResult,
        *,
        validate_only: bool,
    ) -> None:
        """Add partitions to a topic. Raises PolicyViolationError, or the controller's error."""
        existing, replicas = len(topic.partitions), tuple(map(tuple, assignments))
        what = f"adding partitions to topic {topic.name!r} ({existing} to {total})"
        free = topic.is_internal or _is_exempt(topic.name) or not limits.any
        request = _request(what, replicas)
        if not free and total > existing:
            usage = usage_of(cluster)
            replicas = replicas or await self._place_extension(topic, total, limits, usage, what)
            request = _request(what, replicas)
            usage.check_total(limits, request)
            usage.check_gains(limits, request)
        if validate_only or total <= existing:
            await self._requests.check_extension(NewPartitions(topic.name, total, replicas))
            return
        await self._requests.extend(topic.name, existing, total, replicas)
        if not free:
            usage_of(await self._metadata_including({topic.name: total})).check_outcome(
                limits, request
            )

    async def _place_extension(
        self, topic: TopicInfo, total: int, limits: Limits, usage: Usage, what: str
    ) -> tuple[tuple[int, ...], ...]:
        first = min(topic.partitions)
        existing, factor = len(topic.partitions), len(first.replicas)
        more = total - existing
        request = Request(what, more, more * factor)
        start = start_of_extension(list(usage.racks), existing, first.replicas[0])
        return await self._find_placement(usage, limits, request, factor, start)

    async def _find_placement(
        self,
        usage: Usage,
        limits: Limits,
        request: Request,
        factor: int,
        start: Start | None = None,
    ) -> Placement:
        """The replicas of the new partitions. Raises PolicyViolationError without capacity."""
        usage.check_total(limits, request)
        # In a thread: the placement of 200,000 replicas takes seconds.
        placement = await asyncio.to_thread(
            place,
            dict(sorted(usage.racks.items())),
            request.partitions,
            factor,
            capacities=usage.capacities(limits),
            rng=self._rng,
            start=start,
        )
        if placement is None:
            raise usage.refuse(limits, request, "the brokers have no capacity for these replicas")
        return placement

    async def _metadata_including(self, partitions: Mapping[str, int]) -> MetadataResult:
        """Metadata of all topics that includes at least these numbers of partitions by topic."""

        def includes(cluster: MetadataResult) -> bool:
            counts = {topic.name: len(topic.partitions) for topic in cluster.topics}
            return all(counts.get(name, 0) >= count for name, count in partitions.items())

        return await self._session.metadata_when(includes)


def _is_exempt(name: str) -> bool:
    return name in _INTERNAL or name in EXEMPT


def _counts(topic: NewTopic) -> tuple[int, int]:
    return topic.partitions, topic.replication_factor


def _request(what: str, assignment: Iterable[Sequence[int]]) -> Request:
    rows = list(assignment)
    gains = Counter(broker for replicas in rows for broker in replicas)
    return Request(what, len(rows), gains.total(), gains)
