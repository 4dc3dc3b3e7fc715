from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("matplotlib")

from kafkaclient.experiments import pictures
from kafkaclient.experiments.machine import machine_facts
from kafkaclient.experiments.record import RunRecord
from kafkaclient.experiments.slow_broker.decisions import Decisions, Series
from kafkaclient.experiments.slow_broker.plan import Plan
from kafkaclient.experiments.slow_broker.results import Latencies, Results

if TYPE_CHECKING:
    from pathlib import Path


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


def test_the_command_says_what_it_wrote_or_why_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pictures", str(folder / "results"), str(folder / "out")])
    pictures.main()
    assert len(capsys.readouterr().out.splitlines()) == 3
    monkeypatch.setattr(sys, "argv", ["pictures", str(folder / "nowhere"), str(folder / "out")])
    with pytest.raises(SystemExit, match="does not hold the results"):
        pictures.main()
