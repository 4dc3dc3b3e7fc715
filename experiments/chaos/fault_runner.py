"""Makes the faults of a schedule happen to a cluster, and records when each did."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.chaos import admin
from experiments.chaos.schedule import NODE_KINDS, Fault, FaultKind
from experiments.topics import placement
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["FaultRunner", "Outage", "Struck", "Target", "down_share"]

_CORRUPTED_BYTE = {-8: 0xFF}
_ELECTION_POLL_S = 0.02
_LEAST_LENGTH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault as it happened; times are seconds after the load began, None: it did not happen."""

    fault: Fault
    began: float | None = None
    ended: float | None = None
    """When the fault was over: a broker that was ended is in the cluster again."""
    note: str = ""
    """Why the fault did not happen, or not as planned."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self.fault.as_json(),
            "began": self.began,
            "ended": self.ended,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """The topics of the campaign. Leaders move in all of them; ``growing`` ones get partitions."""

    fixed: Sequence[str]
    growing: Sequence[str]
    partitions: int

    @property
    def topics(self) -> list[str]:
        return [*self.fixed, *self.growing]


@dataclass(slots=True)
class Outage:
    """An outage of all brokers; times are seconds after the load began, None: not yet."""

    began: float
    brokers_started: float | None = None
    leaders_elected: float | None = None
    """When a broker first reported a leader for every partition."""


@dataclass(slots=True)
class FaultRunner:
    """``await run()`` makes the faults happen, then heals the cluster.

    A fault that takes a broker away waits until the last such fault is over, and is left out if it
    would begin too late. ``say(text)`` is called for each fault. ``clock`` is monotonic.
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
                note = "left out: the last broker that was taken away was not back in time"
                self.struck.append(Struck(fault=fault, note=note))
            elif fault.kind is FaultKind.OUTAGE:
                await self._strike(fault, self._outage(fault))
            else:
                await self._strike(fault, self._take_away(fault))

    async def _strike(self, fault: Fault, doing: Coroutine[Any, Any, None]) -> None:
        await asyncio.sleep(fault.at - self.now())
        began, note = round(self.now(), 3), ""
        self.say(_line(fault))
        try:
            await doing
        except (KafkaError, OSError, TimeoutError) as error:
            note = f"{type(error).__name__}: {error}"
            self.say(f"{_line(fault)}: {note}")
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
        """The time when a broker first reports a leader for every partition."""
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
        address = self._address()
        topics = self.target.topics
        await admin.reassign(address, dict.fromkeys(topics, replicas))
        await admin.elect_preferred(address, dict.fromkeys(topics, tuple(replicas)))

    async def _grow(self, more: int) -> None:
        partitions = self._partitions + more
        await admin.add_partitions(self._address(), dict.fromkeys(self.target.growing, partitions))
        self._partitions = partitions

    def _address(self) -> tuple[str, int]:
        """The address of a broker that no fault has taken away."""
        up = [broker for broker in self.cluster.brokers if broker not in self._away]
        if not up:
            raise KafkaError("every broker is down")
        return self.cluster.address(up[-1])


def down_share(struck: Sequence[Struck], seconds: float) -> float:
    """The share of the time, 0 to 1, in which a broker was down or starting."""
    kinds = (*NODE_KINDS, FaultKind.OUTAGE)
    away = sum(
        min(hit.ended, seconds) - hit.began
        for hit in struck
        if hit.fault.kind in kinds and hit.began is not None and hit.ended is not None
    )
    return away / seconds


def _line(fault: Fault) -> str:
    """The fault as a line for the user."""
    where = f" broker {fault.broker}" if fault.broker >= 0 else ""
    how_long = f" for {fault.seconds:.1f} s" if fault.seconds else ""
    return f"{fault.at:7.1f} s {fault.kind}{where}{how_long}"
