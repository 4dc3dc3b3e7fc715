from __future__ import annotations

import pytest

from experiments.replication_quota.plan import (
    SCENARIOS,
    Plan,
    parse_scenarios,
)
from kafkaclient.errors import ConfigError
from kafkaclient.types import TopicPartition


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.name)
def test_one_broker_sends_or_takes_everything(scenario) -> None:
    """Else the quota of a broker would not be the rate of the scenario."""
    before = scenario.replicas(100)
    moves = scenario.moves(100)
    assert moves.keys() == {TopicPartition("moves", p) for p in range(100)}
    leaders = [nodes[0] for nodes in before]
    arrivals = [set(moves[TopicPartition("moves", p)]) - set(before[p]) for p in range(100)]
    assert all(len(new) == 1 for new in arrivals)
    senders, takers = set(leaders), set().union(*arrivals)
    assert min(len(senders), len(takers)) == 1
    names = ("one", "two")
    assert scenario.name == f"{names[len(senders) - 1]} to {names[len(takers) - 1]}"
    assert {node for nodes in (*before, *moves.values()) for node in nodes} == set(
        range(scenario.brokers)
    )
    assert list(scenario.way_back(100).values()) == before


def test_each_without_and_with_load() -> None:
    names = [(scenario.name, load) for scenario, load in Plan().runs()]
    assert names == [
        (name, load) for name in ("one to one", "one to two", "two to one") for load in (0, 2000)
    ]
    assert [load for _, load in Plan(load=0).runs()] == [0, 0, 0]


def test_scenarios_by_name() -> None:
    assert parse_scenarios("all") == tuple(SCENARIOS.values())
    assert [s.name for s in parse_scenarios(" two-to-one,one-to-one ")] == [
        "two to one",
        "one to one",
    ]
    for wrong in ("", "one-to-three", "all,one-to-one"):
        with pytest.raises(ConfigError, match="--scenarios"):
            parse_scenarios(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"quota": 0},
        {"seconds": 0},
        {"partitions": 0},
        {"record_size": 0},
        {"quiet_s": -1},
        {"load": -1},
        {"load": 5001},  # more than half of the quota
    ],
)
def test_numbers_that_make_no_sense(wrong) -> None:
    with pytest.raises(ConfigError, match="--"):
        Plan(**wrong)


def test_what_moves_is_what_the_quota_lets_through() -> None:
    plan = Plan(quota=3_000_000, seconds=20, load=1000)
    assert plan.bytes_to_move == 60_000_000
    assert plan.as_json()["scenarios"] == ["one to one", "one to two", "two to one"]


def test_settings_of_brokers() -> None:
    assert Plan(broker_config={"a": "b"}).as_json()["broker_config"] == {"a": "b"}
