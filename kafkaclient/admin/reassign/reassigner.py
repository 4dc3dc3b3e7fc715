"""What ``kafka-reassign-partitions`` does, and some things that it does not, as calls."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.beginning import Beginning
from kafkaclient.admin.reassign.estimate import Estimate, estimate, inbound_rate
from kafkaclient.admin.reassign.last_stretch import ease_arrivals
from kafkaclient.admin.reassign.moves import move_map
from kafkaclient.admin.reassign.outcome import Verification, off_target, states
from kafkaclient.admin.reassign.plan import ReassignmentPlan, generate, with_replication_factor
from kafkaclient.admin.reassign.progress import Tracker
from kafkaclient.admin.reassign.quotas import (
    check_rate,
    lift,
    live_brokers,
    warn_of,
)
from kafkaclient.admin.reassign.survey import Surveyor, known_partitions, partitions_of, visible
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.admin.reassign.throttle_state import Throttles
from kafkaclient.admin.topics import topic_error
from kafkaclient.errors import AdminTimeoutError, ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.admin.opened import Opened, Operation
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.reassign.outcome import Begun, PartitionState
    from kafkaclient.admin.reassign.progress import Progress
    from kafkaclient.admin.reassign.throttle_state import Lifted
    from kafkaclient.admin.session import Session
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment
    from kafkaclient.wire.results import MetadataResult

__all__ = ["Reassigner"]

_log = logging.getLogger(__name__)

_NOT_IN_PROGRESS = 85

_LOOKS = 5


class Reassigner:
    """Moves replicas between brokers (KIP-455) within a quota (KIP-73), and tells how far they are.

    ``Admin.reassigner``; needs a running admin client. ``Admin.throttled`` joins the calls for the
    usual case. Every throttle that is set here is marked as such in the cluster itself, with what
    was there before, so that any later process can take it away: :meth:`verify`, or
    ``Admin.replication_quotas.clear``. Nothing here takes the throttle from a move under way.
    """

    def __init__(self, operation: Operation, clock: Callable[[], float], rng: Random) -> None:
        self._operation = operation
        self._clock = clock
        self._rng = rng

    # --- plans --------------------------------------------------------------------------------

    async def generate(
        self,
        topics: Iterable[str],
        brokers: Iterable[int] | None = None,
        *,
        rack_aware: bool = True,
        replication_factor: int | None = None,
        timeout_s: float | None = None,
    ) -> tuple[ReassignmentPlan, ReassignmentPlan]:
        """Present replicas of topics, and proposed ones on ``brokers`` (default: all that are up).

        As Kafka's tool does: by KIP-36, from a random start, wherever replicas are now; or, with
        ``replication_factor``, the present ones with some added or taken away. Changes nothing.
        Raises UnknownTopicError; ConfigError for brokers that are not up or of which only some
        have a rack; the broker's INVALID_REPLICATION_FACTOR when there are too few.
        """
        wanted = tuple(dict.fromkeys(topics))
        async with self._operation("generating a reassignment", timeout_s) as opened:
            cluster = await opened.session.metadata(wanted)
        for topic in cluster.topics:
            if topic.error_code:
                raise topic_error(topic.error_code, topic.name, "reassigning", "Describe")
        racks = {broker.node_id: broker.rack for broker in cluster.brokers}
        chosen = sorted(racks) if brokers is None else list(brokers)
        _check_up(chosen, racks.keys())
        racks = {node: racks[node] for node in chosen}
        present = {p: view.replicas for p, view in partitions_of(cluster).items()}
        if replication_factor is None:
            proposed = generate(present, racks, rng=self._rng, rack_aware=rack_aware)
        else:
            proposed = with_replication_factor(
                present, racks if rack_aware else dict.fromkeys(racks), replication_factor
            )
        return ReassignmentPlan(present), ReassignmentPlan(proposed)

    async def estimate(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        *,
        measure_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> Estimate:
        """How much a plan moves. ``measure_s``: how long to watch what comes into the brokers.
        Brokers that do not answer are left out, and named in it. Raises UnknownTopicError."""
        async with self._operation("estimating a reassignment", timeout_s) as opened:
            moves, cluster = await self._moves(opened, plan)
            nodes = [broker.node_id for broker in cluster.brokers]
            surveyor = self._surveyor(opened)
            sizes, silent = await surveyor.sizes(nodes)
            inbound = 0.0
            if measure_s > 0:
                began = self._clock()
                await asyncio.sleep(measure_s)
                later, _ = await surveyor.sizes(nodes)
                inbound = inbound_rate(sizes, later, self._clock() - began)
            min_in_sync = await surveyor.min_in_sync(partition.topic for partition in plan)
        return estimate(
            {partition: moves[partition] for partition in plan},
            partitions_of(cluster),
            sizes,
            inbound=inbound,
            silent=silent,
            min_in_sync=min_in_sync,
            targets=plan,
        )

    # --- moves --------------------------------------------------------------------------------

    async def begin(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        bytes_per_second: int | None = None,
        *,
        additional: bool = False,
        skip_dead: bool = False,
        on_rollback: Callable[[ReassignmentPlan], None] | None = None,
        timeout_s: float | None = None,
    ) -> Begun:
        """Throttle a plan's moves, then begin them; they go on in the cluster by themselves.

        Without a quota they are not throttled. ``additional``: also while others are under way; a
        partition among these is sent elsewhere, and the quota holds for all. ``skip_dead``: leave
        out what would need a broker that is down. ``on_rollback`` is given the present replicas
        before anything is changed: the way back. What it raises is raised, with nothing begun.

        Raises, with nothing begun and no throttle of this call left, also when it is cancelled:
        ConfigError for a plan that cannot be, BrokerError REASSIGNMENT_IN_PROGRESS,
        INVALID_REPLICA_ASSIGNMENT for new replicas on brokers that are not up, UnknownTopicError,
        AuthorizationError, PolicyViolationError when a broker would gain replicas above
        ``max.broker.partitions``, PartitionLimitRaceError when somebody else took the same room at
        the same time. What the controller says of single partitions is in the result.
        """
        wanted = {partition: tuple(nodes) for partition, nodes in plan.items()}
        ReassignmentPlan(wanted).check()
        check_rate(bytes_per_second)
        async with self._operation("reassigning partitions", timeout_s) as opened:
            return await Beginning(
                opened, wanted, bytes_per_second, additional, skip_dead, on_rollback, timeout_s
            ).run()

    async def verify(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        *,
        preserve_throttles: bool = False,
        timeout_s: float | None = None,
    ) -> Verification:
        """Whether partitions have the replicas of a plan; takes away the throttles of this package
        that no move needs any more, unless they are to be preserved. May be repeated at any time.
        """
        async with self._operation("verifying a reassignment", timeout_s) as opened:
            ongoing = await opened.reassignments.ongoing()
            told = await self._states(opened.session, plan, ongoing)
            lifted = None if preserve_throttles else await lift(opened, settled=plan)
            throttle = throttle_of(opened)
            lists, hidden = await throttle.topics(partition.topic for partition in plan)
            live = live_brokers(await opened.session.metadata(()))
            brokers, failures = await throttle.brokers(live)
        throttles = Throttles(lists, brokers, failures, hidden)
        return Verification(told, not ongoing, lifted, throttles)

    async def cancel(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        preserve_throttles: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Cancel those moves of partitions (None: all) that are under way, replicas that were being
        added among them; then take away throttles as :meth:`verify` does, with a warning in the log
        where that does not succeed. By partition that was moving None, or why it goes on.

        Brokers give partitions back in an order of their own, and one whose target was changed
        while it moved keeps the replicas of its first target: only who began it knows what there
        was before (:attr:`Begun.before`).
        """
        async with self._operation("cancelling a reassignment", timeout_s) as opened:
            results = await self._cancel(opened, partitions)
            if not preserve_throttles:
                warn_of(await lift(opened, settled=results, sure=bool(results)))
        return results

    async def undo(self, begun: Begun, *, timeout_s: float | None = None) -> list[KafkaError]:
        """Cancel what :meth:`begin` began and has not arrived, and take away throttles. Partitions
        get the replicas that they had, also where an earlier move was sent elsewhere, in their
        order: brokers give them back in another one. What did not succeed."""
        async with self._operation("undoing a reassignment", timeout_s) as opened:
            results = await self._cancel(opened, begun.started)
            stopped = {p for p, error in results.items() if error is None}
            if stopped:
                cluster = await opened.session.metadata(None)
                # The way back is open whatever the limits are.
                before = {partition: begun.before[partition] for partition in stopped}
                results |= await opened.reassignments.alter(before, cluster)
            lifted = await lift(opened, settled=begun.moves, sure=True)
        errors = [error for error in results.values() if error is not None]
        return [*errors, *lifted.failures.values()]

    async def finish(self, begun: Begun, *, timeout_s: float | None = None) -> Lifted:
        """Take away throttles when a plan's moves are over."""
        async with self._operation("removing throttles", timeout_s) as opened:
            return await lift(opened, settled=begun.moves, sure=True)

    async def failures(
        self, begun: Begun, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, KafkaError]:
        """What of a plan did not begin, or did not arrive."""
        async with self._operation("looking at a reassignment", timeout_s) as opened:
            found = await self._states(
                opened.session, {p: begun.plan[p] for p in begun.started}, {}
            )
        return dict(begun.failed) | off_target(found)

    async def progress(
        self,
        moves: Mapping[TopicPartition, Move] | None = None,
        *,
        every_s: float = 1.0,
    ) -> AsyncGenerator[Progress, None]:
        """How far moves (None: all that are under way) have come, every so often until they are
        over. Goes on through times in which no broker answers."""
        tracker = Tracker(moves)
        followed: set[TopicPartition] = set(moves or ())
        while True:
            try:
                async with self._operation("looking at moves") as opened:
                    reading = await self._surveyor(opened).reading(followed)
            except AdminTimeoutError as error:
                _log.warning("%s; looking again", error)
                continue
            followed |= reading.ongoing.keys() if moves is None else set()
            progress = tracker.take(reading)
            yield progress
            if progress.finished:
                return
            await asyncio.sleep(every_s)

    async def ease_arrivals(self, begun: Begun) -> None:
        """Let throttled replicas go shortly before they arrive, for as long as this runs; so
        records with ``acks=all`` do not wait for what the quota withholds (:mod:`.release`)."""
        await ease_arrivals(self._operation, self._clock, begun.throttled)

    async def rethrottle(
        self, begun: Begun, bytes_per_second: int, *, timeout_s: float | None = None
    ) -> None:
        """Give brokers that were down when a plan was begun their quota, when they are back."""
        async with self._operation("throttling brokers", timeout_s) as opened:
            live = set(live_brokers(await opened.session.metadata(())))
            back = [node for node in begun.unthrottled if node in live]
            if not back:
                return
            async with opened.turns.setting(timeout_s) as seen:
                throttle = throttle_of(opened)
                still = await throttle.set_rate(back, bytes_per_second, live, seen=seen)
            for node in back:
                if node not in still:
                    del begun.unthrottled[node]

    # ------------------------------------------------------------------------------------------

    def _surveyor(self, opened: Opened) -> Surveyor:
        return Surveyor(opened.session, opened.reassignments, self._clock)

    async def _states(
        self,
        session: Session,
        plan: Mapping[TopicPartition, Sequence[int]],
        ongoing: Mapping[TopicPartition, OngoingReassignment],
    ) -> tuple[PartitionState, ...]:
        """Where a plan's partitions are. A broker may not have heard yet of the end of a move that
        the controller does not list any more; it is then asked some more times."""
        topics = tuple(sorted({partition.topic for partition in plan}))
        waits = 0
        while True:
            found = states(plan, ongoing, partitions_of(visible(await session.metadata(topics))))
            waits += 1
            if waits > _LOOKS or not any(each.may_be_stale for each in found):
                return found
            await session.pause(waits)

    async def _moves(
        self,
        opened: Opened,
        plan: Mapping[TopicPartition, Sequence[int]],
    ) -> tuple[dict[TopicPartition, Move], MetadataResult]:
        ongoing = await opened.reassignments.ongoing()
        cluster = await known_partitions(opened.session, plan.keys())
        views = partitions_of(cluster)
        present = {partition: views[partition].replicas for partition in plan}
        return move_map(ongoing, plan, present), cluster

    async def _cancel(
        self, opened: Opened, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        ongoing = await opened.reassignments.ongoing()
        wanted = ongoing.keys() if partitions is None else ongoing.keys() & set(partitions)
        if not wanted:
            return {}
        cluster = await opened.session.metadata(None)
        cancellations = dict.fromkeys(sorted(wanted))
        results = await opened.reassignments.alter(cancellations, cluster)
        return {
            partition: None if error is not None and error.code == _NOT_IN_PROGRESS else error
            for partition, error in results.items()
        }


def _check_up(wanted: Iterable[int], live: Iterable[int]) -> None:
    up = set(live)
    for node in wanted:
        if node not in up:
            known = ", ".join(map(str, sorted(up)))
            raise ConfigError(f"Unknown broker id {node}; brokers that are up: {known}")
