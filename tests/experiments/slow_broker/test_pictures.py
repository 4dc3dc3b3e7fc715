from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

pytest.importorskip("matplotlib")

from experiments.app import app
from experiments.machine import machine_facts
from experiments.slow_broker import pictures
from experiments.slow_broker.decisions import Decisions, Series
from experiments.slow_broker.plan import Plan
from experiments.slow_broker.results import Latencies, Results
from kafkaclient.perf.run import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    latencies = [(share, 8.0 + share / 10) for share in (0.0, 50.0, 90.0, 99.0, 99.9)]
    run = RunRecord(
        client="kafkaclient",
        setting="default",
        rate=2048.0,
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
        max_ms=None,
        bytes_per_broker=(1, 2, 3),
    )
    Results(
        Plan(settings=()).as_json(),
        machine_facts(),
        runs=[run],
        latencies=[Latencies("kafkaclient", "default", 2048.0, 1, tuple(latencies))],
    ).write(tmp_path / "results")
    return tmp_path


def test_the_same_results_make_the_same_pictures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = Series([1.0, None], [0.0, 1.0], [1.0, 5.0], [0.2, 0.3])
    drawn = [Decisions("default", [0.5, 1.5], {0: series, 1: series})]
    monkeypatch.setattr(pictures, "recorded_decisions", lambda *_: (drawn, ""))
    first, second = (
        pictures.draw_pictures(folder / "results", folder / name) for name in ("a", "b")
    )
    assert [path.name for path in first] == [
        "latency-2048.svg",
        "distribution-2048.svg",
        "share-2048.svg",
        "decisions.svg",
    ]
    for one, other in zip(first, second, strict=True):
        text = one.read_text("utf-8")
        assert text == other.read_text("utf-8")
        assert "kafkaclient: default" in text or one.name == "decisions.svg"
        assert "fill: #ffffff; stroke" not in text  # no background of its own


def test_the_command_says_what_it_wrote_or_why_not(folder: Path) -> None:
    def run(results: str) -> Result:
        words = ["pictures", str(folder / results), str(folder / "out")]
        return CliRunner().invoke(app, words)

    assert len(run("results").stdout.splitlines()) == 3
    failed = run("nowhere")
    assert failed.exit_code == 2
    assert "does not hold the results" in failed.stderr


def test_one_picture_shows_late_and_stalled_brokers(tmp_path: Path) -> None:
    run = {"during, well": {"acked": 1500}}
    stalled = {
        "options": {"stall": 1.0, "rate": 3000.0, "stalled": 1, "brokers": 3},
        "runs": {"kafkaclient-send": run, "kafkaclient-nowait": {}, "confluent": run},
    }
    pictures.draw_at_a_glance(tmp_path / "a.svg", 2048, {"kafkaclient": 8.0}, stalled)
    text = (tmp_path / "a.svg").read_text("utf-8")
    for words in ("average latency at 2,048/s", "of 2,000", "8.0", "1,500", "not measured"):
        assert words in text
