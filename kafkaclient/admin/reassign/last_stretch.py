"""Lets throttled replicas go shortly before they arrive, see :mod:`.release`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.release import Releases
from kafkaclient.admin.reassign.survey import Surveyor
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.errors import AdminStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.opened import Opened, Operation
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.reassign.release import Replica
    from kafkaclient.types import TopicPartition

__all__ = ["ease_arrivals"]

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_LOOK_CLOSELY_EVERY_S = 0.25


async def ease_arrivals(
    operation: Operation,
    clock: Callable[[], float],
    moves: Mapping[TopicPartition, Move],
) -> None:
    """Until it is cancelled, or the admin client closed. What goes wrong is tried again: moves
    arrive without it, too."""
    releases = Releases()
    while True:
        close, began = False, clock()
        try:
            async with operation("looking at arrivals") as opened:
                close = await _look(opened, clock, moves, releases)
        except AdminStateError:
            return
        except KafkaError as error:
            _log.debug("replicas that arrive are not let go: %s", error)
        pause = _LOOK_CLOSELY_EVERY_S if close else _LOOK_EVERY_S
        # With thousands of moves a look is work, for the brokers too: half of the time at most.
        await asyncio.sleep(max(pause, clock() - began))


async def _look(
    opened: Opened,
    clock: Callable[[], float],
    moves: Mapping[TopicPartition, Move],
    releases: Releases,
) -> bool:
    """Whether the next look should be soon."""
    surveyor = Surveyor(opened.session, opened.reassignments, clock)
    remaining = await surveyor.remaining(moves)
    due = releases.due(remaining)
    if due:
        await _release(opened, due, releases)
    return releases.is_close(remaining, _LOOK_EVERY_S)


async def _release(opened: Opened, due: list[Replica], releases: Releases) -> None:
    releasing = asyncio.ensure_future(throttle_of(opened).release(due))
    freed: set[Replica] = set()
    try:
        freed = await asyncio.shield(releasing)
    except asyncio.CancelledError:
        # A change that arrived after the throttles were taken away would leave an empty list.
        await asyncio.wait({releasing})
        raise
    finally:
        for replica in set(due) - freed:
            releases.failed(replica)
