"""Unthrottles new replicas shortly before they are in sync.

A throttle delays the fetches of replicas that are not in sync. A leader delays records with
``acks=all`` until a replica that has almost caught up is in sync
(``Partition.maybeIncrementLeaderHW``, at most ``replica.lag.time.max.ms``). Together, the quota
delays clients. A replica without a throttle fetches its missing bytes at once, and is in sync two
fetches later.

The quota does not count the bytes of unthrottled replicas. So a replica is unthrottled only when it
lacks no more than one fetch, and the unthrottled bytes per second are limited to :data:`SHARE` of
the quota.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.cluster_reader import FETCH_BYTES, ClusterReader
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.errors import AdminStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.reassign.cluster_reader import Remaining, Replica
    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.running import Operation, RunningAdmin
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

SHARE = 0.2  # share of a broker's quota that unthrottled replicas may add per second
_SAVED_S = 2.5  # seconds of unused share that a broker may save
_INTERVAL_S = 1.0  # seconds between two checks
_SHORT_INTERVAL_S = 0.25  # seconds between two checks while a replica is almost in sync


async def unthrottle_early(
    operation: Operation, clock: Callable[[], float], moves: Mapping[TopicPartition, Move]
) -> None:
    """Run until cancelled or until the admin client is closed. Errors are logged and retried: a
    reassignment completes without this task, too."""
    early = EarlyUnthrottling()
    while True:
        close, began = False, clock()
        try:
            async with operation("checking new replicas") as running:
                remaining = await ClusterReader(running, clock).remaining(moves)
                if due := early.due(remaining):
                    await _unthrottle(running, due, early)
                close = early.is_close(remaining, _INTERVAL_S)
        except AdminStateError:
            return
        except KafkaError as error:
            _log.debug("cannot unthrottle replicas that are almost in sync: %s", error)
        pause = _SHORT_INTERVAL_S if close else _INTERVAL_S
        # A check of thousands of replicas loads the brokers: spend at most half of the time on it.
        await asyncio.sleep(max(pause, clock() - began))


async def _unthrottle(running: RunningAdmin, due: list[Replica], early: EarlyUnthrottling) -> None:
    changing = asyncio.ensure_future(ThrottleConfigs(running).unthrottle(due))
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


@dataclass(slots=True)
class EarlyUnthrottling:
    """Selects the replicas to unthrottle from successive measurements."""

    _unthrottled: set[Replica] = field(default_factory=set)
    _saved: dict[int, float] = field(default_factory=dict)
    """The bytes that may be unthrottled now, by broker."""
    _at: float | None = None

    def due(self, remaining: Remaining) -> list[Replica]:
        """The replicas to unthrottle now. They then count as unthrottled, unless :meth:`failed` is
        called."""
        passed = 0.0 if self._at is None else remaining.at - self._at
        self._at = remaining.at
        most = {node: rate * SHARE * _SAVED_S for node, rate in remaining.rates.items()}
        self._saved = {
            node: min(most[node], self._saved.get(node, most[node]) + rate * SHARE * passed)
            for node, rate in remaining.rates.items()
        }
        found = []
        for replica, rest in sorted(remaining.rests.items(), key=lambda item: item[1].nbytes):
            if rest.nbytes > FETCH_BYTES:
                break
            nodes = [node for node in (rest.leader, replica[1]) if node in most]
            # A replica that lacks more than can be saved needs the full savings.
            affordable = all(
                most[node] > 0 and self._saved[node] >= min(rest.nbytes, most[node])
                for node in nodes
            )
            if affordable and replica not in self._unthrottled:
                for node in nodes:
                    self._saved[node] -= rest.nbytes
                self._unthrottled.add(replica)
                found.append(replica)
        return found

    def failed(self, replica: Replica) -> None:
        """Record that the replica was not unthrottled, so that :meth:`due` returns it again."""
        self._unthrottled.discard(replica)

    def is_close(self, remaining: Remaining, seconds: float) -> bool:
        """Whether a replica may be due within ``seconds``."""
        reach = FETCH_BYTES + max(remaining.rates.values(), default=0) * seconds
        return any(
            rest.nbytes <= reach and replica not in self._unthrottled
            for replica, rest in remaining.rests.items()
        )
