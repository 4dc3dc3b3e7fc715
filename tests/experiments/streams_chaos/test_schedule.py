"""The faults, before anything starts."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.streams_chaos.plan import Plan
from experiments.streams_chaos.schedule import BROKER_KINDS, INSTANCE_KINDS
from kafkaclient.errors import ConfigError


def test_the_seed_decides() -> None:
    assert Plan(seed=3).faults == Plan(seed=3).faults != Plan(seed=4).faults


def test_every_kind_comes_as_often_within_the_time() -> None:
    faults = Plan(seconds=600, instance_every_s=10, broker_every_s=40).faults
    kinds = Counter(fault.kind for fault in faults)
    assert kinds == dict.fromkeys(INSTANCE_KINDS, 12) | dict.fromkeys(BROKER_KINDS, 5)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert faults[-1].at < 600
    assert {fault.which for fault in faults} == {0, 1, 2}


def test_without_faults_of_brokers_one_broker_is_enough() -> None:
    plan = Plan(brokers=1, broker_every_s=0)
    assert plan.replication == 1
    assert {fault.kind for fault in plan.faults} <= set(INSTANCE_KINDS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"brokers": 1}, "--brokers must be at least 3"),
        ({"seconds": 0}, "--seconds must be more than 0"),
        ({"instance_every_s": 0}, "--instance-every must be more than 0"),
        ({"broker_every_s": -1}, "--broker-every must be at least 0"),
    ],
)
def test_plans_that_make_no_sense(options: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Plan(**options)
