"""Makes the faults of a schedule happen, and records when each did."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from experiments.streams_chaos.schedule import BROKER_KINDS, Fault, FaultKind
from experiments.strikes import BaseStrikes
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from experiments.counting.instances import Fleet
    from experiments.counting.routes import Routes
    from experiments.watcher import Watcher
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Strikes", "Struck", "instance_name"]

_LOOK_S = 0.5
_SETTLE_S = 3.0


class Load(Protocol):
    """Sends records until it is stopped."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


def instance_name(number: int) -> str:
    """The name of an instance, which is also the name of its disk."""
    return f"instance-{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that happened; times are seconds since 1970."""

    fault: Fault
    began: float
    ended: float
    """When the instance was started again, or the broker was in the cluster again."""
    note: str = ""
    """What did not go as planned."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self.fault.as_json(),
            "lasted_s": round(self.ended - self.began, 3),
            "note": self.note,
        }


class Strikes(BaseStrikes[Fault, Struck]):
    """``await run()`` makes the faults happen; at its end every instance and broker runs.

    Faults of one instance, and all faults of brokers, wait for each other. An instance that ends by
    itself is started again, as by a supervisor, and noted in ``ended``.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        fleet: Fleet,
        routes: Mapping[str, Routes],
        faults: Sequence[Fault],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(cluster, faults, say)
        self._fleet = fleet
        self._routes = routes

    async def under_load(
        self,
        load: Load,
        watcher: Watcher,
        doing: str,
        *,
        seconds: float,
        aftermath_s: float,
        drain: Callable[[], Awaitable[None]],
    ) -> tuple[float, float]:
        """Send while faults happen for ``seconds``, and ``aftermath_s`` longer; then ``drain()``
        waits for the last records. Returns when the faults began, in seconds since 1970, and how
        long everything took after them."""
        sending = asyncio.create_task(load.run())
        try:
            await asyncio.sleep(_SETTLE_S)
            begins = time.time()
            async with (
                self.supervised(),
                watcher.working(
                    f"{doing} for {seconds:g} s under {len(self._faults)} faults",
                    int(seconds),
                    lambda: min(int(time.time() - begins), int(seconds)),
                ),
            ):
                await self.run()
                await asyncio.sleep(max(0.0, begins + seconds - time.time()))
                healed = time.monotonic()
                await asyncio.sleep(aftermath_s)  # the longest gap may end only now
                load.stop()
                await sending
                self._say("The faults are over; waiting for the last records")
                await drain()
            return begins, time.monotonic() - healed
        finally:
            load.stop()
            await asyncio.gather(sending, return_exceptions=True)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for name, instance in list(self._fleet.instances.items()):
                if (told := instance.ended) is not None and not self._locks[name].locked():
                    async with self._locks[name]:
                        self.ended.append(f"{name}: {told}")
                        self._say(f"{name} ended by itself: {told.splitlines()[-1]}")
                        await self._fleet.end(name, signal.SIGKILL)
                        await self._start(name)

    async def _start(self, name: str) -> None:
        await self._fleet.start(name, self._routes[name].ports)

    async def _strike(self, fault: Fault, begins: float) -> None:
        await asyncio.sleep(begins + fault.at - time.monotonic())
        async with self._locks[self._place(fault)]:
            self._say(f"{fault.kind} {fault.which} for {fault.seconds:.1f} s")
            began, note = time.time(), ""
            try:
                await self._act(fault)
            except (KafkaError, OSError, TimeoutError) as error:
                note = f"{type(error).__name__}: {error}"
                self._say(f"{fault.kind} {fault.which}: {note}")
            self.struck.append(Struck(fault=fault, began=began, ended=time.time(), note=note))

    def _place(self, fault: Fault) -> str:
        """What waits: faults of the same place."""
        return "brokers" if fault.kind in BROKER_KINDS else instance_name(fault.which)

    async def _act(self, fault: Fault) -> None:
        if fault.kind in BROKER_KINDS:
            await self._broker(fault)
        else:
            await self._instance(fault, instance_name(fault.which))

    async def _instance(self, fault: Fault, name: str) -> None:
        fleet, routes = self._fleet, self._routes[name]
        match fault.kind:
            case FaultKind.PAUSE:
                fleet.instances[name].send_signal(signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                fleet.instances[name].send_signal(signal.SIGCONT)
            case FaultKind.CUT_OFF:
                routes.stall()
                await asyncio.sleep(fault.seconds)
                routes.heal()
            case FaultKind.RESTART:
                await fleet.end(name, signal.SIGTERM)
                await asyncio.sleep(fault.seconds)
                await self._start(name)
            case _:
                await fleet.end(name, signal.SIGKILL)
                if fault.kind is FaultKind.LOSE_DISK:
                    await fleet.lose_disk(name)
                await asyncio.sleep(fault.seconds)
                await self._start(name)

    async def _broker(self, fault: Fault) -> None:
        cluster, broker = self._cluster, fault.which
        if fault.kind is FaultKind.BROKER_PAUSE:
            await cluster.pause(broker)
            await asyncio.sleep(fault.seconds)
            await cluster.resume(broker)
            return
        if fault.kind is FaultKind.BROKER_KILL:
            await cluster.kill(broker)
        else:
            await cluster.terminate(broker)
        await asyncio.sleep(fault.seconds)
        await cluster.start_broker(broker)
