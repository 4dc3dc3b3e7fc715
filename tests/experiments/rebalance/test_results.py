"""The plan, and what is made of the results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from experiments.experiment import REPORT, SUMMARY
from experiments.rebalance.plan import Plan
from experiments.rebalance.report import write_report
from experiments.rebalance.results import Joined, Results
from kafkaclient.errors import ConfigError
from kafkaclient.streams import StreamsConfig

if TYPE_CHECKING:
    from pathlib import Path

JOINED = Joined(
    tasks=1000,
    instances=11,
    started_s=20.0,
    balanced_s=30.5,
    after_warmup_s=4.25,
    most_warmups=100,
    moved=90,
    rebalances=3,
    evictions=0,
    records=12_000,
    wrong=0,
    examples=(),
    rss_mb=80.0,
)


def test_a_thousand_tasks_by_default() -> None:
    plan = Plan()
    assert plan.tasks == 1000
    assert plan.acceptable_recovery_lag < plan.keys
    assert plan.load(3).rate * 4 == plan.rate
    assert plan.load(0).seed != plan.load(1).seed
    config = StreamsConfig(
        bootstrap_servers="localhost:9092", state_dir="state", **plan.app_options
    )
    assert config.exactly_once


def test_too_few_tasks() -> None:
    with pytest.raises(ConfigError, match="make 10 tasks, which is not enough for 11 instances"):
        Plan(topics=1, partitions=10)


def test_files_and_page(tmp_path: Path) -> None:
    results = Results(Plan().as_json(), joined=JOINED, complete=True)
    results.write(tmp_path)
    [run] = json.loads((tmp_path / SUMMARY).read_text())["runs"]
    assert (run["tasks"], run["after_warmup_s"], run["rebalances"]) == (1000, 4.25, 3)
    write_report(tmp_path, results)
    page = (tmp_path / REPORT).read_text()
    assert "<td>4.2</td>" in page
    assert "12,000" in page


def test_clean_is_complete_and_every_count_right() -> None:
    results = Results(Plan().as_json(), joined=JOINED)
    assert not results.is_clean
    results.complete = True
    assert results.is_clean
    results.joined = replace(JOINED, wrong=1)
    assert not results.is_clean
