"""Undoes a reassignment: cancels its moves, restores the replicas, and clears its throttles.

Ctrl-C while replicas move leaves the block of :class:`.ThrottledReassignment`, which ends in
:func:`undo`. Ctrl-C while a plan starts, or an error then, ends in :func:`undo_partial_start`.

What was there before: ``Begun.before`` has the replicas, from metadata before the first change. The
cluster itself has the replaced throttles, in the marks of :mod:`.throttle_marks`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.admin.description import live_brokers, partitions_of
from kafkaclient.admin.error_codes import NO_REASSIGNMENT_IN_PROGRESS
from kafkaclient.admin.reassign.clearing import clear_throttles
from kafkaclient.admin.reassign.outcome import some
from kafkaclient.admin.reassign.plan import Move, current_move
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.admin.reassign.outcome import Begun, Lifted
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment

_Present: TypeAlias = "dict[TopicPartition, frozenset[int]]"  # replicas

_log = logging.getLogger(__name__)

_RESTORE_S = 30.0  # seconds to restore the replicas of a plan that did not start completely
_CLEAR_S = 30.0  # seconds to clear the throttles of a plan that did not start completely


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
            error,
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
        _log.warning("throttles may remain, `throttle clear` removes them: %s", error)
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
        partition: None if error and error.code == NO_REASSIGNMENT_IN_PROGRESS else error
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
    return present, {p: e for p, e in errors.items() if e.code != NO_REASSIGNMENT_IN_PROGRESS}


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
