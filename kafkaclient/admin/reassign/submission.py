"""Submits the reassignments of a plan to the controller: all of them, or none.

Throttles are set before the reassignments start. During that time no other operator clears
throttles (:mod:`kafkaclient.admin.announcements`). If the submission fails, the reassignments that
have started are cancelled, and then the throttles that no reassignment needs are removed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.cluster_reader import known_partitions
from kafkaclient.admin.reassign.moves import arrivals, current_move, move_map
from kafkaclient.admin.reassign.outcome import Begun, some
from kafkaclient.admin.reassign.plan import ReassignmentPlan
from kafkaclient.admin.reassign.quotas import clean_up
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.admin.topics import partitions_of
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment
    from kafkaclient.wire.results import MetadataResult, PartitionView

__all__ = ["Submission"]

_log = logging.getLogger(__name__)

_INVALID_ASSIGNMENT = 39
_IN_PROGRESS = 60

_ANSWER_S = 5.0  # seconds to wait for pending requests when a call is cancelled
_UNDO_S = 30.0  # seconds to cancel reassignments that have started


@dataclass(slots=True)
class Submission:
    """The submission of one plan. Call ``run()`` once, inside ``session.limit(..., timeout_s)``."""

    running: RunningAdmin
    plan: Mapping[TopicPartition, tuple[int, ...]]
    quota: int | None
    additional: bool
    skip_dead: bool
    on_rollback: Callable[[ReassignmentPlan], None] | None
    timeout_s: float | None
    _before: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    _sent: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """The reassignments that were sent to the controller, and may have started."""
    _may_have_set: bool = False
    """Whether throttles may have been set."""

    async def run(self) -> Begun:
        """Start the reassignments. If this raises, as :meth:`Reassigner.begin`, none is ongoing."""
        working = asyncio.ensure_future(self._begin())
        begun: Begun | None = None
        try:
            begun = await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait({working}, timeout=_ANSWER_S)
            working.cancel()
            await asyncio.wait({working})
            await self._undo()  # ``working`` may have succeeded, but the caller gets no result
            raise
        finally:
            if begun is None and self._may_have_set:
                await clean_up(self.running)
        return begun

    async def _begin(self) -> Begun:
        lock = self.running.announcements
        async with nullcontext() if self.quota is None else lock.setting(self.timeout_s) as seen:
            try:
                return await self._submit(seen)
            except BaseException:
                await self._undo()
                raise

    async def _submit(self, seen: str | None) -> Begun:
        running, plan = self.running, self.plan
        ongoing = await running.reassignments.ongoing()
        if ongoing and not self.additional:
            raise broker_error(
                _IN_PROGRESS,
                "reassigning partitions",
                advice=f"a reassignment of {some(ongoing)} is already in progress. Wait for it, "
                "cancel it, or start this one in addition (--additional)",
            )
        cluster = await known_partitions(running.session, plan.keys())
        views = partitions_of(cluster)
        moves = move_map(ongoing, plan, {p: views[p].replicas for p in plan})
        live = frozenset(broker.node_id for broker in cluster.brokers)
        dead = {p: arrivals(moves[p]) - live for p in plan if arrivals(moves[p]) - live}
        if dead and not (self.skip_dead and dead.keys() < plan.keys()):
            raise _needs(dead)
        self._before = {p: _before(p, ongoing, views) for p in plan}
        limits = await running.limits(cluster)
        wanted = {p: nodes for p, nodes in plan.items() if p not in dead}
        throttled = {p: move for p, move in moves.items() if p not in dead}
        running.reassignments.check(wanted, limits, cluster)
        if self.on_rollback is not None:
            self.on_rollback(ReassignmentPlan(self._before))
        unthrottled: dict[int, KafkaError] = {}
        if self.quota is not None and seen is not None:
            throttle = throttle_of(running)
            self._may_have_set = True
            unthrottled = await throttle.impose(throttled, self.quota, live, seen=seen)
        results = await self._send(wanted, limits, cluster)
        for partition, nodes_down in dead.items():
            down = ", ".join(map(str, sorted(nodes_down)))
            results[partition] = broker_error(
                _INVALID_ASSIGNMENT, f"reassigning {partition}", advice=f"broker {down} is down"
            )
        return Begun(
            plan,
            throttled,
            self.quota,
            self._before,
            {p: error for p, error in results.items() if error is not None},
            unthrottled,
        )

    async def _send(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...]],
        limits: Limits,
        cluster: MetadataResult,
    ) -> dict[TopicPartition, KafkaError | None]:
        reassignments = self.running.reassignments
        self._sent = dict(wanted)
        results = await reassignments.alter(wanted, cluster)
        self._sent = {p: nodes for p, nodes in wanted.items() if results[p] is None}
        await reassignments.check_room(self._sent, limits, cluster, undone=True)
        return results

    async def _undo(self) -> None:
        """Cancel the reassignments of this plan that may have started."""
        if not self._sent:
            return
        try:
            async with asyncio.timeout(_UNDO_S):
                errors = await self._cancel()
        except (KafkaError, TimeoutError) as error:
            _log.warning(
                "reassignments that have started could not be cancelled; `reassign list` shows "
                "them: %s",
                error,
            )
        else:
            for partition, why in errors.items():
                _log.warning("the replicas of %s could not be restored: %s", partition, why)
        self._sent = {}

    async def _cancel(self) -> dict[TopicPartition, KafkaError]:
        """Restore the replicas, also of moves that have completed already: a small partition moves
        within milliseconds. Partitions that another operator has moved on meanwhile stay."""
        reassignments = self.running.reassignments
        ongoing = await reassignments.ongoing()
        ours = [p for p, target in self._sent.items() if _target(ongoing.get(p)) == set(target)]
        cluster = await self.running.session.metadata(None)
        results: dict[TopicPartition, KafkaError | None] = {}
        if ours:
            results = await reassignments.alter(dict.fromkeys(ours), cluster)
        restored = {
            p: self._before[p]
            for p in self._sent
            if results.get(p) is None and (p in ours or p not in ongoing)
        }
        if restored:
            results |= await reassignments.alter(restored, cluster)
        return {p: error for p, error in results.items() if error is not None}


def _needs(dead: Mapping[TopicPartition, frozenset[int]]) -> KafkaError:
    nodes = sorted(frozenset().union(*dead.values()))
    return broker_error(
        _INVALID_ASSIGNMENT,
        f"reassigning {some(dead)}",
        advice=f"Unknown broker id {', '.join(map(str, nodes))}: new replicas need brokers that "
        "are up. Nothing was changed; correct the plan, start the broker, or omit these "
        "partitions (--skip-dead)",
    )


def _target(underway: OngoingReassignment | None) -> set[int] | None:
    """The target replicas of an ongoing reassignment."""
    return None if underway is None else set(underway.replicas) - set(underway.removing)


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
