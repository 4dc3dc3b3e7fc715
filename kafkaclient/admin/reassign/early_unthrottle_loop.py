"""Unthrottles new replicas shortly before they are in sync, as :mod:`.release` decides."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.cluster_reader import ClusterReader
from kafkaclient.admin.reassign.early_unthrottle import EarlyUnthrottling
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.errors import AdminStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.reassign.early_unthrottle import Replica
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.running import Operation, RunningAdmin
    from kafkaclient.types import TopicPartition

__all__ = ["ease_arrivals"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0  # seconds between two checks
_SHORT_INTERVAL_S = 0.25  # seconds between two checks while a replica is almost in sync


async def ease_arrivals(
    operation: Operation,
    clock: Callable[[], float],
    moves: Mapping[TopicPartition, Move],
) -> None:
    """Run until cancelled or until the admin client is closed. Errors are logged and retried: a
    reassignment completes without this task, too."""
    releases = EarlyUnthrottling()
    while True:
        close, began = False, clock()
        try:
            async with operation("checking new replicas") as running:
                close = await _check(running, clock, moves, releases)
        except AdminStateError:
            return
        except KafkaError as error:
            _log.debug("cannot unthrottle replicas that are almost in sync: %s", error)
        pause = _SHORT_INTERVAL_S if close else _INTERVAL_S
        # A check of thousands of replicas loads the brokers: spend at most half of the time on it.
        await asyncio.sleep(max(pause, clock() - began))


async def _check(
    running: RunningAdmin,
    clock: Callable[[], float],
    moves: Mapping[TopicPartition, Move],
    releases: EarlyUnthrottling,
) -> bool:
    """Unthrottle replicas that are due. Returns whether the next check should be soon."""
    reader = ClusterReader(running.session, running.reassignments, clock)
    remaining = await reader.remaining(moves)
    due = releases.due(remaining)
    if due:
        await _release(running, due, releases)
    return releases.is_close(remaining, _INTERVAL_S)


async def _release(running: RunningAdmin, due: list[Replica], releases: EarlyUnthrottling) -> None:
    releasing = asyncio.ensure_future(throttle_of(running).release(due))
    freed: set[Replica] = set()
    try:
        freed = await asyncio.shield(releasing)
    except asyncio.CancelledError:
        # A change that a broker applies after the throttles were removed would leave an empty list.
        await asyncio.wait({releasing})
        raise
    finally:
        for replica in set(due) - freed:
            releases.failed(replica)
