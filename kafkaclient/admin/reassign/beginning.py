"""Begins the moves of a plan, or none of them.

Throttles are set first, then the moves begin. Meanwhile no other operator clears throttles
(:mod:`.turns`). If the plan fails to begin, for any reason, moves that have begun are cancelled,
and then throttles that no move needs are removed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.moves import arrivals, current_move, move_map
from kafkaclient.admin.reassign.outcome import Begun, some
from kafkaclient.admin.reassign.plan import ReassignmentPlan
from kafkaclient.admin.reassign.quotas import clean_up
from kafkaclient.admin.reassign.survey import known_partitions, partitions_of
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.opened import Opened
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment
    from kafkaclient.wire.results import MetadataResult, PartitionView

__all__ = ["Beginning"]

_log = logging.getLogger(__name__)

_INVALID_ASSIGNMENT = 39
_IN_PROGRESS = 60

_ANSWER_S = 5.0  # seconds for requests under way when a call is cancelled
_UNDOING_S = 30.0  # seconds to cancel moves again


@dataclass(slots=True)
class Beginning:
    """One attempt to begin the moves of ``plan``. Call ``run()`` once, inside
    ``session.limit(..., timeout_s)``."""

    opened: Opened
    plan: Mapping[TopicPartition, tuple[int, ...]]
    quota: int | None
    additional: bool
    skip_dead: bool
    on_rollback: Callable[[ReassignmentPlan], None] | None
    timeout_s: float | None
    _before: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    _sent: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """What the controller was asked for, and may have begun."""
    _may_have_set: bool = False
    """Whether throttles may have been set."""

    async def run(self) -> Begun:
        """Raises as :meth:`Reassigner.begin`, with nothing begun."""
        working = asyncio.ensure_future(self._begin())
        begun: Begun | None = None
        try:
            begun = await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait({working}, timeout=_ANSWER_S)
            working.cancel()
            await asyncio.wait({working})
            await self._take_back()  # ``working`` may have succeeded, but the caller gets no result
            raise
        finally:
            if begun is None and self._may_have_set:
                await clean_up(self.opened)
        return begun

    async def _begin(self) -> Begun:
        turns = self.opened.turns
        async with nullcontext() if self.quota is None else turns.setting(self.timeout_s) as seen:
            try:
                return await self._carry_out(seen)
            except BaseException:
                await self._take_back()
                raise

    async def _carry_out(self, seen: str | None) -> Begun:
        opened, plan = self.opened, self.plan
        ongoing = await opened.reassignments.ongoing()
        if ongoing and not self.additional:
            raise broker_error(
                _IN_PROGRESS,
                "reassigning partitions",
                advice=f"there is a reassignment under way already, of {some(ongoing)}. Wait for "
                "it, cancel it, or begin this one beside it (--additional)",
            )
        cluster = await known_partitions(opened.session, plan.keys())
        views = partitions_of(cluster)
        moves = move_map(ongoing, plan, {p: views[p].replicas for p in plan})
        live = frozenset(broker.node_id for broker in cluster.brokers)
        dead = {p: arrivals(moves[p]) - live for p in plan if arrivals(moves[p]) - live}
        if dead and not (self.skip_dead and dead.keys() < plan.keys()):
            raise _needs(dead)
        self._before = {p: _before(p, ongoing, views) for p in plan}
        limits = await opened.limits(cluster)
        wanted = {p: nodes for p, nodes in plan.items() if p not in dead}
        throttled = {p: move for p, move in moves.items() if p not in dead}
        opened.reassignments.check(wanted, limits, cluster)
        if self.on_rollback is not None:
            self.on_rollback(ReassignmentPlan(self._before))
        unthrottled: dict[int, KafkaError] = {}
        if self.quota is not None and seen is not None:
            throttle = throttle_of(opened)
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
        reassignments = self.opened.reassignments
        self._sent = dict(wanted)
        results = await reassignments.alter(wanted, cluster)
        self._sent = {p: nodes for p, nodes in wanted.items() if results[p] is None}
        await reassignments.check_room(self._sent, limits, cluster, undone=True)
        return results

    async def _take_back(self) -> None:
        """Cancel what may have begun: partitions on the way to replicas of this plan."""
        if not self._sent:
            return
        try:
            async with asyncio.timeout(_UNDOING_S):
                errors = await self._cancel()
        except (KafkaError, TimeoutError) as error:
            _log.warning("moves may have begun all the same, `reassign list` shows them: %s", error)
        else:
            for partition, why in errors.items():
                _log.warning("%s could not be given its replicas back: %s", partition, why)
        self._sent = {}

    async def _cancel(self) -> dict[TopicPartition, KafkaError]:
        reassignments = self.opened.reassignments
        ongoing = await reassignments.ongoing()
        ours = [p for p, target in self._sent.items() if _target(ongoing.get(p)) == set(target)]
        if not ours:
            return {}
        cluster = await self.opened.session.metadata(None)
        results = await reassignments.alter(dict.fromkeys(ours), cluster)
        stopped = {p: self._before[p] for p, error in results.items() if error is None}
        if stopped:
            results |= await reassignments.alter(stopped, cluster)
        return {p: error for p, error in results.items() if error is not None}


def _needs(dead: Mapping[TopicPartition, frozenset[int]]) -> KafkaError:
    nodes = sorted(frozenset().union(*dead.values()))
    return broker_error(
        _INVALID_ASSIGNMENT,
        f"reassigning {some(dead)}",
        advice=f"Unknown broker id {', '.join(map(str, nodes))}: new replicas need brokers that "
        "are up. Nothing was changed; correct the plan, start the broker, or leave these "
        "partitions out (--skip-dead)",
    )


def _target(underway: OngoingReassignment | None) -> set[int] | None:
    """The replicas that a partition is on its way to."""
    return None if underway is None else set(underway.replicas) - set(underway.removing)


def _before(
    partition: TopicPartition,
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    views: Mapping[TopicPartition, PartitionView],
) -> tuple[int, ...]:
    """The replicas to go back to: those before the partition's current move, if it has one."""
    underway = ongoing.get(partition)
    if underway is None:
        return views[partition].replicas
    sources = current_move(underway).sources
    return tuple(node for node in underway.replicas if node in sources)
