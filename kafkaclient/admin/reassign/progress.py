"""Computes the progress of reassignments, and why some of them are stuck. No I/O.

KIP-73 tells administrators to watch SumReplicaLag, a metric that no release has. Here it is the sum
over the log end offsets of all replicas. Sizes on disk give the rate and the remaining time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.reassign.estimate import FETCH_RESPONSE_BYTES, Sizes, shown, size_of
from kafkaclient.admin.reassign.plan import Move, current_move, new_brokers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment
    from kafkaclient.wire.api import PartitionView

_RATE_WINDOW_S = 10.0  # seconds over which rates are averaged
_STALL_S = 30.0  # seconds without new bytes after which a broker counts as stalled


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements of a cluster at one time; ``at`` is in seconds of any clock."""

    at: float
    live: frozenset[int]
    ongoing: Mapping[TopicPartition, OngoingReassignment]
    partitions: Mapping[TopicPartition, PartitionView]
    sizes: Sizes
    lags: Mapping[tuple[TopicPartition, int], int]
    """The number of records that each new replica lacks, by partition and broker."""
    records: Mapping[TopicPartition, int]
    """The number of records on the leader of each partition that has a new replica."""
    rates: Mapping[int, int]
    """The follower quota of each broker; a broker without an entry has no quota."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """The brokers that are up but did not answer, with the error."""


class PartitionProgress(NamedTuple):
    """The progress of one partition."""

    partition: TopicPartition
    move: Move
    lag: int
    """The number of records that its new replicas lack in total."""
    bytes_done: int
    bytes_total: int
    done: bool
    stuck: str | None
    """Why the reassignment makes no progress; None while it does."""
    cancelled: bool = False
    """Whether the reassignment is over, and a new replica is not there."""


class BrokerProgress(NamedTuple):
    """The progress of one destination broker."""

    node_id: int
    lag: int
    bytes_left: int
    rate: float
    """The growth of its new replicas in bytes per second, over the last ten seconds."""
    quota: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of reassignments at one time."""

    partitions: tuple[PartitionProgress, ...]
    brokers: tuple[BrokerProgress, ...]
    time_left_s: float | None
    """Seconds left at the current rate of the slowest broker; None if it receives no bytes."""

    @property
    def sum_replica_lag(self) -> int:
        """The number of records that all new replicas lack."""
        return sum(each.lag for each in self.partitions)

    @property
    def bytes_done(self) -> int:
        return sum(each.bytes_done for each in self.partitions)

    @property
    def bytes_total(self) -> int:
        return sum(each.bytes_total for each in self.partitions)

    @property
    def done(self) -> int:
        """The number of completed partitions, without cancelled ones."""
        return sum(each.done and not each.cancelled for each in self.partitions)

    @property
    def cancelled(self) -> int:
        """The number of partitions whose reassignment was cancelled."""
        return sum(each.cancelled for each in self.partitions)

    @property
    def rate(self) -> float:
        """Bytes per second of all brokers in total."""
        return sum(each.rate for each in self.brokers)

    @property
    def finished(self) -> bool:
        return all(each.done for each in self.partitions)

    @property
    def stuck(self) -> tuple[PartitionProgress, ...]:
        return tuple(each for each in self.partitions if each.stuck)


@dataclass(slots=True)
class _NewReplica:
    """The progress of one new replica, or the sum over several."""

    done: int = 0
    total: int = 0
    lag: int = 0


