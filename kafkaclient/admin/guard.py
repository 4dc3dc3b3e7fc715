"""Creating and extending topics within the partition limits (KIP-578).

Limits are read, partitions placed and sent to the controller with their replicas spelt out. Nobody
holds a lock meanwhile, so two clients may take the same last place. Afterwards metadata is read
until the own change is in it: the controller makes changes one after the other, and a broker learns
of them in that order, so what it tells includes every change that came before. Of two clients that
together exceed a limit the later one therefore always sees it, and raises PartitionLimitRaceError;
both changes stand.
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
from kafkaclient.wire.admin import NewPartitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.admin.kip36 import Start
    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.placement import Placement
    from kafkaclient.admin.session import Session
    from kafkaclient.admin.topics import Requests
    from kafkaclient.wire.codec import NewTopic
    from kafkaclient.wire.results import MetadataResult, TopicInfo, TopicOutcome

__all__ = ["EXEMPT", "Guard", "existing", "settled_outcomes", "usage_of"]

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, before they exist; of those that exist the brokers tell."""

EXEMPT = frozenset({LIMITS_TOPIC})

_TOPIC_EXISTS = 36


def existing(cluster: MetadataResult) -> frozenset[str]:
    """The topics that a broker knows of. It may not have heard of the latest changes yet."""
    return frozenset(topic.name for topic in cluster.topics if not topic.error_code)


def exists(name: str) -> KafkaError:
    """What the controller would say."""
    return topic_error(_TOPIC_EXISTS, name, "creating", "Create")


def settled_outcomes(
    outcomes: Mapping[str, TopicOutcome | KafkaError], known: frozenset[str]
) -> dict[str, KafkaError | None]:
    """Errors by topic. ``known``: topics that exist, for requests that are only validated: of them
    the controller says nothing wrong."""
    results: dict[str, KafkaError | None] = {}
    for name, outcome in outcomes.items():
        error = outcome if isinstance(outcome, KafkaError) else None
        results[name] = exists(name) if error is None and name in known else error
    return results


def usage_of(cluster: MetadataResult) -> Usage:
    """What counts against the limits, from metadata of all topics."""
    return Usage.of(cluster, EXEMPT)


class Guard:
    """Carries out requests within limits, as long as the limits are any."""

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
        """Create topics one by one or not at all: earlier ones take the room before later ones."""
        results: dict[str, KafkaError | None] = {}
        known = existing(cluster)
        settled = await self._with_defaults([t for t in topics if not _is_exempt(t.name)], results)
        usage, placed = usage_of(cluster), [t for t in topics if _is_exempt(t.name)]
        requests: dict[str, Request] = {}
        for topic in settled:
            try:
                assigned, request = await self._place(topic, limits, usage)
            except KafkaError as error:
                results[topic.name] = exists(topic.name) if topic.name in known else error
                continue
            usage = usage.with_topic(assigned.assignments.values())
            placed.append(assigned)
            requests[topic.name] = request
        outcomes = await self._requests.create(placed, validate_only=validate_only)
        results |= settled_outcomes(outcomes, known if validate_only else frozenset())
        if not validate_only:
            done = {name: r for name, r in requests.items() if results[name] is None}
            await self._check_created(done, limits, results)
        return {topic.name: results[topic.name] for topic in topics}

    async def _with_defaults(
        self, topics: Sequence[NewTopic], results: dict[str, KafkaError | None]
    ) -> list[NewTopic]:
        """The topics with the numbers that the cluster would give them; refusals to ``results``."""
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
                    f"creating topic {topic.name!r}: the cluster does not tell its defaults; give "
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
            # What is wrong with it by itself is for the controller to say.
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
        placement = await self._placed(usage, limits, request, factor)
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
        usage = usage_of(await self._seen({name: r.partitions for name, r in done.items()}))
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
            replicas = replicas or await self._extension(topic, total, limits, usage, what)
            request = _request(what, replicas)
            usage.check_total(limits, request)
            usage.check_gains(limits, request)
        if validate_only or total <= existing:
            await self._requests.check_extension(NewPartitions(topic.name, total, replicas))
            return
        await self._requests.extend(topic.name, existing, total, replicas)
        if not free:
            usage_of(await self._seen({topic.name: total})).check_outcome(limits, request)

    async def _extension(
        self, topic: TopicInfo, total: int, limits: Limits, usage: Usage, what: str
    ) -> tuple[tuple[int, ...], ...]:
        first = min(topic.partitions)
        existing, factor = len(topic.partitions), len(first.replicas)
        more = total - existing
        request = Request(what, more, more * factor)
        start = start_of_extension(list(usage.racks), existing, first.replicas[0])
        return await self._placed(usage, limits, request, factor, start)

    async def _placed(
        self,
        usage: Usage,
        limits: Limits,
        request: Request,
        factor: int,
        start: Start | None = None,
    ) -> Placement:
        """Replicas for the request's partitions; raises PolicyViolationError if there is no room
        for them."""
        usage.check_total(limits, request)
        # Aside: for 200,000 replicas it takes some seconds.
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
            raise usage.refuse(limits, request, "the brokers have no room for that many replicas")
        return placement

    async def _seen(self, partitions: Mapping[str, int]) -> MetadataResult:
        """Metadata of all topics that has these with at least so many partitions."""
        waits = 0
        while True:
            cluster = await self._session.metadata(None)
            told = {topic.name: len(topic.partitions) for topic in cluster.topics}
            if all(told.get(name, 0) >= count for name, count in partitions.items()):
                return cluster
            waits += 1
            await self._session.pause(waits)


def _is_exempt(name: str) -> bool:
    return name in _INTERNAL or name in EXEMPT


def _counts(topic: NewTopic) -> tuple[int, int]:
    return topic.partitions, topic.replication_factor


def _request(what: str, assignment: Iterable[Sequence[int]]) -> Request:
    rows = list(assignment)
    gains = Counter(broker for replicas in rows for broker in replicas)
    return Request(what, len(rows), gains.total(), gains)
