"""The steps of a reassignment: the operations of ``kafka-reassign-partitions``, and some more."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.description import (
    cordoned_brokers,
    known_brokers,
    live_brokers,
    partitions_of,
    topic_error,
)
from kafkaclient.admin.reassign.clearing import clear_throttles, unthrottle_early
from kafkaclient.admin.reassign.cluster_reader import ClusterReader, known_partitions, visible
from kafkaclient.admin.reassign.estimate import Estimate, estimate, growth_of
from kafkaclient.admin.reassign.outcome import (
    Lifted,
    Verification,
    off_target,
    states,
)
from kafkaclient.admin.reassign.plan import (
    ReassignmentPlan,
    generate,
    move_map,
    new_brokers,
    with_replication_factor,
)
from kafkaclient.admin.reassign.progress import Tracker
from kafkaclient.admin.reassign.submission import Submission, cancel_moves, undo, warn_of
from kafkaclient.admin.reassign.throttle import ThrottleConfigs, check_rate
from kafkaclient.errors import AdminTimeoutError, ConfigError, KafkaError
from kafkaclient.topic_names import several, several_partitions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.admin.reassign.outcome import Begun, PartitionState
    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.reassign.progress import Progress
    from kafkaclient.admin.running import Operation
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment

_log = logging.getLogger(__name__)

_MAX_READS = 6


class Reassigner:
    """Moves replicas between brokers (KIP-455) within a quota (KIP-73), and reports the progress.

    It is ``Admin.reassigner``, and needs a running admin client. ``Admin.throttled`` combines the
    calls for the usual case. Every throttle is marked in the cluster's configuration, together with
    the throttle that it replaced. So any later process can remove it with :meth:`verify` or
    ``Admin.replication_quotas.clear``. No call removes the throttle of an ongoing reassignment.
    """

    def __init__(self, operation: Operation, clock: Callable[[], float], rng: Random) -> None:
        self._operation = operation
        self._clock = clock
        self._rng = rng

    async def generate(
        self,
        topics: Iterable[str],
        brokers: Iterable[int] | None = None,
        *,
        rack_aware: bool = True,
        replication_factor: int | None = None,
        timeout_s: float | None = None,
    ) -> tuple[ReassignmentPlan, ReassignmentPlan]:
        """A plan of the current replicas, and a proposed plan on ``brokers`` (default: all that are
        up and not cordoned, KIP-1066). Changes nothing. The current replicas of a partition that is
        being reassigned are its target; this logs a warning.

        The proposal is KIP-36's from a random start, as in Kafka's tool, and ignores the current
        replicas, but each partition keeps its replication factor. With ``replication_factor`` it
        keeps the current replicas, and adds or removes some. Replicas that are down, then replicas
        that are not in sync, are removed before others. Raises UnknownTopicError; ConfigError if a
        broker is down, or only some brokers have a rack; the broker's INVALID_REPLICATION_FACTOR if
        there are too few brokers.
        """
        wanted = several(topics, "topics")
        async with self._operation("generating a reassignment", timeout_s) as running:
            ongoing = await running.reassignments.ongoing()
            cluster = await running.session.metadata(wanted)
            for topic in cluster.topics:
                if topic.error_code:
                    raise topic_error(topic.error_code, topic.name, "reassigning", "Describe")
            racks = {broker.node_id: broker.rack for broker in cluster.brokers}
            cordoned = await cordoned_brokers(running.session, racks if brokers is None else ())
        chosen = sorted(racks.keys() - cordoned) if brokers is None else list(brokers)
        for node in chosen:
            if node not in racks:
                up = ", ".join(map(str, sorted(racks)))
                raise ConfigError(f"Unknown broker id {node}; the brokers that are up are {up}")
        views = partitions_of(cluster)
        for partition in sorted(views.keys() & ongoing.keys()):
            move = ongoing[partition]
            target = tuple(node for node in move.replicas if node not in move.removing)
            views[partition] = views[partition]._replace(replicas=target)
            _log.warning(
                "%s is being reassigned: the plans start from its target %s", partition, target
            )
        present = {partition: view.replicas for partition, view in views.items()}
        if replication_factor is None:
            on = {node: racks[node] for node in chosen}
            proposed = generate(present, on, rng=self._rng, rack_aware=rack_aware)
        else:
            known = racks if rack_aware else dict.fromkeys(racks)
            rng = self._rng
            proposed = with_replication_factor(views, known, chosen, replication_factor, rng=rng)
        return ReassignmentPlan(present), ReassignmentPlan(proposed)

    async def estimate(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        *,
        measure_s: float = 0.0,
        skip_dead: bool = False,
        timeout_s: float | None = None,
    ) -> Estimate:
        """The estimated bytes and time of a plan. ``measure_s`` is the time in seconds to measure
        the brokers' inbound rates, which does not count against ``timeout_s``. ``skip_dead`` leaves
        out what :meth:`begin` leaves out. Brokers that do not answer are in
        :attr:`Estimate.silent`. Raises UnknownTopicError."""
        async with self._operation("estimating a reassignment", timeout_s) as running:
            ongoing = await running.reassignments.ongoing()
            cluster = await known_partitions(running.session, plan.keys())
            nodes = live_brokers(cluster)
            reader = ClusterReader(running, self._clock)
            min_in_sync = await reader.min_in_sync(partition.topic for partition in plan)
            sizes, silent = await reader.sizes(nodes)
        growth = None
        if measure_s > 0:
            began = self._clock()
            await asyncio.sleep(measure_s)
            async with self._operation("estimating a reassignment", timeout_s) as running:
                later, _ = await ClusterReader(running, self._clock).sizes(nodes)
            growth = growth_of(sizes, later, self._clock() - began)
        views = partitions_of(cluster)
        moves = move_map(ongoing, plan, {p: views[p].replicas for p in plan})
        down = {p for p in plan if skip_dead and not new_brokers(moves[p]) <= set(nodes)}
        targets = {p: target for p, target in plan.items() if p not in down}
        return estimate(
            {partition: moves[partition] for partition in targets},
            views,
            sizes,
            growth=growth,
            silent=silent,
            min_in_sync=min_in_sync,
            targets=targets,
            skipped=tuple(sorted(down)),
        )

    async def begin(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        bytes_per_second: int | None = None,
        *,
        additional: bool = False,
        skip_dead: bool = False,
        allow_fewer_in_sync: bool = False,
        on_rollback: Callable[[ReassignmentPlan], None] | None = None,
        timeout_s: float | None = None,
    ) -> Begun:
        """Throttle a plan's replicas, then start the reassignment, which the cluster completes.

        Without a quota there is no throttle. ``additional`` allows other ongoing reassignments: the
        quota then applies to all, and the plan replaces the ongoing target of a partition.
        ``skip_dead`` omits partitions that need a broker that is down. ``allow_fewer_in_sync``
        allows moves that remove live in-sync replicas without replacement, while a replica that is
        down or not in sync stays. ``on_rollback`` gets a plan of the current replicas before any
        change; if it raises, nothing is started.

        If this call raises or is cancelled, no reassignment is started and no throttle of this call
        is left, except that partitions with their new replicas move back, throttled. Raises
        ConfigError for an invalid plan, BrokerError REASSIGNMENT_IN_PROGRESS,
        INVALID_REPLICA_ASSIGNMENT for new replicas on brokers that are down and for moves that need
        ``allow_fewer_in_sync``, UnknownTopicError, AuthorizationError, PolicyViolationError if a
        broker would exceed ``max.broker.partitions``, PartitionLimitRaceError if a concurrent
        change used the same capacity. The result contains the controller's errors for single
        partitions.
        """
        wanted = {partition: tuple(nodes) for partition, nodes in plan.items()}
        ReassignmentPlan(wanted).check()
        check_rate(bytes_per_second)
        async with self._operation("reassigning partitions", timeout_s) as running:
            flags = (additional, skip_dead, allow_fewer_in_sync)
            return await Submission(
                running, wanted, bytes_per_second, *flags, on_rollback, timeout_s
            ).run()

    async def verify(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        *,
        preserve_throttles: bool = False,
        timeout_s: float | None = None,
    ) -> Verification:
        """The states of a plan's partitions. Also removes the throttles of this package that no
        reassignment needs, unless ``preserve_throttles``. May be repeated at any time.
        """
        async with self._operation("verifying a reassignment", timeout_s) as running:
            ongoing = await running.reassignments.ongoing()
            partitions = await self._states(running.session, plan, ongoing)
            nodes = known_brokers(await running.session.metadata(None)).union(*plan.values())
            lifted = None
            if not preserve_throttles:
                lifted = await clear_throttles(running, completed=plan, brokers=nodes)
            topics = (partition.topic for partition in plan)
            throttles = await ThrottleConfigs(running).describe(topics, nodes)
        return Verification(partitions, not ongoing, lifted, throttles)

    async def cancel(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        preserve_throttles: bool = False,
        on_lifted: Callable[[Lifted], object] = warn_of,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Cancel the ongoing reassignments of ``partitions`` (None: all), then remove throttles as
        :meth:`verify` does. Returns by cancelled partition None, or the error if its reassignment
        continues. ``on_lifted`` gets the throttles that were removed or not; by default a warning
        is logged for each throttle that could not be removed.

        Brokers restore the replicas in another order. A partition whose target was changed during
        its reassignment keeps the replicas of its first target: only :attr:`Begun.before` has the
        original replicas.
        """
        named = None if partitions is None else several_partitions(partitions)
        async with self._operation("cancelling a reassignment", timeout_s) as running:
            ongoing = await running.reassignments.ongoing()
            wanted = ongoing.keys() if named is None else ongoing.keys() & set(named)
            results: dict[TopicPartition, KafkaError | None] = {}
            nodes = None
            if wanted:
                cluster = await running.session.metadata(None)
                nodes = known_brokers(cluster).union(*(ongoing[p].replicas for p in wanted))
                results = await cancel_moves(running, wanted)
        if not preserve_throttles:
            try:
                async with self._operation("removing throttles", timeout_s) as running:
                    lifted = await clear_throttles(
                        running, completed=results, brokers=nodes, force=bool(results)
                    )
            except KafkaError as error:
                if not results:
                    raise
                lifted = Lifted(failures={"the cluster": error})
            on_lifted(lifted)
        return results

    async def undo(self, begun: Begun, *, timeout_s: float | None = None) -> dict[str, KafkaError]:
        """Cancel the reassignments of :meth:`begin` that are not complete, and remove throttles.
        Restores the original replicas in their original order, also if :meth:`begin` replaced the
        target of an ongoing reassignment. Returns the errors by what is left, as in ``the throttle
        of broker 1``."""
        try:
            async with self._operation("undoing a reassignment", timeout_s) as running:
                return await undo(running, begun)
        except KafkaError as error:
            return {"the reassignment": error}

    async def finish(self, begun: Begun, *, timeout_s: float | None = None) -> Lifted:
        """Remove the throttles of a completed plan."""
        async with self._operation("removing throttles", timeout_s) as running:
            return await clear_throttles(
                running, completed=begun.moves, brokers=begun.with_rates, force=True
            )

    async def failures(
        self, begun: Begun, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, KafkaError]:
        """The partitions that did not start, or did not get their target replicas."""
        async with self._operation("verifying a reassignment", timeout_s) as running:
            found = await self._states(
                running.session, {p: begun.plan[p] for p in begun.started}, {}
            )
        return dict(begun.failed) | off_target(found)

    async def progress(
        self, moves: Mapping[TopicPartition, Move] | None = None, *, every_s: float = 1.0
    ) -> AsyncGenerator[Progress, None]:
        """The progress of ``moves`` (None: all ongoing reassignments) every ``every_s`` seconds,
        until they are complete. Continues while no broker answers."""
        tracker = Tracker(moves)
        while True:
            try:
                async with self._operation("reading the progress of reassignments") as running:
                    now = await ClusterReader(running, self._clock).measure(tracker.moves)
            except AdminTimeoutError as error:
                _log.warning("%s; retrying", error)
                continue
            progress = tracker.take(now)
            yield progress
            if progress.finished:
                return
            await asyncio.sleep(every_s)

    async def ease_arrivals(self, begun: Begun) -> None:
        """Unthrottle new replicas shortly before they are in sync, as long as this coroutine runs.
        The quota then does not delay records with ``acks=all`` (:mod:`.early_unthrottle`)."""
        await unthrottle_early(self._operation, self._clock, begun.throttled)

    async def rethrottle(
        self, begun: Begun, bytes_per_second: int, *, timeout_s: float | None = None
    ) -> None:
        """Set the quota on brokers that were down when the plan was started and are up now."""
        async with self._operation("throttling brokers", timeout_s) as running:
            live = set(live_brokers(await running.session.metadata(())))
            back = [node for node in begun.unthrottled if node in live]
            if not back:
                return
            async with running.announcements.setting(timeout_s) as seen:
                throttle = ThrottleConfigs(running)
                still = await throttle.set_rate(back, bytes_per_second, live, seen=seen)
            for node in back:
                if node not in still:
                    del begun.unthrottled[node]

    # ------------------------------------------------------------------------------------------

    async def _states(
        self,
        session: AdminSession,
        plan: Mapping[TopicPartition, Sequence[int]],
        ongoing: Mapping[TopicPartition, OngoingReassignment],
    ) -> tuple[PartitionState, ...]:
        """The states of a plan's partitions. Metadata is read again if it may be too old to include
        the end of a reassignment that the controller no longer lists."""
        topics = tuple(sorted({partition.topic for partition in plan}))

        async def read() -> tuple[PartitionState, ...]:
            return states(plan, ongoing, partitions_of(visible(await session.metadata(topics))))

        return await session.poll(
            read, lambda found: not any(one.may_be_stale for one in found), max_reads=_MAX_READS
        )
