from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from typer.testing import CliRunner

from experiments.app import app
from experiments.slow_broker import command as module
from experiments.slow_broker.results import Results, Skipped
from kafkaclient.errors import KafkaError
from kafkaclient.perf.run import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from experiments.slow_broker.plan import Plan


class Instant:
    """An experiment that is over at once."""

    libraries: ClassVar[dict[str, str]] = {}

    plans: list[Plan]
    lost = 0
    error: BaseException | None = None
    skipped: tuple[Skipped, ...] = ()

    def __init__(self, plan: Plan, folder: Path, watcher: object) -> None:
        self.plans.append(plan)
        self._plan, self._folder = plan, folder
        self.results = Results(plan.as_json(), {})

    async def run(self) -> Results:
        self.results.skipped += self.skipped
        for setting in self._plan.settings[:2]:
            self.results.runs.append(
                RunRecord(
                    client=setting.client,
                    setting=setting.name,
                    rate=self._plan.rates[0],
                    linger_ms=5.0,
                    run=1,
                    records=10,
                    seconds=1.0,
                    records_per_s=10.0,
                    mb_per_s=0.1,
                    avg_ms=8.0,
                    p50_ms=8.0,
                    p95_ms=9.0,
                    p99_ms=26.0,
                    p999_ms=26.0,
                    max_ms=26.0,
                    bytes_per_broker=(1_000_000, 3_000_000),
                    lost=self.lost,
                )
            )
        self.results.write(self._folder)
        if self.error is not None:
            raise self.error
        self.results.complete = True
        return self.results


@pytest.fixture
def slow_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run ``slow-broker --out tmp_path/out`` with further words."""
    Instant.plans = []
    monkeypatch.setattr(module, "Experiment", Instant)

    def run(*words: str) -> Result:
        given = ["slow-broker", "--out", str(tmp_path / "out"), *words]
        return CliRunner().invoke(app, given)

    return run


def test_what_was_asked_for_is_done_and_shown(
    slow_broker: Callable[..., Result], tmp_path: Path
) -> None:
    result = slow_broker(
        *("--rates", "100,200", "--delay-ms", "7", "--brokers", "4", "--partitions", "8"),
        *("--peers", "java", "--repeat", "3", "--seconds", "2", "--record-size", "99"),
        *("--settings", "default,java:adaptive linger 5"),
    )
    assert result.exit_code == 0, result.output
    (plan,) = Instant.plans
    assert (plan.rates, plan.delay_ms, plan.brokers, plan.partitions) == ((100, 200), 7, 4, 8)
    assert (plan.repeat, plan.seconds, plan.record_size) == (3, 2, 99)
    assert [setting.label for setting in plan.settings] == [
        "kafkaclient: default",
        "java: adaptive linger 5",
    ]
    for text in ("100 records/s", "default", "adaptive linger 5", "1.0 / 3.0", "0.25", "26.0"):
        assert text in result.stdout
    assert (tmp_path / "out" / "summary.json").exists()
    assert (tmp_path / "out" / "report.html").exists()


def test_an_object_store_makes_every_broker_late(
    slow_broker: Callable[..., Result], tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["object-store", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    (plan,) = Instant.plans
    assert plan.all_late
    assert (plan.delay_ms, plan.seconds) == (400, 10)
    assert {setting.client for setting in plan.settings} == {
        "kafkaclient",
        *("java", "franz-go", "aiokafka", "confluent"),
    }
    assert "all brokers late" in result.stdout
    assert "Every broker answers each Produce request 400 ms late" in (
        tmp_path / "out" / "report.html"
    ).read_text("utf-8")


def test_json_is_all_that_goes_to_stdout(
    slow_broker: Callable[..., Result], tmp_path: Path
) -> None:
    result = slow_broker("--peers", "none", "--json")
    summary = json.loads(result.stdout)
    assert len(summary["runs"]) == 2
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--peers", "java,kafka-node"), "no peer 'kafka-node'; there are java, franz-go"),
        (("--rates", "fast"), "--rates: records per second"),
        (("--settings", "defualt"), "nothing is named 'defualt'"),
        (("--record-size", "3"), "--record-size must be at least 16"),
        (("--producers", "many"), "--producers: numbers joined by commas"),
        (("--producers", "0"), "--producers: numbers from 1"),
        (("--repeat", "0"), "--repeat must be more than 0"),
    ],
)
def test_a_wrong_option_is_told_before_anything_begins(
    slow_broker: Callable[..., Result], words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    result = slow_broker(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_is_told_before_anything_begins(
    slow_broker: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    result = slow_broker()
    assert result.exit_code == 2
    assert "needs plotly" in result.stderr
    assert "pip install 'kafkaclient[demo]'" in result.stderr
    assert not Instant.plans


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [(KeyboardInterrupt(), 130, "interrupted"), (KafkaError("no Java found"), 1, "no Java found")],
)
def test_what_was_measured_until_it_ended_is_shown(
    slow_broker: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    status: int,
    told: str,
) -> None:
    monkeypatch.setattr(Instant, "error", error)
    result = slow_broker("--peers", "none")
    assert result.exit_code == status
    assert told in result.stderr
    assert "default" in result.stdout
    assert "ended before it was complete" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("lost", 3, 1),
        ("skipped", (Skipped("java", "adaptive linger 5", "it failed", 2048.0, 1),), 1),
        ("skipped", (Skipped("kafkaclient", "sticky linger 5", "not in this build"),), 0),
    ],
)
def test_the_exit_status_says_whether_all_went_well(
    slow_broker: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: Any,
    status: int,
) -> None:
    monkeypatch.setattr(Instant, name, value)
    result = slow_broker("--peers", "none")
    assert result.exit_code == status
    if name == "skipped":
        assert f"left out: {value[0].client}: {value[0].setting}" in result.stdout


def test_the_report_is_drawn_again_from_the_files(
    slow_broker: Callable[..., Result], tmp_path: Path
) -> None:
    slow_broker("--peers", "none")
    (tmp_path / "out" / "report.html").unlink()
    words = ["report", "--out"]
    assert CliRunner().invoke(app, [*words, str(tmp_path / "out")]).exit_code == 0
    assert (tmp_path / "out" / "report.html").exists()
    result = CliRunner().invoke(app, [*words, str(tmp_path)])
    assert result.exit_code == 2
    assert "does not hold the results" in result.stderr


def test_the_help_has_examples() -> None:
    result = CliRunner().invoke(app, ["slow-broker", "--help"])
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert "--peers none --repeat 3" in " ".join(result.stdout.replace("│", " ").split())
