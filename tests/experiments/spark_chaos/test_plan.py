"""The combinations and faults of a campaign."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from experiments.spark_chaos.combinations import SETTINGS, Combination, pairwise
from experiments.spark_chaos.plan import Plan
from experiments.spark_chaos.schedule import (
    BROKER_KINDS,
    COORDINATOR_KINDS,
    SPARK_KINDS,
    TOPIC_KINDS,
)
from experiments.strikes import coordinator_partition
from kafkaclient.errors import ConfigError


def test_every_two_settings_meet() -> None:
    rows = pairwise(SETTINGS)
    for one, other in combinations(SETTINGS, 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == {*product(SETTINGS[one], SETTINGS[other])}
    assert len(rows) == 7
    assert rows == pairwise(SETTINGS)


def test_settings_of_three_values() -> None:
    rows = pairwise({"a": "xyz", "b": "xyz", "c": "12"})
    assert {(row["a"], row["b"]) for row in rows} == {*product("xyz", "xyz")}
    assert len(rows) == 9


def test_one_seed_makes_the_same_faults() -> None:
    (number, combination), *_ = Plan().chosen
    faults = Plan().faults(number, combination)
    assert faults == Plan().faults(number, combination)
    assert faults != Plan(seed=2).faults(number, combination)
    assert faults != Plan().faults(number + 1, combination)
    assert len(faults) == 3 * 30
    assert {fault.kind for fault in faults} == {*SPARK_KINDS, *BROKER_KINDS, *TOPIC_KINDS}
    assert all(0 <= fault.at <= 600 for fault in faults)


def test_coordinators_fail_only_where_there_are_transactions() -> None:
    for number, combination in Plan().chosen:
        kinds = {fault.kind for fault in Plan().faults(number, combination)}
        assert bool(kinds & {*COORDINATOR_KINDS}) == combination.exactly_once


def test_some_of_the_combinations() -> None:
    assert [number for number, _ in Plan(first=2, runs=3).chosen] == [2, 3, 4]
    assert [number for number, _ in Plan(first=6).chosen] == [6, 7]
    assert str(Plan().chosen[0][1]).startswith("exactly once, transactions v1, PySpark 4.2")
    assert Plan().chosen[0][1].transaction_version == 1
    assert isinstance(Plan().chosen[0][1], Combination)


@pytest.mark.parametrize("wrong", [{"first": 8}, {"first": 0}, {"runs": -1}, {"seconds": 0}])
def test_wrong_plans(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Plan(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hash_code"),
    [
        ("hello", 99162322),
        ("a-b", 94710),
        ("spark-chaos-5", 489399864),
        ("polygenelubricantt", -(2**31) + 1),
    ],
)
def test_the_coordinator_of_a_transactional_id_is_javas(name: str, hash_code: int) -> None:
    assert coordinator_partition(name, 50) == abs(hash_code) % 50


def test_the_coordinator_of_the_smallest_hash_is_javas() -> None:
    """``Utils.abs`` is 0 for ``Integer.MIN_VALUE``."""
    assert coordinator_partition("polygenelubricants", 50) == 0
