"""The faults, before anything starts."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.consumer_chaos.plan import Plan
from experiments.consumer_chaos.schedule import CLUSTER_KINDS, MEMBER_KINDS, TOPIC_KINDS
from kafkaclient.errors import ConfigError


def test_the_seed_decides() -> None:
    assert Plan(seed=3).faults == Plan(seed=3).faults != Plan(seed=4).faults


def test_every_kind_comes_as_often_within_the_time() -> None:
    faults = Plan(seconds=600, member_every_s=10, broker_every_s=50, topic_every_s=60).faults
    assert Counter(fault.kind for fault in faults) == {
        **dict.fromkeys(MEMBER_KINDS, 10),
        **dict.fromkeys(CLUSTER_KINDS, 3),
        **dict.fromkeys(TOPIC_KINDS, 5),
    }
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert faults[-1].at < 600


def test_without_faults_of_brokers_one_broker_is_enough() -> None:
    plan = Plan(brokers=1, broker_every_s=0, topic_every_s=0)
    assert plan.replication == 1
    assert {fault.kind for fault in plan.faults} <= set(MEMBER_KINDS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"protocol": "auto"}, "--protocol must be classic or consumer, not 'auto'"),
        ({"brokers": 1}, "--brokers must be at least 3"),
        ({"seconds": 0}, "--seconds must be more than 0"),
        ({"topic_every_s": -1}, "--topic-every must be at least 0"),
    ],
)
def test_plans_that_make_no_sense(options: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Plan(**options)  # type: ignore[arg-type]
