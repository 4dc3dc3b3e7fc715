"""What the experiment is asked to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.counting.worker import add_one
from experiments.task_handover.plan import (
    KIP441,
    QUIX,
    RESTORE_FIRST,
    STEPS,
    Plan,
    parse_modes,
)
from kafkaclient.errors import ConfigError
from kafkaclient.streams import StreamsConfig
from kafkaclient.streams.tasks import MAX_LAG


def test_the_modes_differ_in_who_counts_as_caught_up() -> None:
    plan = Plan(acceptable_recovery_lag=7)
    ours, other = plan.app_options(KIP441), plan.app_options(RESTORE_FIRST)
    assert (ours.pop("acceptable_recovery_lag"), other.pop("acceptable_recovery_lag")) == (
        7,
        MAX_LAG,
    )
    assert ours == other
    config = StreamsConfig(
        bootstrap_servers="localhost:9092",
        application_id="a",
        state_dir="state",
        **plan.app_options(KIP441),
    )
    assert config.exactly_once


def test_a_crash_may_cost_what_finding_it_out_takes() -> None:
    assert Plan(session_timeout_ms=10_000, heartbeat_interval_ms=500).crash_target_s == 11.5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keys": 0}, "--keys must"),
        ({"tasks": 2}, "three instances"),
        ({"cpu_ms": 20}, "--rate 600 and --cpu-ms 20 need 12 CPUs"),
    ],
)
def test_plans_that_make_no_sense(options: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Plan(**options)


def test_modes() -> None:
    assert parse_modes("quixstreams, kip441,kip441") == (QUIX, KIP441)
    for text in ("", "java", "kip441,java"):
        with pytest.raises(ConfigError, match="--modes: kip441"):
            parse_modes(text)


def test_as_json_names_no_folder_of_this_machine() -> None:
    told = json.dumps(Plan(peer_python=Path("/somewhere/bin/python")).as_json())
    assert "somewhere" not in told
    assert "crash_target_s" in told


def test_steps_are_those_of_the_summary() -> None:
    assert [str(step) for step in STEPS] == ["start", "join-2", "join-3", "crash", "restart"]


def test_a_key_counts_on() -> None:
    number, kept = add_one(None, b"...")
    assert (number, len(kept)) == (1, 11)
    assert add_one(kept, b"...")[0] == 2
