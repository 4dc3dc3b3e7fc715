from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from experiments.chaos.fault_runner import Outage, Struck
from experiments.chaos.ledger import Verdict
from experiments.chaos.outcomes import Outcome
from experiments.chaos.plan import Plan
from experiments.chaos.report import timeline, write_report
from experiments.chaos.results import ClientResult, Latencies, Results, resources
from experiments.chaos.schedule import Fault, FaultKind
from experiments.chaos.streams import Stream
from experiments.chaos.worker import Sample
from experiments.machine import machine_facts

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = [Stream(0, "unkeyed", 0), Stream(0, "keyed", 0)]


def latencies() -> Latencies:
    outcomes = [Outcome(0, n, True, n / 100, 5.0, 0, n) for n in range(100)]  # cold
    outcomes += [Outcome(0, n, True, n / 100, 0.01, 0, n) for n in range(100, 990)]
    outcomes += [Outcome(0, n, True, n / 100, 2.0, 0, n) for n in range(990, 1000)]
    outcomes += [Outcome(1, 0, True, 1.5, 0.1, 0, 0), Outcome(1, 1, False, 1.6, 9.0, -1, -1)]
    return Latencies.of(STREAMS, outcomes, 10)


def result(client: str = "kafkaclient", **counts: int) -> ClientResult:
    names = ("sent", "acked", "failed", "unresolved", "lost", "duplicated", "reordered")
    zero = dict.fromkeys((*names, "misplaced", "unexpected"), 0)
    return ClientResult(
        client=client,
        verdict=Verdict(**{**zero, "sent": 1002, "acked": 1002, **counts}),
        latencies=latencies(),
        causes={"NOT_ENOUGH_REPLICAS": counts["failed"]} if "failed" in counts else {},
        first_ack_after=21.5,
    )


def results(*clients: ClientResult) -> Results:
    found = Results(Plan(seconds=10, seed=1).as_json(), machine_facts(kafka="4.3.1"))
    found.clients += clients
    away = Fault(at=1, kind=FaultKind.KILL, broker=2, seconds=3)
    found.struck += [
        Struck(fault=away, began=1.0, ended=6.0),
        Struck(fault=Fault(at=2, kind=FaultKind.CUT, broker=0), began=2.0, ended=2.1),
        Struck(fault=Fault(at=9, kind=FaultKind.PAUSE, broker=1, seconds=4), note="left out"),
    ]
    return found


def test_latencies_are_of_the_acknowledged_by_kind_and_over_time() -> None:
    found = latencies()
    assert found.ms["unkeyed"]["p50"] == pytest.approx(10, rel=0.01)
    assert found.ms["unkeyed"]["p999"] == pytest.approx(2000, rel=0.01)
    assert found.ms["unkeyed"]["max"] == pytest.approx(2000, rel=0.01), "without the first second"
    assert found.ms["keyed"]["max"] == pytest.approx(100, rel=0.01)
    assert found.timeline["unkeyed"] == pytest.approx([5000.0] + [10.0] * 8 + [2000.0])
    assert found.timeline["keyed"][:3] == [None, pytest.approx(100), None]


def test_the_summary_has_what_was_asked_for(tmp_path: Path) -> None:
    found = results(result(), result("confluent", lost=3, failed=2))
    found.outages.append(Outage(began=2.0, brokers_started=19.0, leaders_elected=20.25))
    found.write(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for name in ("acked", "lost", "duplicated", "reordered", "failed", "unresolved"):
        assert name in summary
    assert summary["complete"]
    assert (summary["acked"], summary["lost"], summary["failed"]) == (1002, 0, {})
    assert set(summary["latency_ms"]["unkeyed"]) == {"p50", "p99", "p999", "max"}
    assert summary["peers"]["confluent"]["lost"] == 3
    assert summary["peers"]["confluent"]["failed"] == {"NOT_ENOUGH_REPLICAS": 2}
    assert summary["down_share"] == 0.5
    assert summary["outages"][0]["first_ack_after_leaders_s"] == 1.25
    assert [fault["began"] for fault in summary["faults"]] == [1.0, 2.0, None]
    assert not Results({"seconds": 1}).as_json()["complete"]


@pytest.mark.parametrize(
    "wrong", ["lost", "duplicated", "reordered", "failed", "unresolved", "misplaced", "unexpected"]
)
def test_one_record_gone_wrong_is_not_clean(wrong: str) -> None:
    assert result().is_clean
    assert not result(**{wrong: 1}).is_clean


def samples(*rss_mb: float, tasks: int = 9, files: int = 9) -> list[Sample]:
    return [
        Sample(float(at), 0, 0, 0, int(mb * 2**20), tasks, files) for at, mb in enumerate(rss_mb)
    ]


def test_memory_that_grows_is_not_flat_and_a_peak_is_no_growth() -> None:
    steady = resources(samples(*[50] * 40, 300, *[50] * 60), 100)
    assert steady is not None
    assert steady.flat
    assert steady.rss_mb == (50, 50, 300)
    growing = resources(samples(*(50 + n for n in range(101))), 100)
    assert growing is not None
    assert not growing.flat
    assert growing.as_json()["rss_mb"]["late"] == 132
    leak = samples(*[50] * 80) + [Sample(float(n), 0, 0, 0, 50 << 20, 9, 40) for n in range(80, 99)]
    leaking = resources(leak, 100)
    assert leaking is not None
    assert not leaking.flat
    assert resources([], 100) is None


def test_memory_of_a_backlog_is_no_growth_once_it_has_gone() -> None:
    behind = [
        Sample(float(at), 100, 10 if at % 5 else 100, 0, (250 if at % 5 else 50) << 20, 9, 9)
        for at in range(60, 100)
    ]
    found = resources([*samples(*[50] * 60), *behind], 100)
    assert found is not None
    assert found.flat
    assert found.as_json()["rss_mb"] == {"early": 50, "late": 50, "most": 250}
    assert found.as_json()["waiting"] == {"early": 0, "late": 0, "most": 90}


def test_the_report_shows_clients_faults_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path, results(result(), result("confluent", lost=3)))
    text = (tmp_path / "report.html").read_text()
    assert "verdict good" in text
    assert "kill, broker 2" in text
    assert '<td class="bad">3</td>' in text
    write_report(tmp_path, results(result(lost=1)))
    assert "verdict bad" in (tmp_path / "report.html").read_text()


def test_brokers_away_are_drawn_as_stretches_and_the_rest_as_lines() -> None:
    shapes = timeline(result(), results().struck)["layout"]["shapes"]
    assert [(shape["type"], shape["x0"], shape["x1"]) for shape in shapes] == [
        ("rect", 1.0, 6.0),
        ("line", 2.0, 2.0),
    ]
