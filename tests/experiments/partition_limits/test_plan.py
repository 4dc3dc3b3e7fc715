from __future__ import annotations

import pytest

from experiments.partition_limits.plan import Plan, parse_counts
from kafkaclient.errors import ConfigError


def test_each_broker_has_so_many_replicas() -> None:
    plan = Plan(brokers=3)
    assert plan.topic_partitions(1000, 3) == 1000
    assert plan.topic_partitions(1000, 1) == 3000
    assert plan.topic_partitions(10, 2) == 15


def test_the_fewest_come_first() -> None:
    plan = Plan(partitions=(500, 10), replication=(1, 3))
    assert plan.cells() == [(1, 10), (3, 10), (1, 500), (3, 500)]


def test_brokers_get_memory_for_their_partitions() -> None:
    assert Plan(partitions=(10,)).heap_mb == 512
    assert Plan(partitions=(10, 10_000)).heap_mb == 1488
    assert Plan().as_json()["heap_mb"] == 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": ()},
        {"partitions": (0,)},
        {"replication": (0,)},
        {"replication": (1, 4)},
        {"seconds": 0},
        {"record_size": 0},
    ],
)
def test_numbers_that_make_no_sense(wrong) -> None:
    with pytest.raises(ConfigError, match="--"):
        Plan(**wrong)


def test_java_may_be_left_out() -> None:
    assert Plan().clients == ("kafkaclient", "java")
    assert Plan(java=False).clients == ("kafkaclient",)


def test_counts() -> None:
    assert parse_counts("--partitions", "100, 10,100") == (100, 10)
    for wrong in ("", "10,0", "-1", "ten"):
        with pytest.raises(ConfigError, match="--partitions"):
            parse_counts("--partitions", wrong)
