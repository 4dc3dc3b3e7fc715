"""What the faults do to a driver and to brokers, and what is told of drivers that end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from experiments.spark_chaos.schedule import Fault, FaultKind
from experiments.spark_chaos.strikes import Strikes, ledger_name
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from pathlib import Path


class Recorder:
    """Stands for a cluster and a driver: remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.status: int | None = None
        self.last_words = "ValueError: broken"

    def start(self) -> None:
        self.status = None
        self.calls.append("start")

    def kill(self, broker: int | None = None) -> Any:
        self.calls.append("kill" if broker is None else f"kill {broker}")
        return _Done()

    def pause(self, broker: int | None = None) -> Any:
        self.calls.append("pause" if broker is None else f"pause {broker}")
        return _Done()

    def resume(self, broker: int | None = None) -> Any:
        self.calls.append("resume" if broker is None else f"resume {broker}")
        return _Done()

    async def start_broker(self, broker: int) -> None:
        raise KafkaError(f"broker {broker} did not start")

    async def heal(self) -> None:
        self.calls.append("heal")


class _Done:
    """Can be awaited, and need not be."""

    def __await__(self) -> Any:
        return iter(())


async def strike(*kinds: FaultKind) -> tuple[Recorder, Strikes]:
    recorder: Any = Recorder()
    faults = [Fault(at=0.01 * n, kind=kind, which=2, seconds=0.0) for n, kind in enumerate(kinds)]
    strikes = Strikes(recorder, recorder, recorder, (), lambda: None, faults, lambda _: None)
    await strikes.run()
    return recorder, strikes


async def test_a_driver_is_killed_and_started_again() -> None:
    recorder, strikes = await strike(FaultKind.DRIVER_KILL)
    assert recorder.calls == ["kill", "start", "heal"]
    assert [each.note for each in strikes.struck] == [""]


async def test_pauses_end() -> None:
    recorder, _ = await strike(FaultKind.DRIVER_PAUSE)
    assert recorder.calls == ["pause", "resume", "heal"]
    recorder, _ = await strike(FaultKind.BROKER_PAUSE)
    assert recorder.calls == ["pause 2", "resume 2", "heal"]


async def test_a_fault_that_fails_is_told() -> None:
    recorder, strikes = await strike(FaultKind.BROKER_KILL)
    assert recorder.calls == ["kill 2", "heal"]
    assert [each.note for each in strikes.struck] == ["KafkaError: broker 2 did not start"]


async def test_before_there_is_a_ledger_any_broker_is_the_coordinator() -> None:
    recorder, strikes = await strike(FaultKind.COORDINATOR_PAUSE)
    assert recorder.calls == ["pause 2", "resume 2", "heal"]
    assert strikes.struck[0].note == "no coordinator was known: broker 2 instead"


def test_the_ledger_has_the_query_id_of_the_checkpoint(tmp_path: Path) -> None:
    assert ledger_name(tmp_path, "chaos") is None
    (tmp_path / "metadata").write_text(json.dumps({"id": "1-2"}))
    assert ledger_name(tmp_path, "chaos") == "chaos-1-2"
