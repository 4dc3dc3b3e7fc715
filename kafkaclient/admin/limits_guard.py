"""Keeps the partition limits (KIP-578): creates and extends topics, and checks reassignments.

A request reads the limits. If every broker has room for all new partitions, the controller places
them, as without limits. Otherwise the client places them, and sends the explicit replicas to the
controller. There is no lock, so two clients may use the same remaining capacity. Therefore the
client afterwards reads metadata until the metadata includes its own change. The controller orders
all changes, and brokers learn of changes in that order, so this metadata includes every earlier
change. Of two clients that together exceed a limit, the later one always sees the violation: its
result is a PartitionLimitRaceError, which ``Admin`` raises. Both changes stay. The command line
then ends with exit status 3 (``on_cluster`` in :mod:`kafkaclient.cli.admin`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.admin.controller import MAX_PARTITIONS_PER_REQUEST, errors_of
from kafkaclient.admin.description import cordoned_brokers, partitions_of, topic_error
from kafkaclient.admin.limits import Addition, Limits, Usage, is_exempt
from kafkaclient.admin.limits_store import TopicLimits
from kafkaclient.admin.placement import place, start_of_extension
from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import KafkaError, PartitionLimitRaceError
from kafkaclient.wire.topics import NewPartitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.admin.controller import TopicRequests
    from kafkaclient.admin.limits_store import FileLimits
    from kafkaclient.admin.placement import Placement, Start
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.api import MetadataResult, TopicInfo
    from kafkaclient.wire.topics import NewTopic

_log = logging.getLogger(__name__)

_MAX_READS = 10  # about 6 s by default; brokers learn of a new topic in less than a second

_Moves: TypeAlias = "Mapping[TopicPartition, tuple[int, ...] | None]"
"""The new replicas by partition; None cancels a reassignment."""


class LimitsGuard:
    """Creates and extends topics, and refuses changes that exceed the limits in ``store``; None
    enforces no limits."""

    def __init__(
        self,
        session: AdminSession,
        requests: TopicRequests,
        store: TopicLimits | FileLimits | None,
        rng: Random,
    ) -> None:
        self.store = store
        self._session = session
        self._requests = requests
        self._rng = rng

    async def limits(self, cluster: MetadataResult | None = None) -> Limits:
        """The limits in force. ``cluster`` is metadata of all topics, if the caller has it."""
        if isinstance(self.store, TopicLimits):
            return await self.store.read(cluster)
        return Limits() if self.store is None else await self.store.read()

    async def limits_and_cluster(self) -> tuple[Limits, MetadataResult]:
        """The limits, and metadata of all topics."""
        cluster = await self._session.metadata(None)
        return await self.limits(cluster), cluster

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> dict[str, KafkaError | None]:
        """Create each topic completely or not at all. Earlier topics use capacity first."""
        if self.store is None:
            return errors_of(await self._requests.create(topics, validate_only=validate_only))
        limits, cluster = await self.limits_and_cluster()
        results: dict[str, KafkaError | None] = {}
        known = {topic.name for topic in cluster.topics if not topic.error_code}
        to_create: list[NewTopic] = []
        limited: list[NewTopic] = []
        for topic in topics:
            (limited if limits.any and not is_exempt(topic.name) else to_create).append(topic)
        settled = await self._with_defaults(limited, results)
        usage = Usage.of(cluster)
        new = sum(max(topic.partitions, len(topic.assignments)) for topic in settled)
        cordoned = None  # the controller places, because every broker has room for everything
        if not usage.any_placement_fits(limits, new):
            cordoned = await cordoned_brokers(self._session, usage.racks)
        requests: dict[str, Addition] = {}
        for topic in settled:
            try:
                assigned, request = await self._place(topic, limits, usage, cordoned)
            except KafkaError as error:
                known_error = topic_error(
                    ErrorCode.TOPIC_ALREADY_EXISTS, topic.name, "creating", "Create"
                )
                results[topic.name] = known_error if topic.name in known else error
                continue
            usage = usage.after(request)
            to_create.append(assigned)
            requests[topic.name] = request
        results |= errors_of(await self._requests.create(to_create, validate_only=validate_only))
        done = {name: r for name, r in requests.items() if results[name] is None}
        if done and not validate_only:
            cluster = await self._including({name: r.partitions for name, r in done.items()})
            used, by_name = Usage.of(cluster), {topic.name: topic for topic in cluster.topics}
            for name, request in done.items():
                try:
                    _check_race(used, by_name.get(name), limits, request.what)
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
        self, topic: NewTopic, limits: Limits, usage: Usage, cordoned: set[int] | None
    ) -> tuple[NewTopic, Addition]:
        if topic.assignments:
            # The controller validates the assignment itself.
            request = _request(f"creating topic {topic.name!r}", topic.assignments.values())
            usage.check(limits, request)
            return topic, request
        partitions, factor = topic.partitions, topic.replication_factor
        what = (
            f"creating topic {topic.name!r} ({partitions} partitions, replication factor {factor})"
        )
        request = Addition(what, partitions, partitions * factor)
        if cordoned is None:
            usage.check_total(limits, request)
            return topic, request
        placement = await self._find_placement(usage, limits, request, cordoned)
        assignments = dict(enumerate(placement))
        assigned = replace(topic, partitions=-1, replication_factor=-1, assignments=assignments)
        return assigned, _request(what, placement)

    async def extend(self, step: NewPartitions, *, validate_only: bool) -> None:
        """Add partitions to a topic. Raises PolicyViolationError, or the controller's error."""
        name, total, replicas = step.name, step.total, step.assignments
        if self.store is None and total <= MAX_PARTITIONS_PER_REQUEST:
            await self._requests.extend_once(step, validate_only=validate_only)
            return

        async def read() -> tuple[Limits, MetadataResult, TopicInfo | None]:
            limits, cluster = await self.limits_and_cluster()
            found = (t for t in cluster.topics if t.name == name and t.partitions)
            topic = next(found, None)
            if topic is None:
                await self._requests.check_known(name)
            return limits, cluster, topic

        limits, cluster, topic = await self._session.poll(read, lambda found: found[2] is not None)
        assert topic is not None
        existing = len(topic.partitions)
        more = total - existing
        what = f"adding partitions to topic {topic.name!r} ({existing} to {total})"
        limited = limits.any and not (topic.is_internal or is_exempt(name))
        if limited and more > 0:
            usage, first = Usage.of(cluster), min(topic.partitions).replicas
            request = Addition(what, more, more * len(first))
            if not replicas and not usage.any_placement_fits(limits, more):
                cordoned = await cordoned_brokers(self._session, usage.racks)
                usable = list(usage.racks.keys() - cordoned)
                start = start_of_extension(usable, existing, first[0])
                replicas = await self._find_placement(usage, limits, request, cordoned, start)
            usage.check(limits, _request(what, replicas) if replicas else request)
        if validate_only or more <= 0:
            step = NewPartitions(topic.name, total, replicas)
            await self._requests.extend_once(step, validate_only=True)
            return
        await self._requests.extend(topic.name, existing, total, replicas)
        if limited:
            cluster = await self._including({name: total})
            topic = next((each for each in cluster.topics if each.name == name), None)
            _check_race(Usage.of(cluster), topic, limits, what, existing)

    def check_moves(self, moves: _Moves, limits: Limits, cluster: MetadataResult) -> None:
        """Raise PolicyViolationError if a broker would exceed its limit during the reassignments,
        while removed replicas still count. Reassignments do not change the total number of
        partitions. Raises UnknownTopicError."""
        Usage.of(cluster).check_gains(limits, _gains(moves, cluster))

    async def check_race_of_moves(
        self, begun: _Moves, limits: Limits, cluster: MetadataResult, *, undone: bool = False
    ) -> None:
        """Raise PartitionLimitRaceError if the reassignments that have ``begun`` and a concurrent
        change used the same capacity. ``cluster`` is metadata from before the reassignments.
        ``undone``: the caller cancels the reassignments."""
        gains = _gains(begun, cluster)
        if limits.max_broker_partitions is None or not any(gains.gains.values()):
            return

        def includes_targets(now: MetadataResult) -> bool:
            views = partitions_of(now)
            existing = {p: set(nodes or ()) for p, nodes in begun.items() if p in views}
            return all(nodes <= set(views[p].replicas) for p, nodes in existing.items())

        now = await self._session.poll(lambda: self._session.metadata(None), includes_targets)
        Usage.of(now).check_race(limits, gains, undone=undone)

    async def _find_placement(
        self,
        usage: Usage,
        limits: Limits,
        request: Addition,
        cordoned: set[int],
        start: Start | None = None,
    ) -> Placement:
        """The replicas of the new partitions. Raises PolicyViolationError without capacity."""
        usage.check_total(limits, request)
        # In a thread: the placement of 200,000 replicas takes seconds.
        placement = await asyncio.to_thread(
            place,
            {node: rack for node, rack in sorted(usage.racks.items()) if node not in cordoned},
            request.partitions,
            request.replicas // max(1, request.partitions),
            capacities=usage.capacities(limits, usage.hosted),
            rng=self._rng,
            start=start,
            down=usage.down,
        )
        if placement is None:
            without = f" (cordoned: {sorted(cordoned)})" if cordoned else ""
            why = f"the brokers have no capacity for these replicas{without}"
            raise usage.refuse(limits, request, why)
        return placement

    async def _including(self, partitions: Mapping[str, int]) -> MetadataResult:
        """Metadata of all topics that includes at least these numbers of partitions by topic. A
        topic is missing if this client may not describe it, or if it was deleted again."""

        async def read() -> tuple[MetadataResult, set[str]]:
            cluster = await self._session.metadata(None)
            counts = {topic.name: len(topic.partitions) for topic in cluster.topics}
            missing = {name for name, count in partitions.items() if counts.get(name, 0) < count}
            if missing:  # metadata of all topics omits topics that this client may not describe
                named = (await self._session.metadata(tuple(sorted(missing)))).topics
                denied = (
                    t.name for t in named if t.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
                missing.difference_update(denied)
            return cluster, missing

        cluster, _ = await self._session.poll(
            read, lambda result: not result[1], max_reads=_MAX_READS
        )
        return cluster


def _check_race(
    used: Usage, topic: TopicInfo | None, limits: Limits, what: str, first: int = 0
) -> None:
    """Raise PartitionLimitRaceError if the topic's partitions from ``first`` on exceed a limit.
    ``used`` has them, too."""
    if topic is None or len(topic.partitions) <= first:
        _log.warning(
            "%s: done, but the topic is not in metadata (it was deleted again, or this client may "
            "not Describe it): whether a concurrent change used the same capacity is unknown",
            what,
        )
        return
    rows = [view.replicas for view in topic.partitions if view.partition >= first]
    used.check_race(limits, _request(what, rows))


def _request(what: str, assignment: Iterable[Sequence[int]]) -> Addition:
    rows = list(assignment)
    gains = Counter(broker for replicas in rows for broker in replicas)
    return Addition(what, len(rows), gains.total(), gains)


def _gains(moves: _Moves, cluster: MetadataResult) -> Addition:
    """The replicas that each broker gains. Partitions of exempt topics do not count."""
    views = partitions_of(cluster)
    internal = {topic.name for topic in cluster.topics if topic.is_internal}
    gains: Counter[int] = Counter()
    for partition, replicas in moves.items():
        if replicas is None:
            continue
        if partition not in views:
            raise broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"reassigning partition {partition}"
            )
        if partition.topic not in internal and not is_exempt(partition.topic):
            gains.update(set(replicas) - set(views[partition].replicas))
    return Addition(f"reassigning {len(moves)} partitions", 0, 0, gains)
