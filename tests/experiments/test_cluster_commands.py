"""``python -m experiments replication-quota`` and ``partition-limits``, without brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from typer.testing import CliRunner

from experiments.app import app
from experiments.machine import machine_facts
from experiments.partition_limits import command as partition_limits
from experiments.partition_limits import results as limits
from experiments.replication_quota import command as replication_quota
from experiments.replication_quota import results as quota
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


def moved(**changed: Any) -> quota.MoveResult:
    latency = quota.Latency(records=10, failed=0, p50_ms=1.0, p99_ms=8.5, max_ms=9.0)
    values: dict[str, Any] = {
        "scenario": "two to one",
        "load": 100.0,
        "quota": 10_000_000,
        "inbound": 2_000_000.0,
        "bytes_to_move": 300_000_000,
        "seconds": 40.0,
        "move_time_s": 75.0,
        "expected_s": 43.5,
        "samples": ((0.0, 0), (40.0, 380_000_000)),
        "left": False,
        "quiet": latency,
        "throttled": latency,
        "unthrottled": latency,
    }
    return quota.MoveResult(**{**values, **changed})


def topic(**changed: Any) -> limits.Cell:
    sent = limits.Sent(
        client="kafkaclient", records=9, records_per_s=9.0, mbps=123.4, avg_ms=1.0, p99_ms=2.0
    )
    values: dict[str, Any] = {
        "replication": 3,
        "partitions": 100,
        "topic_partitions": 100,
        "answered_s": 0.5,
        "led_s": 1.5,
        "directories_s": 2.5,
        "sent": (sent,),
        "unknown_s": 0.5,
        "removed_s": 4.5,
    }
    return limits.Cell(**{**values, **changed})


class Instant:
    """An experiment that is over at once."""

    libraries: ClassVar[dict[str, str]] = {}

    plans: list[Any]
    found: list[Any]
    complete: bool
    error: KafkaError | None

    def __init__(self, plan: Any, folder: Path, _watcher: object) -> None:
        self.plans.append(plan)
        self._folder = folder
        kind: Any = quota.Results if hasattr(plan, "quota") else limits.Results
        self.results = kind(plan.as_json(), machine_facts())

    async def run(self) -> None:
        if self.error is not None:
            raise self.error
        found = getattr(self.results, "runs", None)
        (self.results.cells if found is None else found).extend(self.found)
        self.results.complete = self.complete
        self.results.write(self._folder)


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run an experiment into tmp_path, with what it found."""
    Instant.plans, Instant.complete, Instant.error = [], True, None
    for module in (replication_quota, partition_limits):
        monkeypatch.setattr(module, "Experiment", Instant)

    def run(name: str, found: Any, *words: str) -> Result:
        Instant.found = [found]
        return CliRunner().invoke(app, [name, "--out", str(tmp_path), *words])

    return run


def test_moves(experiment, tmp_path: Path) -> None:
    words = ("--quota", "5000000", "--scenarios", "two-to-one", "--seconds", "20")
    result = experiment("replication-quota", moved(), *words)
    assert result.exit_code == 0, result.output
    (plan,) = Instant.plans
    assert (plan.quota, plan.seconds, [s.name for s in plan.scenarios]) == (
        5_000_000,
        20,
        ["two to one"],
    )
    for text in ("two to one, with load", "7.50", "94%", "43.5", "75.0", "8.5", "1.00"):
        assert text in result.output
    assert (tmp_path / "report.html").exists()


def test_topics(experiment, tmp_path: Path) -> None:
    words = ("--partitions", "100", "--replication", "3", "--no-java")
    result = experiment("partition-limits", topic(), *words)
    assert result.exit_code == 0, result.output
    (plan,) = Instant.plans
    assert (plan.partitions, plan.replication, plan.java) == ((100,), (3,), False)
    for text in ("123.4", "KIP-578", "101.0", "0.5", "1.5", "2.5", "4.5"):
        assert text in result.output
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "found"), [("replication-quota", moved()), ("partition-limits", topic())]
)
def test_json_is_the_summary(experiment, tmp_path: Path, name: str, found: Any) -> None:
    result = experiment(name, found, "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "summary.json").read_text())


@pytest.mark.parametrize(
    ("name", "found", "words", "code"),
    [
        ("replication-quota", moved(left=True), (), 1),
        ("replication-quota", moved(), ("--quota", "1000"), 2),
        ("replication-quota", moved(), ("--scenarios", "three-to-one"), 2),
        ("partition-limits", topic(failures=("java: it ended",)), (), 1),
        ("partition-limits", topic(), ("--partitions", "none"), 2),
        ("partition-limits", topic(), ("--replication", "5"), 2),
    ],
)
def test_the_exit_status_tells_how_it_went(
    experiment, name: str, found: Any, words: tuple[str, ...], code: int
) -> None:
    assert experiment(name, found, *words).exit_code == code


def test_what_is_missing_and_what_ends_it(experiment) -> None:
    Instant.complete = False
    assert experiment("partition-limits", topic()).exit_code == 1
    Instant.error = KafkaError("no brokers")
    result = experiment("replication-quota", moved())
    assert result.exit_code == 1
    assert "no brokers" in result.output
