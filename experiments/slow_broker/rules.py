"""Two published rules of load balancers as partitioners: Prequal's, and Peak-EWMA of two choices.

Both choose a broker for each new batch, by what this client sees: requests in flight, and the
latency of answered requests. A rule is the producer's ``partitioner`` and one of its ``hooks``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from math import exp
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

from kafkaclient.hooks import FinishedRequest, Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.producer.partitioning.partitioners import LoadView

__all__ = ["RULES", "PeakEwma", "Prequal", "Rule", "with_rule"]


class Rule(Hooks, ABC):
    """A partitioner for records without key: all go to one partition until its batch is closed."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random or Random()
        self._at: dict[str, int] = {}

    def partition(
        self, topic: str, _key: object, _value: object, cluster: ClusterView, load: LoadView
    ) -> int:
        if topic not in self._at:
            view, leads = cluster.topics[topic], dict[int, list[int]]()
            for number in view.available or range(view.partition_count):
                leads.setdefault(view.partitions[number].leader, []).append(number)
            self._at[topic] = self.random.choice(leads[self.choose(sorted(leads), load)])
        return self._at[topic]

    def on_new_batch(self, topic: str, _cluster: ClusterView, _previous: int) -> None:
        self._at.pop(topic, None)

    def on_request(self, request: FinishedRequest) -> None:
        if request.api == "PRODUCE":
            self.answered(request.broker, request.latency_s)

    @abstractmethod
    def choose(self, brokers: Sequence[int], load: LoadView) -> int:
        """The broker of the next batch."""

    @abstractmethod
    def answered(self, broker: int, latency_s: float) -> None:
        """A broker has answered a Produce request."""


_POOL = 16  # candidates of a choice
_HOT_QUANTILE = 0.84  # a broker with more requests in flight than this quantile is hot
_SEEN = 128  # counts of requests in flight that the quantile is taken over
_KEPT = 16  # latencies of each broker
_FORGET_S = 1.0  # a latency counts for so long


class Prequal(Rule):
    """Of the brokers that are not hot, the one with the lowest latency; if all are hot, the one
    with the fewest requests in flight (Wydrowski et al., NSDI 2024).

    Prequal asks servers for both figures, with probes that are no requests. Kafka's brokers answer
    no such question: a broker without an answer in the last second gets one batch instead.
    """

    def __init__(self, random: Random | None = None) -> None:
        super().__init__(random)
        self._seen: deque[int] = deque(maxlen=_SEEN)
        self._latencies: dict[int, deque[float]] = {}
        self._answered_at: dict[int, float] = {}

    def choose(self, brokers: Sequence[int], load: LoadView) -> int:
        pool = self.random.sample(brokers, min(_POOL, len(brokers)))
        in_flight = {broker: load.in_flight_requests(broker) for broker in pool}
        self._seen.extend(in_flight.values())
        limit = sorted(self._seen)[int(_HOT_QUANTILE * (len(self._seen) - 1))]
        cold = [broker for broker in pool if in_flight[broker] <= limit]
        if not cold:
            return min(pool, key=in_flight.__getitem__)
        return min(cold, key=lambda broker: self._estimate(broker, load))

    def answered(self, broker: int, latency_s: float) -> None:
        self._latencies.setdefault(broker, deque(maxlen=_KEPT)).append(latency_s)
        self._answered_at[broker] = asyncio.get_running_loop().time()

    def _estimate(self, broker: int, load: LoadView) -> float:
        now = asyncio.get_running_loop().time()
        if now - self._answered_at.get(broker, -_FORGET_S) < _FORGET_S:
            return median(self._latencies[broker])
        self._latencies.pop(broker, None)
        return load.oldest_in_flight_s(broker)


_DECAY_S = 10.0
_PENALTY_S = 3600.0  # of a broker with a request in flight, and no answer yet


class PeakEwma(Rule):
    """Of two brokers at random, the one with the lower product of latency and requests in flight.

    The latency follows a slower answer at once, and decays toward a faster one, and toward 0
    without answers, over 10 s (Finagle's ``PeakEwma``, linkerd).
    """

    def __init__(self, random: Random | None = None) -> None:
        super().__init__(random)
        self._latency: dict[int, tuple[float, float]] = {}
        """The average, and when it was taken."""

    def choose(self, brokers: Sequence[int], load: LoadView) -> int:
        two = self.random.sample(brokers, min(2, len(brokers)))
        return min(two, key=lambda broker: self._cost(broker, load.in_flight_requests(broker)))

    def answered(self, broker: int, latency_s: float) -> None:
        now = asyncio.get_running_loop().time()
        before, at = self._latency.get(broker, (0.0, now))
        kept = exp((at - now) / _DECAY_S)
        average = kept * before + (1 - kept) * latency_s
        self._latency[broker] = (latency_s if latency_s > before else average, now)

    def _cost(self, broker: int, in_flight: int) -> float:
        if broker not in self._latency:
            return _PENALTY_S + in_flight if in_flight else 0.0
        average, at = self._latency[broker]
        decayed = average * exp((at - asyncio.get_running_loop().time()) / _DECAY_S)
        return decayed * (in_flight + 1)


RULES: Mapping[str, Callable[[], Rule]] = {"prequal": Prequal, "peak-ewma": PeakEwma}
"""The values of the option ``partitioner`` that only this experiment knows."""


def with_rule(config: Mapping[str, Any]) -> tuple[dict[str, Any], Rule | None]:
    """The configuration with the rule that its ``partitioner`` names, and the rule."""
    name = config.get("partitioner")
    if not isinstance(name, str) or name not in RULES:
        return dict(config), None
    rule = RULES[name]()
    return {**config, "partitioner": rule}, rule
