"""Unthrottles new replicas shortly before they are in sync, as :mod:`.early_unthrottle` decides."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.cluster_reader import ClusterReader
from kafkaclient.admin.reassign.early_unthrottle import EarlyUnthrottling
from kafkaclient.admin.reassign.throttle import Throttle
from kafkaclient.errors import AdminStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.reassign.early_unthrottle import Replica
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.running import Operation, RunningAdmin
    from kafkaclient.types import TopicPartition

__all__ = ["unthrottle_early"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0  # seconds between two checks
_SHORT_INTERVAL_S = 0.25  # seconds between two checks while a replica is almost in sync


async def unthrottle_early(
    operation: Operation,
    clock: Callable[[], float],
    moves: Mapping[TopicPartition, Move],
) -> None:
    """Run until cancelled or until the admin client is closed. Errors are logged and retried: a
    reassignment completes without this task, too."""
    early = EarlyUnthrottling()
    while True:
        close, began = False, clock()
        try:
            async with operation("checking new replicas") as running:
                close = await _check(running, clock, moves, early)
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
    early: EarlyUnthrottling,
) -> bool:
    """Unthrottle replicas that are due. Returns whether the next check should be soon."""
    remaining = await ClusterReader(running, clock).remaining(moves)
    due = early.due(remaining)
    if due:
        await _unthrottle(running, due, early)
    return early.is_close(remaining, _INTERVAL_S)


async def _unthrottle(running: RunningAdmin, due: list[Replica], early: EarlyUnthrottling) -> None:
    changing = asyncio.ensure_future(Throttle(running).unthrottle(due))
    done: set[Replica] = set()
    try:
        done = await asyncio.shield(changing)
    except asyncio.CancelledError:
        # A change that a broker applies after the throttles were cleared would leave an empty list.
        await asyncio.wait({changing})
        raise
    finally:
        for replica in set(due) - done:
            early.failed(replica)
