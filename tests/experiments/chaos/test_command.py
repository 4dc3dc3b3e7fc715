from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from typer.testing import CliRunner

from experiments.app import app
from experiments.chaos import command as module
from experiments.chaos.fault_runner import Outage
from experiments.chaos.ledger import Verdict
from experiments.chaos.results import ClientResult, Latencies, Resources, Results
from experiments.machine import machine_facts
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from experiments.chaos.plan import Plan

FLAT = Resources((50.0, 51.0, 60.0), (9.0, 9.0, 9.0), (9.0, 9.0, 9.0), (5.0, 5.0, 9.0))
GROWN = Resources((50.0, 500.0, 500.0), (9.0, 9.0, 9.0), (9.0, 9.0, 9.0), (5.0, 5.0, 9.0))


class Instant:
    """A campaign that is over at once."""

    libraries: ClassVar[dict[str, str]] = {}

    plans: list[Plan]
    lost = 0
    resources = FLAT
    error: KafkaError | None = None

    def __init__(self, plan: Plan, folder: Path, watcher: object) -> None:
        self.plans.append(plan)
        self._folder = folder
        self.results = Results(plan.as_json(), machine_facts())

    async def run(self) -> None:
        if self.error is not None:
            raise self.error
        counts = dict.fromkeys(
            ("failed", "unresolved", "duplicated", "reordered", "misplaced", "unexpected"), 0
        )
        for client, lost in (("kafkaclient", self.lost), ("confluent", 7)):
            latencies = {"unkeyed": {"p50": 8.0, "p99": 26.5, "p999": 9_000.0, "max": None}}
            self.results.clients.append(
                ClientResult(
                    client=client,
                    verdict=Verdict(sent=1000, acked=1000, lost=lost, **counts),
                    latencies=Latencies(latencies, 1.0, {}),
                    causes={"NOT_ENOUGH_REPLICAS": 3},
                    examples={"NOT_ENOUGH_REPLICAS": "100 records to chaos-0"},
                    resources=self.resources,
                    first_ack_after=31.5,
                )
            )
        self.results.outages.append(Outage(began=5, brokers_started=20, leaders_elected=30.25))
        self.results.write(self._folder)


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run ``chaos --out tmp_path`` with further words."""
    Instant.plans = []
    monkeypatch.setattr(module, "Experiment", Instant)

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["chaos", "--out", str(tmp_path), *words])

    return run


def test_the_tables_show_what_became_of_the_records(
    chaos: Callable[..., Result], tmp_path: Path
) -> None:
    result = chaos("--seconds", "90", "--seed", "4", "--brokers", "5", "--peers", "confluent")
    assert result.exit_code == 0, result.output
    (plan,) = Instant.plans
    assert (plan.seconds, plan.seed, plan.brokers, plan.peers) == (90, 4, 5, ("confluent",))
    assert plan.rate >= 5000
    for text in ("lost", "kafkaclient", "confluent", "26.5", "9,000.0", "1,000"):
        assert text in result.output
    assert "3 failed: NOT_ENOUGH_REPLICAS: 100 records to chaos-0" in result.output
    assert "first acknowledgement 1.25 s after" in result.output
    assert (tmp_path / "report.html").exists()
    assert json.loads((tmp_path / "summary.json").read_text())["lost"] == 0


def test_json_is_the_summary(chaos: Callable[..., Result], tmp_path: Path) -> None:
    result = chaos("--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "summary.json").read_text())


@pytest.mark.parametrize(
    ("attribute", "value", "words", "code"),
    [
        ("lost", 1, (), 1),
        ("resources", GROWN, (), 0),
        ("resources", GROWN, ("--flat",), 1),
        ("resources", None, ("--flat",), 1),
        ("error", KafkaError("no brokers"), (), 1),
        ("lost", 0, ("--brokers", "2"), 2),
        ("lost", 0, ("--peers", "nobody"), 2),
        ("lost", 0, ("--kinds", "none"), 2),
    ],
)
def test_the_exit_status_tells_how_it_went(
    chaos: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    attribute: str,
    value: Any,
    words: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.setattr(Instant, attribute, value)
    assert chaos(*words).exit_code == code