class Tracker:
    """Computes the progress from successive readings."""

    def __init__(self, moves: Mapping[TopicPartition, Move] | None = None) -> None:
        """Track ``moves``, or if None all reassignments that a reading contains."""
        self.moves = dict(moves or {})
        self._all = moves is None
        self._replicas: dict[tuple[TopicPartition, int], _NewReplica] = {}
        self._received: dict[int, deque[tuple[float, int]]] = {}
        self._progressed: dict[int, tuple[float, int]] = {}
        self._written: dict[int, tuple[float, int]] = {}

    def take(self, reading: Measurements) -> Progress:
        if self._all:
            for partition, ongoing in reading.ongoing.items():
                self.moves[partition] = current_move(ongoing)
        for partition, move in self.moves.items():
            self._note(partition, move, reading)
        nodes = sorted({node for _, node in self._replicas})
        brokers = tuple(self._broker(node, reading) for node in nodes)
        stalled = {node: why for node in nodes if (why := self._stall(node, reading))}
        partitions = tuple(
            self._partition(partition, move, reading, stalled)
            for partition, move in sorted(self.moves.items())
        )
        return Progress(partitions, brokers, _time_left(brokers))

    def _note(self, partition: TopicPartition, move: Move, reading: Measurements) -> None:
        view = reading.partitions.get(partition)
        total = 0 if view is None else size_of(partition, view.leader, reading.sizes)
        for node in new_brokers(move):
            known = self._replicas.setdefault((partition, node), _NewReplica())
            known.total = max(known.total, total)
            if partition not in reading.ongoing:
                known.lag = 0
                if view is None or node in view.replicas:  # else cancelled
                    known.done = known.total
                continue
            size = reading.sizes.get(node, {}).get(partition, 0)
            known.done = min(known.total, max(known.done, size))
            known.lag = reading.lags.get((partition, node), known.lag)

    def _sum_of(self, node: int) -> _NewReplica:
        return _sum(replica for (_, at), replica in self._replicas.items() if at == node)

    def _broker(self, node: int, reading: Measurements) -> BrokerProgress:
        own = self._sum_of(node)
        history = self._received.setdefault(node, deque())
        history.append((reading.at, own.done))
        # Keep one entry that is at least as old as the window.
        while len(history) > 2 and reading.at - history[1][0] >= _RATE_WINDOW_S:
            history.popleft()
        seconds = reading.at - history[0][0]
        rate = (own.done - history[0][1]) / seconds if seconds > 0 else 0.0
        return BrokerProgress(node, own.lag, own.total - own.done, rate, reading.rates.get(node))

    def _stall(self, node: int, reading: Measurements) -> str | None:
        """Why a broker receives no bytes; None if it does, or has not been stalled for long."""
        own = self._sum_of(node)
        since, most = self._progressed.get(node, (reading.at, -1))
        if own.done > most:
            self._progressed[node] = since, most = reading.at, own.done
            self._written[node] = (reading.at, own.total)
        quota = reading.rates.get(node)
        stall_s = _STALL_S
        if quota:
            # After a large fetch response a low quota pauses replication for a long time.
            stall_s = max(stall_s, 4 * FETCH_RESPONSE_BYTES / quota)
        seconds = reading.at - since
        if seconds < stall_s:
            return None
        stalled = f"broker {node} has received nothing for {seconds:.0f} s"
        if quota == 0:
            return f"{stalled}: its quota is 0, set a larger quota"
        began, was = self._written[node]
        written = (own.total - was) / (reading.at - began)
        if quota is not None and written >= quota:
            return (
                f"{stalled}: producers write {shown(written)}/s to the partitions that move there, "
                f"and its quota is {shown(quota)}/s: raise the quota"
            )
        hint = "" if quota is None else f"; a quota above {shown(quota)}/s may help"
        return f"{stalled}: check the logs of the brokers{hint}"

    def _partition(
        self,
        partition: TopicPartition,
        move: Move,
        reading: Measurements,
        stalled: Mapping[int, str],
    ) -> PartitionProgress:
        new = new_brokers(move)
        own = _sum(self._replicas[partition, node] for node in new)
        done = partition not in reading.ongoing
        stuck = None if done else _reason(partition, new, reading, stalled)
        view = reading.partitions.get(partition)
        cancelled = done and view is not None and not new <= set(view.replicas)
        return PartitionProgress(
            partition, move, own.lag, own.done, own.total, done, stuck, cancelled
        )


def _sum(replicas: Iterable[_NewReplica]) -> _NewReplica:
    total = _NewReplica()
    for each in replicas:
        total.done, total.total = total.done + each.done, total.total + each.total
        total.lag += each.lag
    return total


def _reason(
    partition: TopicPartition,
    new: frozenset[int],
    reading: Measurements,
    stalled: Mapping[int, str],
) -> str | None:
    view = reading.partitions.get(partition)
    if view is None:
        return "the topic no longer exists"
    down = sorted(new - reading.live)
    if down:
        return f"broker {', '.join(map(str, down))} is down"
    if view.leader < 0:
        nodes = ", ".join(map(str, view.replicas))
        return f"it has no leader: none of its replicas ({nodes}) can lead it"
    for node in (view.leader, *sorted(new)):
        if node in reading.silent:
            return f"broker {node} does not say how far it is: {reading.silent[node]}"
    waiting = sorted(new - frozenset(view.isr))
    if waiting and all(node in stalled for node in waiting):
        return stalled[waiting[0]]
    return None


def _time_left(brokers: tuple[BrokerProgress, ...]) -> float | None:
    waiting = [broker for broker in brokers if broker.bytes_left]
    if any(broker.rate <= 0 for broker in waiting):
        return None
    return max((broker.bytes_left / broker.rate for broker in waiting), default=0.0)
