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
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.reassign.cluster_reader import ClusterReader
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.errors import AdminStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.reassign.progress import Measurements
    from kafkaclient.admin.running import Operation
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

FETCH_BYTES = 1024 * 1024  # bytes of one partition in a fetch: replica.fetch.max.bytes by default
SHARE = 0.2  # share of a broker's quota that unthrottled replicas may add per second
_TRUSTED_LACK = 16 * FETCH_BYTES  # bytes from which an estimate by records is used
_SAVED_S = 2.5  # seconds of unused share that a broker may save
_INTERVAL_S = 1.0  # seconds between two checks
_SHORT_INTERVAL_S = 0.25  # seconds between two checks while a replica is almost in sync


async def unthrottle_early(
    operation: Operation, clock: Callable[[], float], moves: Mapping[TopicPartition, Move]
) -> None:
    """Run until cancelled or until the admin client is closed. Errors are logged and retried: a
    reassignment completes without this task, too."""
    early = EarlyUnthrottling(moves)
    while True:
        pause, began = _INTERVAL_S, clock()
        try:
            async with operation("checking new replicas") as running:
                now = await ClusterReader(running, clock).measure(moves)
                if due := early.due(now):
                    changing = asyncio.ensure_future(ThrottleConfigs(running).unthrottle(due))
                    try:
                        early.unthrottled |= await asyncio.shield(changing)
                    finally:
                        # A change that a broker applies after the throttles were cleared would
                        # leave an empty list.
                        await asyncio.wait({changing})
                pause = early.pause_s(now)
        except AdminStateError:
            return
        except KafkaError as error:
            _log.debug("cannot unthrottle replicas that are almost in sync: %s", error)
        # A check of thousands of replicas loads the brokers: spend at most half of the time on it.
        await asyncio.sleep(max(pause, clock() - began))


class _Rest(NamedTuple):
    """The bytes that a replica lacks, and the brokers of its leader and its own."""

    nbytes: int
    replica: tuple[TopicPartition, int]
    nodes: tuple[int, int]


class EarlyUnthrottling:
    """Selects the replicas of ``moves`` to unthrottle from successive measurements. The caller adds
    those that it has unthrottled to :attr:`unthrottled`."""

    def __init__(self, moves: Mapping[TopicPartition, Move]) -> None:
        self.unthrottled: set[tuple[TopicPartition, int]] = set()
        self._moves = moves
        self._saved: dict[int, float] = {}
        """The bytes that may be unthrottled now, by broker."""
        self._at: float | None = None

    def due(self, now: Measurements) -> list[tuple[TopicPartition, int]]:
        """The replicas to unthrottle now."""
        passed = 0.0 if self._at is None else now.at - self._at
        self._at = now.at
        most = {node: rate * SHARE * _SAVED_S for node, rate in now.rates.items()}
        self._saved = {
            node: min(most[node], self._saved.get(node, most[node]) + rate * SHARE * passed)
            for node, rate in now.rates.items()
        }
        found = []
        for nbytes, replica, both in sorted(self._rests(now)):
            if nbytes > FETCH_BYTES:
                break
            nodes = [node for node in both if node in most]
            # A replica that lacks more than can be saved needs the full savings.
            if all(most[n] > 0 and self._saved[n] >= min(nbytes, most[n]) for n in nodes):
                for node in nodes:
                    self._saved[node] -= nbytes
                found.append(replica)
        return found

    def pause_s(self, now: Measurements) -> float:
        """The seconds until the next check: few if a replica may be due within the usual time."""
        reach = FETCH_BYTES + max(now.rates.values(), default=0) * _INTERVAL_S
        is_close = any(rest.nbytes <= reach for rest in self._rests(now))
        return _SHORT_INTERVAL_S if is_close else _INTERVAL_S

    def _rests(self, now: Measurements) -> Iterator[_Rest]:
        """What each throttled replica lacks that exists and is not in sync."""
        for (partition, node), lag in now.lags.items():
            leader, isr = now.partitions[partition].leader, now.partitions[partition].isr
            whole, own = (now.sizes.get(at, {}).get(partition) for at in (leader, node))
            replica = partition, node
            if whole is None or own is None or node in isr:
                continue
            if partition in self._moves and replica not in self.unthrottled:
                nbytes = lacking(whole, own, lag, now.records[partition])
                yield _Rest(nbytes, replica, (leader, node))


def lacking(whole: int, own: int, lag: int, records: int) -> int:
    """The bytes that a replica lacks. ``whole`` and ``records`` are the bytes and records on the
    leader, ``own`` the bytes and ``lag`` the missing records of the replica.

    Sizes on disk are exact for records of any size. But retention deletes segments from the
    leader's disk minutes earlier, so an estimate by records is used if it is much larger.
    """
    by_records = whole * lag // records if records else 0
    return max(whole - own, by_records if by_records > _TRUSTED_LACK else 0)
