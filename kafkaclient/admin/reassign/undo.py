"""Undoes a reassignment: cancels its moves, restores the replicas, and clears its throttles.

Ctrl-C while replicas move leaves the block of :class:`.ThrottledReassignment`, which ends in
:func:`undo`. Ctrl-C while a plan starts, or an error then, ends in :func:`undo_partial_start`.

What was there before: ``Begun.before`` has the replicas, from metadata before the first change. The
cluster itself has the replaced throttles, in the marks of :mod:`.throttle_marks`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.error_codes import NO_REASSIGNMENT_IN_PROGRESS
from kafkaclient.admin.reassign.clearing import clear_throttles
from kafkaclient.admin.topics import partitions_of
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.admin.reassign.outcome import Begun, Lifted
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.results import MetadataResult

_log = logging.getLogger(__name__)

_RESTORE_S = 30.0  # seconds to restore the replicas of a plan that did not start completely
_CLEAR_S = 30.0  # seconds to clear the throttles of a plan that did not start completely


async def undo(running: RunningAdmin, begun: Begun) -> dict[str, KafkaError]:
    """Undo a started plan. Moves that are complete stay. Returns the errors by what is left."""
    ongoing = await running.reassignments.ongoing()
    errors = await _restore(running, begun.before, begun.started & ongoing.keys())
    nodes = begun.with_rates
    cleared = await clear_throttles(running, completed=begun.moves, brokers=nodes, force=True)
    return {f"the replicas of {p}": error for p, error in errors.items()} | cleared.left


async def undo_partial_start(
    running: RunningAdmin,
    targets: Mapping[TopicPartition, tuple[int, ...]],
    before: Mapping[TopicPartition, tuple[int, ...]],
) -> None:
    """Undo the moves to ``targets``, also complete ones: a small partition moves within
    milliseconds. A partition whose target another operator has changed meanwhile stays. Logs a
    warning for each error. Throttles remain: see :func:`clear_after_failed_start`."""
    try:
        async with asyncio.timeout(_RESTORE_S):
            ongoing = await running.reassignments.ongoing()
            moving = {
                p
                for p in targets.keys() & ongoing.keys()
                if set(ongoing[p].replicas) - set(ongoing[p].removing) == set(targets[p])
            }
            errors = await _restore(running, before, moving, targets.keys() - ongoing.keys())
    except (KafkaError, TimeoutError) as error:
        _log.warning(
            "reassignments may have started, and could not be cancelled; `reassign list` shows "
            "them: %s",
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
    running: RunningAdmin, moving: Collection[TopicPartition], cluster: MetadataResult
) -> dict[TopicPartition, KafkaError | None]:
    """Cancel ongoing reassignments. Returns by partition None, or the error if it continues."""
    results = await running.reassignments.alter(dict.fromkeys(sorted(moving)), cluster)
    return {
        # It may have completed since it was listed.
        partition: None if error and error.code == NO_REASSIGNMENT_IN_PROGRESS else error
        for partition, error in results.items()
    }


async def _restore(
    running: RunningAdmin,
    before: Mapping[TopicPartition, tuple[int, ...]],
    moving: Collection[TopicPartition],
    completed: Collection[TopicPartition] = (),
) -> dict[TopicPartition, KafkaError]:
    """Cancel the reassignments of ``moving``, then give these and the ``completed`` partitions the
    replicas that they had ``before``, in their original order. Partitions that no longer exist are
    left out. Returns the errors."""
    if not moving and not completed:
        return {}
    cluster = await running.session.metadata(None)
    results = await cancel_moves(running, moving, cluster) if moving else {}
    exist = partitions_of(cluster)
    restored = {p: before[p] for p in (*moving, *completed) if p in exist and not results.get(p)}
    if restored:  # regardless of the partition limits
        results |= await running.reassignments.alter(restored, cluster)
    return {p: error for p, error in results.items() if error is not None}
