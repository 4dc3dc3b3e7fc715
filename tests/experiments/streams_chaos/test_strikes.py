"""Faults strike instances; the cluster and the processes are played."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

from experiments.streams_chaos.schedule import Fault, FaultKind
from experiments.streams_chaos.strikes import Strikes
from kafkaclient.errors import KafkaError


class Played:
    """Notes what is done to it; ``fails`` names what raises."""

    def __init__(self, fails: str = "") -> None:
        self.done: list[Any] = []
        self.fails = fails
        self.ports = {1: 2}
        instance = SimpleNamespace(send_signal=self.done.append, ended=None)
        self.instances = {"instance-0": instance, "instance-1": instance}

    def __getattr__(self, name: str) -> Any:
        async def act(*arguments: Any) -> None:
            if name == self.fails:
                raise KafkaError("no")
            self.done.append((name, *arguments))

        return act

    def stall(self) -> None:
        self.done.append("stall")

    def heal(self) -> Any:
        self.done.append("heal")


async def strike(kind: FaultKind, fails: str = "") -> tuple[list[Any], Strikes]:
    fleet, routes = Played(fails), Played()

    class Cluster(Played):
        async def heal(self) -> None:
            self.done.append("heal cluster")

    cluster = Cluster(fails)
    cluster.done = fleet.done
    routes.done = fleet.done
    fault = Fault(at=0.0, kind=kind, which=1, seconds=0.0)
    strikes = Strikes(cluster, fleet, {"instance-1": routes}, [fault], lambda text: None)  # type: ignore[arg-type, dict-item]
    await strikes.run()
    return fleet.done, strikes


async def test_what_each_fault_does() -> None:
    start = ("start", "instance-1", {1: 2})
    for kind, done in {
        FaultKind.RESTART: [("end", "instance-1", signal.SIGTERM), start],
        FaultKind.KILL: [("end", "instance-1", signal.SIGKILL), start],
        FaultKind.LOSE_DISK: [
            ("end", "instance-1", signal.SIGKILL),
            ("lose_disk", "instance-1"),
            start,
        ],
        FaultKind.PAUSE: [signal.SIGSTOP, signal.SIGCONT],
        FaultKind.CUT_OFF: ["stall", "heal"],
        FaultKind.BROKER_KILL: [("kill", 1), ("start_broker", 1)],
        FaultKind.BROKER_RESTART: [("terminate", 1), ("start_broker", 1)],
        FaultKind.BROKER_PAUSE: [("pause", 1), ("resume", 1)],
    }.items():
        found, strikes = await strike(kind)
        assert found[: len(done)] == done, kind
        assert [(s.fault.kind, s.note) for s in strikes.struck] == [(kind, "")]


async def test_a_fault_that_fails_is_noted() -> None:
    _, strikes = await strike(FaultKind.BROKER_KILL, fails="start_broker")
    assert [s.note for s in strikes.struck] == ["KafkaError: no"]
