"""Faults carried out on a cluster made up, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from experiments.chaos import fault_runner as module
from experiments.chaos.fault_runner import FaultRunner, Struck, Target, down_share
from experiments.chaos.schedule import Fault, FaultKind, schedule
from kafkaclient.errors import KafkaError
from kafkaclient.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

_START_S = 6.0


class Proxy:
    def __init__(self, cluster: Cluster, broker: int) -> None:
        self._cluster, self._broker = cluster, broker

    def __getattr__(self, name: str) -> Any:
        return partial(self._cluster.note, f"{name} {self._broker}")


class Cluster:
    """Notes what is done to it, and how many brokers are away at a time."""

    def __init__(self, brokers: int) -> None:
        self.brokers = tuple(range(brokers))
        self.events: list[tuple[float, str]] = []
        self.away: set[int] = set()
        self.most_away = 0

    async def note(self, what: str, *details: Any) -> None:
        now = round(asyncio.get_running_loop().time(), 2)
        self.events.append((now, " ".join([what, *map(str, details)])))

    async def _leave(self, how: str, broker: int) -> None:
        self.away.add(broker)
        self.most_away = max(self.most_away, len(self.away))
        await self.note(f"{how} {broker}")

    async def kill(self, broker: int) -> None:
        await self._leave("kill", broker)

    async def terminate(self, broker: int) -> None:
        await self._leave("terminate", broker)

    async def pause(self, broker: int) -> None:
        await self._leave("pause", broker)

    async def resume(self, broker: int) -> None:
        self.away.discard(broker)
        await self.note(f"resume {broker}")

    async def start_broker(self, broker: int, *, wait: bool = True) -> None:
        await self.note(f"start {broker}")
        if wait:
            await asyncio.sleep(_START_S)
        self.away.discard(broker)

    async def heal(self) -> None:
        self.away.clear()
        await self.note("heal")

    def proxy(self, broker: int) -> Proxy:
        return Proxy(self, broker)

    def address(self, broker: int) -> tuple[str, int]:
        return "127.0.0.1", broker


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(3)

    async def asked(what: str, address: tuple[str, int], arguments: Any) -> None:
        assert address[1] not in made.away
        await made.note(what, arguments)

    for name in ("reassign", "elect_preferred", "add_partitions"):
        monkeypatch.setattr(module.admin, name, partial(asked, name))
    return made


def strike(cluster: Cluster, faults: Sequence[Fault], seconds: float = 60) -> FaultRunner:
    made: list[FaultRunner] = []

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        runner = FaultRunner(
            cluster,  # type: ignore[arg-type]
            faults,
            seconds,
            Target(fixed=["fixed"], growing=["growing"], partitions=2),
            clock(),
            lambda _text: None,
            clock,
        )
        made.append(runner)
        await runner.run()

    run_virtual(main())
    return made[0]


def test_brokers_leave_and_come_back_at_their_times(cluster: Cluster) -> None:
    runner = strike(
        cluster,
        [
            Fault(at=1, kind=FaultKind.KILL, broker=1, seconds=2),
            Fault(at=15, kind=FaultKind.PAUSE, broker=0, seconds=4),
            Fault(at=30, kind=FaultKind.TERMINATE, broker=2, seconds=3),
        ],
    )
    assert cluster.events == [
        (1, "kill 1"),
        (3, "start 1"),
        (15, "pause 0"),
        (19, "resume 0"),
        (30, "terminate 2"),
        (33, "start 2"),
        (39, "heal"),
    ]
    assert [(hit.began, hit.ended) for hit in runner.struck] == [(1, 9), (15, 19), (30, 39)]
    assert down_share(runner.struck, 60) == pytest.approx((8 + 4 + 9) / 60)


def test_one_that_is_late_keeps_the_next_waiting_and_the_last_out(cluster: Cluster) -> None:
    faults = [
        Fault(at=0, kind=FaultKind.KILL, broker=0, seconds=5),
        Fault(at=6, kind=FaultKind.KILL, broker=1, seconds=5),
        Fault(at=12, kind=FaultKind.KILL, broker=2, seconds=5),
    ]
    runner = strike(cluster, faults, seconds=22)
    assert [hit.began for hit in runner.struck] == [0, 11, None]
    assert "left out" in runner.struck[2].note
    assert cluster.most_away == 1


def test_never_two_brokers_at_once_whatever_the_seed(cluster: Cluster) -> None:
    for seed in range(5):
        strike(cluster, schedule(seed, 120, 3), 120)
    assert cluster.most_away == 1


def test_the_smaller_faults_are_what_they_are_called(cluster: Cluster) -> None:
    kinds = (FaultKind.CUT, FaultKind.CUT_BEFORE, FaultKind.CUT_AFTER, FaultKind.CORRUPT)
    faults = [Fault(at=n, kind=kind, broker=1) for n, kind in enumerate(kinds)]
    faults += [
        Fault(at=4, kind=FaultKind.DELAY, broker=2, seconds=3, amount=0.25),
        Fault(at=8, kind=FaultKind.MOVE_LEADERS, amount=1),
        Fault(at=9, kind=FaultKind.GROW, amount=2),
        Fault(at=10, kind=FaultKind.GROW, amount=2),
    ]
    strike(cluster, faults)
    turned = {0: [1, 2, 0], 1: [2, 0, 1]}
    topics = ["fixed", "growing"]
    assert cluster.events == [
        (0, "cut 1"),
        (1, "cut_before 1"),
        (2, "cut_after 1"),
        (3, "corrupt_request 1 {-8: 255}"),
        (4, "round_trip 2 0.25"),
        (7, "round_trip 2 0"),
        (8, f"reassign {dict.fromkeys(topics, turned)}"),
        (8, f"elect_preferred {dict.fromkeys(topics, (0, 1))}"),
        (9, "add_partitions {'growing': 4}"),
        (10, "add_partitions {'growing': 6}"),
        (10, "heal"),
    ]


def test_a_fault_that_the_cluster_refuses_is_noted_and_the_others_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise KafkaError("no controller")

    monkeypatch.setattr(module.admin, "add_partitions", refused)
    faults = [
        Fault(at=1, kind=FaultKind.GROW, amount=2),
        Fault(at=2, kind=FaultKind.CUT, broker=0),
    ]
    grown, cut = strike(cluster, faults).struck
    assert grown.note == "KafkaError: no controller"
    assert (cut.note, cut.began) == ("", 2)


def test_an_outage_tells_when_another_client_sees_leaders(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leaders(address: tuple[str, int], topics: list[str]) -> dict[tuple[str, int], int]:
        assert topics == ["fixed", "growing"]
        now = asyncio.get_running_loop().time()
        if now < 37:
            raise ConnectionRefusedError
        return {("fixed", 0): 1, ("growing", 0): 0 if now >= 39 else -1}

    monkeypatch.setattr(module.admin, "leaders", leaders)
    runner = strike(cluster, [Fault(at=3, kind=FaultKind.OUTAGE, seconds=30)])
    (outage,) = runner.outages
    assert (outage.began, outage.brokers_started) == (3, 33)
    assert outage.leaders_elected == pytest.approx(39, abs=0.1)
    assert cluster.most_away == 3
    assert runner.struck[0].ended == pytest.approx(39, abs=0.1)


def test_what_never_began_is_told_as_such() -> None:
    fault = Fault(at=1, kind=FaultKind.KILL, broker=0, seconds=3)
    told = Struck(fault=fault, note="left out").as_json()
    assert (told["kind"], told["began"], told["note"]) == ("kill", None, "left out")
    assert down_share([Struck(fault=fault)], 60) == 0
