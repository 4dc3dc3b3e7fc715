"""Starts the reassignments of a plan, all of them or none, and undoes them.

Throttles are set before the reassignments start. During that time no other operator sets or clears
throttles (:mod:`kafkaclient.admin.announcements`). If the submission fails, the reassignments that
have started are undone, then the throttles that no reassignment needs are cleared. Ctrl-C while a
plan starts ends in :func:`undo_partial_start`; Ctrl-C while replicas move leaves the block of
:class:`.ThrottledReassignment`, which ends in :func:`undo`.

What was there before: ``Begun.before`` has the replicas, from metadata before the first change. The
cluster itself has the replaced throttles, in the marks of :mod:`.throttle_marks`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.admin.description import live_brokers, partitions_of
from kafkaclient.admin.reassign.clearing import clear_throttles
from kafkaclient.admin.reassign.cluster_reader import known_partitions
from kafkaclient.admin.reassign.outcome import Begun, some
from kafkaclient.admin.reassign.plan import (
    Move,
    ReassignmentPlan,
    current_move,
    leaves_fewer_in_sync,
    move_map,
    moving_brokers,
    new_brokers,
    throttle_map,
)
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import KafkaError
from kafkaclient.time_limit import why_given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafkaclient.admin.reassign.outcome import Lifted
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment
    from kafkaclient.wire.api import PartitionView

_Present: TypeAlias = "dict[TopicPartition, frozenset[int]]"  # replicas

_log = logging.getLogger(__name__)

_ANSWER_S = 5.0  # seconds to wait for pending requests when a call is cancelled
_RESTORE_S = 30.0  # seconds to restore the replicas of a plan that did not start completely
_CLEAR_S = 30.0  # seconds to clear the throttles of a plan that did not start completely


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
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
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
            results[partition] = broker_error(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, what, advice=advice
            )
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
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
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


# --- Undoing --------------------------------------------------------------------------------------


async def undo(running: RunningAdmin, begun: Begun) -> dict[str, KafkaError]:
    """Undo a started plan. Moves that are complete stay. Returns the errors by what is left."""
    ongoing = await running.reassignments.ongoing()
    present, errors = await _cancel(running, ongoing, begun.started & ongoing.keys())
    errors |= await _move_back(running, present, begun.before, begun.quota, None)
    nodes = begun.with_rates
    cleared = await clear_throttles(running, completed=begun.moves, brokers=nodes, force=True)
    return {f"the replicas of {p}": error for p, error in errors.items()} | cleared.left


async def undo_partial_start(
    running: RunningAdmin,
    targets: Mapping[TopicPartition, tuple[int, ...]],
    before: Mapping[TopicPartition, tuple[int, ...]],
    quota: int | None,
    seen: str | None,
) -> None:
    """Undo the moves to ``targets``, also complete ones: a small partition moves within
    milliseconds. These move back within the ``quota``; ``seen`` is the key of an announcement
    that has been made. A partition whose target another operator has changed meanwhile stays. Logs
    a warning for each error. Throttles remain: see :func:`clear_after_failed_start`."""
    try:
        async with asyncio.timeout(_RESTORE_S):
            ongoing = await running.reassignments.ongoing()
            moving = {
                p
                for p in targets.keys() & ongoing.keys()
                if set(ongoing[p].replicas) - set(ongoing[p].removing) == set(targets[p])
            }
            present, errors = await _cancel(running, ongoing, moving)
            completed = targets.keys() - (ongoing.keys() - moving) - present.keys() - errors.keys()
            present |= {p: frozenset(targets[p]) for p in completed}
            errors |= await _move_back(running, present, before, quota, seen)
    except (KafkaError, TimeoutError) as error:
        _log.warning(
            "reassignments may have started, and could not be undone; `reassign list` shows those "
            "that continue: %s",
            why_given_up(error, _RESTORE_S),
        )
    else:
        for partition, why in errors.items():
            _log.warning("the replicas of %s could not be restored: %s", partition, why)


async def clear_after_failed_start(running: RunningAdmin, brokers: Collection[int]) -> None:
    """Clear the throttles of a plan that did not start, even after the operation's time limit.
    ``brokers`` are those that may have its quota."""
    try:
        async with asyncio.timeout(_CLEAR_S):
            cleared = await clear_throttles(running, brokers=brokers, force=True)
    except (KafkaError, TimeoutError) as error:
        why = why_given_up(error, _CLEAR_S)
        _log.warning("throttles may remain, `throttle clear` removes them: %s", why)
    else:
        warn_of(cleared)


def warn_of(cleared: Lifted) -> None:
    """Log a warning for each throttle that could not be removed."""
    for what, error in cleared.failures.items():
        _log.warning(
            "the throttle of %s was not removed, `throttle clear` removes it: %s", what, error
        )


async def cancel_moves(
    running: RunningAdmin, moving: Collection[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Cancel ongoing reassignments. Returns by partition None, or the error if it continues."""
    results = await running.reassignments.alter(dict.fromkeys(sorted(moving)))
    return {
        # It may have completed since it was listed.
        partition: None if error and error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS else error
        for partition, error in results.items()
    }


async def _cancel(
    running: RunningAdmin,
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    moving: Collection[TopicPartition],
) -> tuple[_Present, dict[TopicPartition, KafkaError]]:
    """Cancel the reassignments of ``moving``. Returns the replicas that the partitions have then,
    and the errors; neither has a partition whose reassignment was complete before."""
    if not moving:
        return {}, {}
    results = await running.reassignments.alter(dict.fromkeys(sorted(moving)))
    errors = {p: error for p, error in results.items() if error is not None}
    present = {p: current_move(ongoing[p]).sources for p in results.keys() - errors.keys()}
    return present, {
        p: e for p, e in errors.items() if e.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }


async def _move_back(
    running: RunningAdmin,
    present: _Present,
    before: Mapping[TopicPartition, tuple[int, ...]],
    quota: int | None,
    seen: str | None,
) -> dict[TopicPartition, KafkaError]:
    """Give partitions that have the replicas ``present`` those of ``before``, in their original
    order. Throttles replicas that have to be copied. Partitions that no longer exist, or that
    another operator moves, are left out. Returns the errors."""
    if not present:
        return {}
    back = {p: Move(nodes, frozenset(before[p]) - nodes) for p, nodes in present.items()}
    announces = seen is None and quota is not None and any(m.destinations for m in back.values())
    async with running.announcements.setting() if announces else nullcontext(seen) as key:
        ongoing = await running.reassignments.ongoing()
        cluster = await running.session.metadata(None)
        exist = partitions_of(cluster).keys() - ongoing.keys()
        wanted = {p: before[p] for p in sorted(back.keys() & exist)}
        copied = {p: back[p] for p in wanted if back[p].destinations}
        if copied and quota is not None and key is not None:
            await ThrottleConfigs(running).set_moves(copied, quota, live_brokers(cluster), seen=key)
            what = "%s: moving back within the quota; run `throttle clear` when that is complete"
            _log.warning(what, some(copied))
        # regardless of the partition limits
        results = await running.reassignments.alter(wanted) if wanted else {}
    return {p: error for p, error in results.items() if error is not None}
