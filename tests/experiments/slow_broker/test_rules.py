"""The rules on a made-up load, and on a fake cluster with a slow broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from experiments.slow_broker.fleet import fleet
from experiments.slow_broker.rules import RULES, PeakEwma, Prequal, with_rule
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    from experiments.slow_broker.rules import Rule


class Load:
    """What a rule asks for."""

    def __init__(self, **in_flight: int) -> None:
        self._in_flight = {int(name[1:]): count for name, count in in_flight.items()}

    def in_flight_requests(self, node_id: int) -> int:
        return self._in_flight.get(node_id, 0)

    def oldest_in_flight_s(self, node_id: int) -> float:
        return 0.001 * self.in_flight_requests(node_id)


def chosen(rule: Rule, load: Any, times: int = 60) -> Counter[int]:
    return Counter(rule.choose([0, 1, 2], load) for _ in range(times))


@virtual_time
async def test_prequal_takes_the_fastest_of_those_that_are_not_hot() -> None:
    rule = Prequal(Random(1))
    for broker, latency in enumerate((0.020, 0.001, 0.002)):
        rule.answered(broker, latency)
    assert chosen(rule, Load()) == {1: 60}
    assert chosen(rule, Load(b1=3), 5) == {2: 5}


@virtual_time
async def test_prequal_asks_a_broker_again_after_a_second() -> None:
    rule = Prequal(Random(1))
    rule.answered(0, 0.020)
    assert chosen(rule, Load())[0] == 0
    await asyncio.sleep(1.0)
    for broker in (1, 2):
        rule.answered(broker, 0.001)
    assert chosen(rule, Load()) == {0: 60}
    assert chosen(rule, Load(b0=9))[0] == 0  # the question is on its way


@virtual_time
async def test_peak_ewma_multiplies_latency_and_requests() -> None:
    rule = PeakEwma(Random(1))
    for broker, latency in enumerate((0.020, 0.001, 0.002)):
        rule.answered(broker, latency)
    found = chosen(rule, Load())
    assert found[0] == 0
    assert found[1] > found[2] > 0  # the slower one, where the two at random leave out the fastest
    assert chosen(rule, Load(b1=3))[2] > found[2]
    rule.answered(1, 0.050)
    assert chosen(rule, Load())[1] == 0


@virtual_time
async def test_peak_ewma_follows_a_faster_answer_slowly() -> None:
    rule = PeakEwma(Random(1))
    rule.answered(0, 0.020)
    rule.answered(0, 0.001)
    rule.answered(1, 0.002)
    assert rule.choose([0, 1], Load()) == 1  # type: ignore[arg-type]


def test_other_partitioners_stay_as_they_are() -> None:
    assert with_rule({"partitioner": "kip794"}) == ({"partitioner": "kip794"}, None)
    config, rule = with_rule({"partitioner": "prequal", "linger.ms": "5"})
    assert isinstance(rule, Prequal)
    assert config == {"partitioner": rule, "linger.ms": "5"}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.full
def test_a_fleet_leaves_the_slow_broker(name: str) -> None:
    found = fleet(name, {"partitioner": name}, 3, 0.020, 3)
    assert found.records > 3000 * 0.9
    assert found.slow_share < 0.1
    assert 5 < found.avg_ms < 8
    assert found.evenness < 1.5
