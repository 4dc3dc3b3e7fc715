"""Creates and extends topics within the partition limits (KIP-578).

A request reads the limits, places the partitions, and sends the explicit replicas to the
controller. There is no lock, so two clients may use the same remaining capacity. Therefore the
client afterwards reads metadata until the metadata includes its own change. The controller orders
all changes, and brokers learn of changes in that order, so this metadata includes every earlier
change. Of two clients that together exceed a limit, the later one always sees the violation: its
result is a PartitionLimitRaceError, which ``Admin`` raises. Both changes stay. The command line
then ends with exit status 3 (``on_cluster`` in :mod:`kafkaclient.cli.admin`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.admin.error_codes import TOPIC_ALREADY_EXISTS
from kafkaclient.admin.kip36 import start_of_extension
from kafkaclient.admin.limits import Request, Usage
from kafkaclient.admin.limits_store import LIMITS_TOPIC
from kafkaclient.admin.placement import place
from kafkaclient.admin.topics import topic_error
from kafkaclient.errors import KafkaError, PartitionLimitRaceError
from kafkaclient.wire.topics import NewPartitions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.admin.kip36 import Start
    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.placement import Placement
    from kafkaclient.admin.session import Session
    from kafkaclient.admin.topics import Requests
    from kafkaclient.wire.results import MetadataResult, TopicInfo
    from kafkaclient.wire.topics import NewTopic

# Kafka's internal topics. Metadata marks existing topics as internal, but not future ones.
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def usage_of(cluster: MetadataResult) -> Usage:
    """The usage of the limits, from metadata of all topics."""
    return Usage.of(cluster, {LIMITS_TOPIC})


class LimitsGuard:
    """Creates and extends topics, and refuses changes that exceed the limits."""

    def __init__(self, session: Session, requests: Requests, rng: Random) -> None:
        self._session = session
        self._requests = requests
        self._rng = rng

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
        known = {topic.name for topic in cluster.topics if not topic.error_code}
        to_create: list[NewTopic] = []
        limited: list[NewTopic] = []
        for topic in topics:
            (limited if limits.any and not _is_exempt(topic.name) else to_create).append(topic)
        settled = await self._with_defaults(limited, results)
        usage = usage_of(cluster)
        requests: dict[str, Request] = {}
        for topic in settled:
            try:
                assigned, request = await self._place(topic, limits, usage)
            except KafkaError as error:
                results[topic.name] = _already_exists(topic.name) if topic.name in known else error
                continue
            usage = usage.with_topic(assigned.assignments.values())
            to_create.append(assigned)
            requests[topic.name] = request
        outcomes = await self._requests.create(to_create, validate_only=validate_only)
        for name, outcome in outcomes.items():
            results[name] = outcome if isinstance(outcome, KafkaError) else None
            if validate_only and results[name] is None and name in known:
                results[name] = _already_exists(name)  # the controller only validates the request
        done = {name: r for name, r in requests.items() if results[name] is None}
        if done and not validate_only:
            usage = await self._usage_including({name: r.partitions for name, r in done.items()})
            for name, request in done.items():
                try:
                    usage.check_race(limits, request)
                except PartitionLimitRaceError as error:
                    results[name] = error
        return {topic.name: results[topic.name] for topic in topics}

    async def _with_defaults(
        self, topics: Sequence[NewTopic], results: dict[str, KafkaError | None]
    ) -> list[NewTopic]:
        """The topics with the cluster's defaults. Adds errors to ``results``."""
        open_ = [
            t for t in topics if not t.assignments and min(t.partitions, t.replication_factor) < 0
        ]
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
            usage.check(limits, request)
            return topic, request
        partitions, factor = topic.partitions, topic.replication_factor
        what = (
            f"creating topic {topic.name!r} ({partitions} partitions, replication factor {factor})"
        )
        placement = await self._find_placement(usage, limits, what, partitions, factor)
        assignments = dict(enumerate(placement))
        assigned = replace(topic, partitions=-1, replication_factor=-1, assignments=assignments)
        return assigned, _request(what, placement)

    async def extend(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]],
        limits_and_cluster: Callable[[], Awaitable[tuple[Limits, MetadataResult]]],
        *,
        validate_only: bool,
    ) -> None:
        """Add partitions to a topic. Raises PolicyViolationError, or the controller's error."""

        async def read() -> tuple[Limits, MetadataResult, TopicInfo | None]:
            limits, cluster = await limits_and_cluster()
            found = (t for t in cluster.topics if t.name == name and t.partitions)
            topic = next(found, None)
            if topic is None:
                await self._requests.check_known(name)
            return limits, cluster, topic

        limits, cluster, topic = await self._session.poll(read, lambda found: found[2] is not None)
        assert topic is not None
        existing, replicas = len(topic.partitions), tuple(map(tuple, assignments))
        what = f"adding partitions to topic {topic.name!r} ({existing} to {total})"
        limited = limits.any and not (topic.is_internal or _is_exempt(name))
        if limited and total > existing:
            usage = usage_of(cluster)
            if not replicas:
                first, more = min(topic.partitions).replicas, total - existing
                start = start_of_extension(list(usage.racks), existing, first[0])
                replicas = await self._find_placement(usage, limits, what, more, len(first), start)
            usage.check(limits, _request(what, replicas))
        if validate_only or total <= existing:
            await self._requests.check_extension(NewPartitions(topic.name, total, replicas))
            return
        await self._requests.extend(topic.name, existing, total, replicas)
        if limited:
            usage = await self._usage_including({name: total})
            usage.check_race(limits, _request(what, replicas))

    async def _find_placement(
        self,
        usage: Usage,
        limits: Limits,
        what: str,
        partitions: int,
        factor: int,
        start: Start | None = None,
    ) -> Placement:
        """The replicas of the new partitions. Raises PolicyViolationError without capacity."""
        request = Request(what, partitions, partitions * factor)
        usage.check_total(limits, request)
        # In a thread: the placement of 200,000 replicas takes seconds.
        placement = await asyncio.to_thread(
            place,
            dict(sorted(usage.racks.items())),
            partitions,
            factor,
            capacities=usage.capacities(limits),
            rng=self._rng,
            start=start,
        )
        if placement is None:
            raise usage.refuse(limits, request, "the brokers have no capacity for these replicas")
        return placement

    async def _usage_including(self, partitions: Mapping[str, int]) -> Usage:
        """The usage from metadata that includes at least these numbers of partitions by topic."""

        def includes(cluster: MetadataResult) -> bool:
            counts = {topic.name: len(topic.partitions) for topic in cluster.topics}
            return all(counts.get(name, 0) >= count for name, count in partitions.items())

        return usage_of(await self._session.poll(lambda: self._session.metadata(None), includes))


def _already_exists(name: str) -> KafkaError:
    return topic_error(TOPIC_ALREADY_EXISTS, name, "creating", "Create")


def _is_exempt(name: str) -> bool:
    return name in _INTERNAL or name == LIMITS_TOPIC


def _request(what: str, assignment: Iterable[Sequence[int]]) -> Request:
    rows = list(assignment)
    gains = Counter(broker for replicas in rows for broker in replicas)
    return Request(what, len(rows), gains.total(), gains)
