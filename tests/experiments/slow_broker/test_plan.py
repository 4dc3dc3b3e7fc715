from __future__ import annotations

from typing import Any

import pytest

from benchmarks import perf_peers
from experiments.slow_broker.plan import Plan, parse_rates, refusal
from experiments.slow_broker.settings import SETTINGS, Setting, choose
from kafkaclient.errors import ConfigError

OURS = Setting("kafkaclient", "default", {})


def test_repetitions_are_the_outer_loop() -> None:
    settings = tuple(choose(["aiokafka"], "default"))
    plan = Plan(settings=settings, rates=(1.0, 2.0), repeat=2)
    runs = list(plan.runs(settings))
    assert [(run.number, run.rate) for run in runs] == [
        (number, rate) for number in (1, 2) for rate in (1.0, 2.0) for _setting in settings
    ]
    assert {run.setting.client for run in runs[:3]} == {"kafkaclient", "aiokafka"}


def test_every_run_sends_for_so_long_and_starts_in_its_first_part() -> None:
    plan = Plan(settings=(OURS,), seconds=20)
    assert (plan.spec(2048).num_records, plan.spec(2048).warmup_records) == (40_960, 10_240)
    assert Plan(settings=(OURS,), seconds=2).start_s == 0.5
    recorded = plan.spec(2048, plan.recorded_s)
    assert (recorded.num_records, recorded.warmup_records) == (20_480, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"record_size": 15}, "--record-size must be at least 16"),
        ({"seconds": 0}, "--seconds must be more than 0"),
        ({"repeat": 0}, "--repeat"),
        ({"partitions": -1}, "--partitions"),
        ({"max_message_bytes": 0}, "--max-message-bytes must be more than 0"),
        ({"delay_ms": -1}, "--delay-ms must be 0 or more"),
        ({"rates": (0.1,), "seconds": 1}, "without a record"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Plan(settings=(OURS,), **given)


def test_rates() -> None:
    assert parse_rates("2048, 4096,2048") == (2048.0, 4096.0)
    for text in ("", "fast", "0", "-1", "inf", "1,,x"):
        with pytest.raises(ConfigError, match="--rates"):
            parse_rates(text)


def test_what_this_build_takes_and_what_it_refuses() -> None:
    assert refusal(OURS) is None
    told = refusal(Setting("kafkaclient", "x", {"partitioner.share.flor": "0"}))
    assert told is not None
    assert "partitioner.share.flor" in told
    assert all(refusal(setting) is None for setting in SETTINGS["java"])


def test_a_peer_that_is_not_installed_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(perf_peers, "import_module", missing)
    with pytest.raises(ConfigError, match=r"kafkaclient\[bench\]"):
        refusal(SETTINGS["aiokafka"][0])
