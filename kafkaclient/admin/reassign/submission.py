"""Submits the reassignments of a plan to the controller: all of them, or none.

Throttles are set before the reassignments start. During that time no other operator sets or clears
throttles (:mod:`kafkaclient.admin.announcements`). If the submission fails, the reassignments that
have started are undone, then the throttles that no reassignment needs are cleared (:mod:`.undo`).
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.admin.description import live_brokers, partitions_of
from kafkaclient.admin.error_codes import (
    INVALID_REPLICA_ASSIGNMENT,
    REASSIGNMENT_IN_PROGRESS,
)
from kafkaclient.admin.reassign.cluster_reader import known_partitions
from kafkaclient.admin.reassign.outcome import Begun, some
from kafkaclient.admin.reassign.plan import (
    ReassignmentPlan,
    current_move,
    leaves_fewer_in_sync,
    move_map,
    moving_brokers,
    new_brokers,
    throttle_map,
)
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.admin.reassign.undo import (
    clear_after_failed_start,
    undo_partial_start,
)
from kafkaclient.broker_errors import broker_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment
    from kafkaclient.wire.results import PartitionView


# --- Submits the reassignments of a plan to the controller: all of them, or none ------------------

_ANSWER_S = 5.0  # seconds to wait for pending requests when a call is cancelled


@dataclass(slots=True)
class Submission:
    """The submission of one plan. Call ``run()`` once, inside ``session.limit(..., timeout_s)``."""

    running: RunningAdmin
    plan: Mapping[TopicPartition, tuple[int, ...]]
    quota: int | None
    additional: bool
    skip_dead: bool
    allow_fewer_in_sync: bool
    on_rollback: Callable[[ReassignmentPlan], None] | None
    timeout_s: float | None
    _before: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    _sent: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """The reassignments that were sent to the controller, and may have started."""
    _may_have_rates: frozenset[int] | None = None
    """The brokers that may have the quota; None: no throttle was set."""

    async def run(self) -> Begun:
        """Start the reassignments. If this raises, as :meth:`Reassigner.begin`, none is ongoing."""
        working = asyncio.ensure_future(self._begin())
        begun: Begun | None = None
        try:
            begun = await asyncio.shield(working)
        except asyncio.CancelledError:
            try:
                await asyncio.wait({working}, timeout=_ANSWER_S)
            finally:  # also if cancelled again: ``working`` must not start anything after this
                working.cancel()
                await asyncio.wait({working})
                await self._undo()  # ``working`` may have succeeded, but the caller gets no result
            raise
        finally:
            if begun is None and self._may_have_rates is not None:
                await clear_after_failed_start(self.running, self._may_have_rates)
        return begun

    async def _begin(self) -> Begun:
        lock = self.running.announcements
        async with nullcontext() if self.quota is None else lock.setting(self.timeout_s) as seen:
            try:
                return await self._submit(seen)
            except BaseException:
                await self._undo(seen)
                raise

    async def _submit(self, seen: str | None) -> Begun:
        running, plan = self.running, self.plan
        ongoing = await running.reassignments.ongoing()
        if ongoing and not self.additional:
            raise broker_error(
                REASSIGNMENT_IN_PROGRESS,
                "reassigning partitions",
                advice=f"a reassignment of {some(ongoing)} is already in progress. Wait for it, "
                "cancel it, or start this one in addition (--additional)",
            )
        cluster = await known_partitions(running.session, plan.keys())
        views = partitions_of(cluster)
        moves = move_map(ongoing, plan, {p: views[p].replicas for p in plan})
        live = frozenset(live_brokers(cluster))
        dead = {p: down for p in plan if (down := new_brokers(moves[p]) - live)}
        if dead and not (self.skip_dead and dead.keys() < plan.keys()):
            missing = _nodes(frozenset().union(*dead.values()))
            why = f"Unknown broker id {missing}: new replicas need brokers that are up"
            raise _refused(dead, why, "start the broker, or omit these partitions (--skip-dead)")
        wanted = {p: nodes for p, nodes in plan.items() if p not in dead}
        fewer = [p for p in wanted if leaves_fewer_in_sync(views[p], moves[p], wanted[p], live)]
        if fewer and not self.allow_fewer_in_sync:
            why = "live in-sync replicas are removed, and replicas that are down or lag stay"
            ways = "wait until all replicas are in sync, or accept it (--allow-fewer-in-sync)"
            raise _refused(fewer, why, ways)
        self._before = {p: _before(p, ongoing, views) for p in plan}
        limits = await running.guard.limits(cluster)
        throttled = {p: move for p, move in moves.items() if p not in dead}
        running.guard.check_moves(wanted, limits, cluster)
        if self.on_rollback is not None:
            self.on_rollback(ReassignmentPlan(self._before))
        unthrottled: dict[int, KafkaError] = {}
        if self.quota is not None and seen is not None:
            either = throttle_map(throttled, ongoing, wanted)
            self._may_have_rates = moving_brokers(either) & live
            unthrottled = await ThrottleConfigs(running).set_moves(
                either, self.quota, live, seen=seen
            )
        self._sent = wanted
        results = await running.reassignments.alter(wanted)
        self._sent = {p: nodes for p, nodes in wanted.items() if results[p] is None}
        await running.guard.check_race_of_moves(self._sent, limits, cluster, undone=True)
        for partition, nodes in dead.items():
            advice = f"broker {_nodes(nodes)} is down"
            what = f"reassigning {partition}"
            results[partition] = broker_error(INVALID_REPLICA_ASSIGNMENT, what, advice=advice)
        return Begun(
            plan,
            throttled,
            self.quota,
            self._before,
            {p: error for p, error in results.items() if error is not None},
            unthrottled,
        )

    async def _undo(self, seen: str | None = None) -> None:
        """Undo the reassignments of this plan that may have started."""
        if self._sent:
            await undo_partial_start(self.running, self._sent, self._before, self.quota, seen)
            self._sent = {}


def _refused(partitions: Iterable[TopicPartition], why: str, ways: str) -> KafkaError:
    return broker_error(
        INVALID_REPLICA_ASSIGNMENT,
        f"reassigning {some(partitions)}",
        advice=f"{why}. Nothing was changed; correct the plan, {ways}",
    )


def _nodes(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


def _before(
    partition: TopicPartition,
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    views: Mapping[TopicPartition, PartitionView],
) -> tuple[int, ...]:
    """The replicas for a rollback: those before the partition's ongoing reassignment, if any."""
    underway = ongoing.get(partition)
    if underway is None:
        return views[partition].replicas
    sources = current_move(underway).sources
    return tuple(node for node in underway.replicas if node in sources)
