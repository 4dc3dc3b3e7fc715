"""Carries a schedule of faults out on a cluster, and keeps account of what was done when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError
from kafkaclient.experiments.chaos import admin
from kafkaclient.experiments.chaos.schedule import NODE_KINDS, Fault, FaultKind
from kafkaclient.experiments.topics import placement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Havoc", "Outage", "Struck", "Target", "down_share"]

_CORRUPTED_BYTE = {-8: 0xFF}
_ELECTION_POLL_S = 0.02
_LEAST_LENGTH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What became of a fault; times are seconds after the load began, None: never."""

    fault: Fault
    began: float | None = None
    ended: float | None = None
    """When all was in order again: a broker that was ended is up and in the cluster."""
    note: str = ""
    """Why it did not happen, or not as planned."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self.fault.as_json(),
            "began": self.began,
            "ended": self.ended,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """The topics that leaders are moved in (``fixed`` and ``growing``) and that grow."""

    fixed: Sequence[str]
    growing: Sequence[str]
    partitions: int

    @property
    def topics(self) -> list[str]:
        return [*self.fixed, *self.growing]


@dataclass(slots=True)
class Outage:
    """An outage of all brokers, in seconds after the load began; None: not yet."""

    began: float
    brokers_started: float | None = None
    leaders_elected: float | None = None
    """When every partition had its leader, as another client sees it."""


@dataclass(slots=True)
class Havoc:
    """``await run()`` strikes until ``seconds`` are over, then makes everything well again.

    Faults that take a broker away wait for one another, however long a restart takes; one that
    would begin too late is left out. ``say(text)`` hears of each fault. ``clock`` is monotonic.
    """

    cluster: ClusterHandle
    faults: Sequence[Fault]
    seconds: float
    target: Target
    begins_at: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    struck: list[Struck] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    _away: set[int] = field(default_factory=set)
    _partitions: int = 0

    def __post_init__(self) -> None:
        self._partitions = self.target.partitions

    def now(self) -> float:
        return self.clock() - self.begins_at

    async def run(self) -> None:
        nodes = [f for f in self.faults if f.kind in NODE_KINDS or f.kind is FaultKind.OUTAGE]
        minor = [f for f in self.faults if f not in nodes]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._one_by_one(nodes))
            for fault in minor:
                tasks.create_task(self._strike(fault, self._minor(fault)))
        await self.cluster.heal()
        self.struck.sort(key=lambda struck: struck.fault.at)

    async def _one_by_one(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            left = self.seconds - max(self.now(), fault.at)
            if left < _LEAST_LENGTH_S:
                note = "left out: the broker before was not back in time"
                self.struck.append(Struck(fault=fault, note=note))
            elif fault.kind is FaultKind.OUTAGE:
                await self._strike(fault, self._outage(fault))
            else:
                await self._strike(fault, self._take_away(fault))

    async def _strike(self, fault: Fault, doing: Coroutine[Any, Any, None]) -> None:
        await asyncio.sleep(fault.at - self.now())
        began, note = round(self.now(), 3), ""
        self.say(_told(fault))
        try:
            await doing
        except (KafkaError, OSError, TimeoutError) as error:
            note = f"{type(error).__name__}: {error}"
            self.say(f"{_told(fault)}: {note}")
        ended = round(self.now(), 3)
        self.struck.append(Struck(fault=fault, began=began, ended=ended, note=note))

    # --- brokers --------------------------------------------------------------------------------

    async def _take_away(self, fault: Fault) -> None:
        cluster, broker = self.cluster, fault.broker
        self._away.add(broker)
        try:
            if fault.kind is FaultKind.PAUSE:
                await cluster.pause(broker)
                await asyncio.sleep(fault.seconds)
                await cluster.resume(broker)
                return
            if fault.kind is FaultKind.KILL:
                await cluster.kill(broker)
            else:
                await cluster.terminate(broker)
            await asyncio.sleep(fault.seconds)
            await cluster.start_broker(broker)
        finally:
            self._away.discard(broker)

    async def _outage(self, fault: Fault) -> None:
        cluster, brokers = self.cluster, self.cluster.brokers
        outage = Outage(began=self.now())
        self.outages.append(outage)
        self._away |= set(brokers)
        await asyncio.gather(*(cluster.kill(broker) for broker in brokers))
        await asyncio.sleep(fault.seconds)
        watching = asyncio.create_task(self._elected())
        await asyncio.gather(*(cluster.start_broker(broker, wait=False) for broker in brokers))
        outage.brokers_started = self.now()
        outage.leaders_elected = await watching
        self._away.clear()
        await cluster.heal()

    async def _elected(self) -> float:
        """When some broker first tells of a leader for every partition."""
        while True:
            for broker in self.cluster.brokers:
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    found = await admin.leaders(self.cluster.address(broker), self.target.topics)
                    if found and min(found.values()) >= 0:
                        return self.now()
            await asyncio.sleep(_ELECTION_POLL_S)

    # --- connections, bytes, leaders, partitions ------------------------------------------------

    async def _minor(self, fault: Fault) -> None:
        proxy = self.cluster.proxy(max(fault.broker, 0))
        once: dict[FaultKind, Callable[[], Awaitable[object]]] = {
            FaultKind.CUT: proxy.cut,
            FaultKind.CUT_BEFORE: proxy.cut_before,
            FaultKind.CUT_AFTER: proxy.cut_after,
            FaultKind.CORRUPT: lambda: proxy.corrupt_request(_CORRUPTED_BYTE),
            FaultKind.MOVE_LEADERS: lambda: self._move_leaders(int(fault.amount)),
            FaultKind.GROW: lambda: self._grow(int(fault.amount)),
        }
        if fault.kind is not FaultKind.DELAY:
            await once[fault.kind]()
            return
        await proxy.round_trip(fault.amount)
        await asyncio.sleep(fault.seconds)
        await proxy.round_trip(0)

    async def _move_leaders(self, places: int) -> None:
        brokers = self.cluster.brokers
        replicas = {
            partition: [nodes[(place + places) % len(nodes)] for place in range(len(nodes))]
            for partition, nodes in placement(brokers, self.target.partitions, 3).items()
        }
        address = self._anybody()
        topics = self.target.topics
        await admin.reassign(address, dict.fromkeys(topics, replicas))
        await admin.elect_preferred(address, dict.fromkeys(topics, tuple(replicas)))

    async def _grow(self, more: int) -> None:
        partitions = self._partitions + more
        await admin.add_partitions(self._anybody(), dict.fromkeys(self.target.growing, partitions))
        self._partitions = partitions

    def _anybody(self) -> tuple[str, int]:
        """A broker that no fault has taken away."""
        there = [broker for broker in self.cluster.brokers if broker not in self._away]
        if not there:
            raise KafkaError("every broker is away")
        return self.cluster.address(there[-1])


def down_share(struck: Sequence[Struck], seconds: float) -> float:
    """For which part of the time some broker was away, 0 to 1; starting counts."""
    kinds = (*NODE_KINDS, FaultKind.OUTAGE)
    away = sum(
        min(hit.ended, seconds) - hit.began
        for hit in struck
        if hit.fault.kind in kinds and hit.began is not None and hit.ended is not None
    )
    return away / seconds


def _told(fault: Fault) -> str:
    """The fault for a reader."""
    where = f" broker {fault.broker}" if fault.broker >= 0 else ""
    how_long = f" for {fault.seconds:.1f} s" if fault.seconds else ""
    return f"{fault.at:7.1f} s {fault.kind}{where}{how_long}"
