"""Many producers that send little: which brokers do they choose together?

In virtual time, on brokers that serve all their clients one after the other, so that producers
which all choose the broker that looked best make it slow.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from experiments.slow_broker.rules import with_rule
from kafkaclient.producer.producer import Producer
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake.interceptors import Delay, delay_answer
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient import Delivery
    from kafkaclient.testing.fake.interceptors import Request

__all__ = ["FLEET_RATE", "Fleet", "fleet"]

FLEET_RATE = 20.0
"""Records per second of each producer."""
_RECORD = bytes(4096)
_TOPIC = "fleet"
_SERVICE_S = 0.0002  # a broker's work for a request, on average
_NETWORK_S = 0.0005
_START_S = 4.0  # not counted
_LEAST_S, _LEAST_RECORDS = 6.0, 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The figures of a number of producers with one of our settings."""

    setting: str
    producers: int
    records: int
    avg_ms: float
    p99_ms: float
    slow_share: float
    """Broker 0's share of the bytes, 0 to 1."""
    evenness: float
    """The most bytes of another broker as a multiple of the fewest: 1.0 is even."""


class _Brokers:
    """Each broker works on one request at a time, whoever sent it."""

    def __init__(self, delay_s: float, random: Random) -> None:
        self._delay_s, self._random = delay_s, random
        self._free_at: dict[int, float] = {}

    def __call__(self, request: Request) -> Delay:
        now = asyncio.get_running_loop().time()
        begins = max(now, self._free_at.get(request.broker, now))
        ends = begins + self._random.expovariate(1 / _SERVICE_S)
        self._free_at[request.broker] = ends
        return delay_answer(ends - now + (0.0 if request.broker else self._delay_s))


def fleet(
    setting: str, options: Mapping[str, str], producers: int, delay_s: float, brokers: int
) -> Fleet:
    """What ``producers`` with these options measure while broker 0 answers ``delay_s`` late.

    Takes no event loop's time: it runs in one of its own.
    """
    return run_virtual(_run(setting, options, producers, delay_s, brokers))


async def _run(
    setting: str, options: Mapping[str, str], producers: int, delay_s: float, brokers: int
) -> Fleet:
    random, loop = Random(1), asyncio.get_running_loop()
    cluster = FakeCluster(brokers=brokers)
    cluster.round_trip_s = _NETWORK_S
    cluster.create_topic(_TOPIC, brokers)
    cluster.control(ApiKey.PRODUCE, _Brokers(delay_s, random), keep=True)
    until = loop.time() + _START_S + max(_LEAST_S, _LEAST_RECORDS / FLEET_RATE / producers)
    counted_from = loop.time() + _START_S
    latencies: list[float] = []

    def answered(at: float, _delivery: Delivery) -> None:
        latencies.append(loop.time() - at)

    async def send(producer: Producer) -> None:
        await producer.partitions_for(_TOPIC)
        await asyncio.sleep(random.random() / FLEET_RATE)
        while (at := loop.time()) < until:
            delivery = producer.send_nowait(_TOPIC, _RECORD)
            if at >= counted_from:
                delivery.add_done_callback(partial(answered, at))
            await asyncio.sleep(random.uniform(0.5, 1.5) / FLEET_RATE)

    async with asyncio.TaskGroup() as starting:
        made = [_made(cluster, options) for _ in range(producers)]
        for producer in made:
            starting.create_task(producer.start())
    async with asyncio.TaskGroup() as sending:
        for producer in made:
            sending.create_task(send(producer))
    async with asyncio.TaskGroup() as stopping:
        for producer in made:
            stopping.create_task(producer.stop())
    sent = [0] * brokers
    for request in cluster.requests_of(ApiKey.PRODUCE):
        if request.at >= counted_from:
            sent[request.broker] += request.size
    ordered = sorted(latencies)
    return Fleet(
        setting=setting,
        producers=producers,
        records=len(ordered),
        avg_ms=1e3 * sum(ordered) / len(ordered),
        p99_ms=1e3 * ordered[len(ordered) * 99 // 100],
        slow_share=sent[0] / sum(sent),
        evenness=max(sent[1:]) / min(sent[1:]),
    )


def _made(cluster: FakeCluster, options: Mapping[str, str]) -> Producer:
    config, rule = with_rule(options)
    more: dict[str, Any] = {} if rule is None else {"hooks": rule}
    return Producer({**config, "bootstrap.servers": cluster.bootstrap}, dialer=cluster, **more)
