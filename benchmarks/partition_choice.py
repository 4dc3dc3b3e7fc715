"""How partitions are chosen in trying situations, measured on a local cluster of three brokers.

    python benchmarks/partition_choice.py [SITUATION ...] [--out FILE] [--repeat N]

Situations: fresh, rotating, different, equal, saturated, far, step, pause, blocked, topics.
KIP-794's own test is ``python -m experiments slow-broker``. Replication is 1 throughout.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import sys
import time
from array import array
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import uvloop

from experiments.topics import create_topics
from kafkaclient.errors import BufferFullError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.inspect import inspect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

RECORD = bytes(512)
BROKERS = 3

clock = time.perf_counter


class Load:
    """Unkeyed records at a rate. What became of each is kept in flat arrays: a list of tuples would
    have Python's garbage collector stop everything for a tenth of a second now and then."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.began = clock()
        self._sent, self._took = array("d"), array("d")
        self._topics, self._partitions = array("l"), array("l")
        self._names: dict[str, int] = {}
        gc.collect()
        gc.freeze()

    def send(self, topic: str) -> None:
        at, number = clock(), self._names.setdefault(topic, len(self._names))

        def answered(delivery: Any) -> None:
            self._sent.append(at - self.began)
            self._took.append(clock() - at)
            self._topics.append(number)
            self._partitions.append(delivery.result().partition)

        self.producer.send_nowait(topic, RECORD).add_done_callback(answered)

    @property
    def answers(self) -> list[tuple[float, float, str, int]]:
        """(sent at, latency, topic, partition) of each record."""
        names = list(self._names)
        topics = (names[number] for number in self._topics)
        return list(zip(self._sent, self._took, topics, self._partitions, strict=True))

    async def steady(self, topic: str, rate: float, seconds: float) -> None:
        began, number = clock(), 0
        while (elapsed := clock() - began) < seconds:
            until = clock() + 0.001  # an application yields, also when it is behind
            while number < elapsed * rate and clock() < until:
                self.send(topic)
                number += 1
            await asyncio.sleep(0.001 if number >= elapsed * rate else 0)

    async def settle(self) -> None:
        await self.producer.flush()
        await asyncio.sleep(0.05)

    def latencies(self, wanted: Callable[[float, str, int], bool] = lambda *_: True) -> list[float]:
        """Sorted, in milliseconds, where ``wanted(sent at, topic, partition)``."""
        return sorted(1e3 * took for at, took, topic, p in self.answers if wanted(at, topic, p))


async def saturate(producer: Producer, topic: str, seconds: float, record: bytes) -> list[int]:
    """Send as fast as it goes; the bytes acknowledged in each tenth of a second."""
    acknowledged = [0] * (round(seconds * 10) + 2)
    began = clock()

    def answered(delivery: Any) -> None:
        delivery.result()  # a failure is told, and not counted
        acknowledged[min(int((clock() - began) * 10), len(acknowledged) - 1)] += len(record)

    while clock() - began < seconds:
        until = clock() + 0.001
        try:
            while clock() < until:
                producer.send_nowait(topic, record).add_done_callback(answered)
        except BufferFullError:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0)
    return acknowledged[: round(seconds * 10)]


def at(percent: float, ordered: list[float]) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], 2)


def evenness(producer: Producer, topic: str, partitions: int) -> dict[str, Any]:
    sent = [p.bytes_sent for p in producer.load().partitions if p.topic == topic]
    if len(sent) < partitions:
        raise RuntimeError(f"only {len(sent)} of {partitions} partitions got anything")
    return {"partitions": partitions, "max_over_min": round(max(sent) / min(sent), 4)}


class Bench:
    """One cluster, a fresh topic for each run."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._topics = 0

    async def topic(self, partitions: int) -> str:
        self._topics += 1
        name = f"choice-{self._topics}"
        await create_topics(self.cluster, [name], partitions)
        return name

    @asynccontextmanager
    async def producing(self, *, proxied: bool = False, **options: Any) -> AsyncIterator[Producer]:
        bootstrap = self.cluster.proxied_bootstrap if proxied else self.cluster.bootstrap
        async with Producer(bootstrap, **options) as producer:
            yield producer

    async def round_trip(self, seconds: float) -> None:
        for broker in self.cluster.brokers:
            await self.cluster.proxy(broker).round_trip(seconds)

    async def delays(self, *seconds: float) -> None:
        """Each broker answers Produce requests so much later."""
        for broker, delay in zip(self.cluster.brokers, seconds, strict=True):
            await self.cluster.proxy(broker).delay_produce(delay)

    async def latencies(
        self, rate: float, seconds: float, counted_from: float, **options: Any
    ) -> dict[str, Any]:
        """What a new producer's records wait, of those sent after ``counted_from`` seconds."""
        topic = await self.topic(BROKERS)
        async with self.producing(proxied=True, **options) as producer:
            load = Load(producer)
            await load.steady(topic, rate, seconds)
            await load.settle()
        found = load.latencies(lambda sent, *_: sent >= counted_from)
        return {"avg_ms": round(sum(found) / len(found), 2), "p99_ms": at(99, found)}

    # --- situations -------------------------------------------------------------------------------

    async def fresh(self) -> dict[str, Any]:
        """Broker 0 answers 20 ms late: the first 2 s of a new producer, on a new topic."""
        await self.delays(0.020, 0, 0)
        found = {
            f"{rate}/s {partitioner}": await self.latencies(rate, 2, 0, partitioner=partitioner)
            for rate in (2048, 8192)
            for partitioner in ("late", "kip794")
        }
        await self.delays(0, 0, 0)
        return found

    async def rotating(self) -> dict[str, Any]:
        """One broker answers 50 ms late, every 1.5 s another one."""

        async def rotate() -> None:
            turn = 0
            while True:
                await self.delays(*(0.050 * (n == turn % BROKERS) for n in range(BROKERS)))
                turn += 1
                await asyncio.sleep(1.5)

        found = {}
        for partitioner in ("late", "kip794"):
            rotating = asyncio.create_task(rotate())
            found[partitioner] = await self.latencies(4096, 15, 2, partitioner=partitioner)
            rotating.cancel()
            await asyncio.wait([rotating])
        await self.delays(0, 0, 0)
        return found

    async def different(self) -> dict[str, Any]:
        """The brokers answer 2, 10 and 40 ms late."""
        await self.delays(0.002, 0.010, 0.040)
        found = {
            partitioner: await self.latencies(8192, 10, 2, partitioner=partitioner)
            for partitioner in ("late", "kip794")
        }
        await self.delays(0, 0, 0)
        return found

    async def equal(self) -> list[dict[str, Any]]:
        """Equal brokers, mostly free: about 200 batches for each partition."""
        found = []
        for partitions in (3, 30):
            topic = await self.topic(partitions)
            async with self.producing() as producer:
                await producer.partitions_for(topic)
                load = Load(producer)
                await load.steady(topic, 2048, 1.4 * partitions)
                await load.settle()
                requests = sum(b.requests_sent for b in producer.load().brokers)
                found.append(
                    evenness(producer, topic, partitions)
                    | {"records_per_request": round(len(load.answers) / requests, 2)}
                )
        return found

    async def saturated(self) -> list[dict[str, Any]]:
        """Equal brokers, as fast as it goes, until 500 MB are acknowledged."""
        found = []
        for partitions in (3, 30):
            topic = await self.topic(partitions)
            async with self.producing() as producer:
                await producer.partitions_for(topic)
                sent, seconds = 0, 0.0
                while sent < 500e6:
                    sent += sum(await saturate(producer, topic, 2.0, bytes(1024)))
                    seconds += 2.0
                await producer.flush()
                found.append(
                    evenness(producer, topic, partitions)
                    | {"mb_per_s": round(sent / 1e6 / seconds, 1)}
                )
        return found

    async def far(self) -> dict[str, Any]:
        """50 ms of network on all brokers: the window by itself, one held at 5, and Java's way."""
        await self.round_trip(0.050)
        rates: dict[str, list[float]] = {"late": [], "late, window held at 5": [], "kip794": []}
        for _ in range(2):
            for way, measured in rates.items():
                topic = await self.topic(6)
                partitioner = way.split(",")[0]
                async with self.producing(proxied=True, partitioner=partitioner) as producer:
                    if way.endswith("5"):
                        lanes = inspect(producer).sender.lanes
                        lanes._settings = replace(lanes._settings, adaptive_window=False)
                    await producer.partitions_for(topic)
                    sent = await saturate(producer, topic, 8.0, RECORD)
                    measured.append(sum(sent[20:]) / 6e6)
        await self.round_trip(0.0)
        medians = {name: round(median(values), 2) for name, values in rates.items()}
        held = medians["late, window held at 5"]
        return {"mb_per_s": medians, "against_window_5": round(medians["late"] / held, 3)}

    async def step(self) -> dict[str, Any]:
        """The network's round trip steps 1 -> 30 -> 1 ms; how soon is each level reached?"""
        topic = await self.topic(6)
        await self.round_trip(0.001)
        async with self.producing(proxied=True) as producer:
            await producer.partitions_for(topic)

            async def steps() -> None:
                await asyncio.sleep(6)
                await self.round_trip(0.030)
                await asyncio.sleep(6)
                await self.round_trip(0.001)

            stepping = asyncio.create_task(steps())
            sent = await saturate(producer, topic, 18.0, RECORD)
            await stepping
        await self.round_trip(0.0)
        found = {}
        for name, start in (("to_30_ms", 60), ("to_1_ms", 120)):
            level = median(sent[start + 30 : start + 60])
            smooth = [sum(sent[n : n + 5]) / 5 for n in range(start, start + 55)]
            reached = next((n for n, value in enumerate(smooth) if value >= 0.9 * level), None)
            found[name] = {
                "mb_per_s": round(level / 1e5, 1),
                "reached_after_s": None if reached is None else reached / 10,
            }
        return found

    async def pause(self) -> dict[str, Any]:
        """A broker stands still for 3 s under unkeyed load."""
        topic = await self.topic(3)
        async with self.producing() as producer:
            view = await producer.partitions_for(topic)
            paused = next(p.partition for p in view if p.leader == 1)
            load = Load(producer)

            stood_still = 0.0

            async def pause() -> None:
                nonlocal stood_still
                await asyncio.sleep(5)
                await self.cluster.pause(1)
                stood_still = clock() - load.began
                await asyncio.sleep(3)
                await self.cluster.resume(1)

            pausing = asyncio.create_task(pause())
            await load.steady(topic, 2048, 15)
            await pausing
            await load.settle()
        # In flight to it at that moment: bound to its partition by then, and answered afterwards.
        # Whatever else waited is among the others, however long.
        stuck = [a for a in load.answers if a[3] == paused and a[0] < stood_still < a[0] + a[1]]
        ended = max((a[0] + a[1] for a in stuck), default=stood_still + 3)
        before = load.latencies(lambda sent, *_: 1 < sent < stood_still - 0.1)
        told = set(stuck)
        others = sorted(
            1e3 * a[1]
            for a in load.answers
            if a not in told and stood_still - 0.1 < a[0] < ended + 3
        )
        shares = []
        for n in range(14):
            since = ended + n / 2
            counts = Counter(p for sent, _, _, p in load.answers if since <= sent < since + 0.5)
            if counts.total() > 500:
                shares.append(round(3 * counts[paused] / counts.total(), 2))
        return {
            "in_flight_to_it": len(stuck),
            "p99_before_ms": at(99, before),
            "p99_of_the_others_ms": at(99, others),
            "max_of_the_others_ms": at(100, others),
            "fair_shares_per_half_second_after": shares,
        }

    async def blocked(self) -> dict[str, Any]:
        """The application blocks its event loop for 200 ms, three times in two seconds."""
        topic = await self.topic(3)
        async with self.producing() as producer:
            await producer.partitions_for(topic)
            load = Load(producer)

            async def block() -> None:
                for _ in range(15):
                    await asyncio.sleep(0.45)
                    time.sleep(0.2)  # noqa: ASYNC251 - that is the situation

            blocking = asyncio.create_task(block())
            await load.steady(topic, 2048, 10)
            await blocking
            await load.settle()
            nodes = producer.metrics().brokers
        return {
            "overdue": sum(int(node.get("exclusion-overdue-total", 0)) for node in nodes.values()),
            "requests_total": sum(int(node["request-total"]) for node in nodes.values()),
            "lag_max_ms": round(producer.metrics().producer["event-loop-lag-max"]),
        }

    async def topics(self) -> dict[str, Any]:
        """1,000 topics of which one is hot: what do the quiet ones' records wait?"""
        names = [f"quiet-{self._topics}-{n}" for n in range(1000)]
        await create_topics(self.cluster, names, 3)
        hot = await self.topic(6)
        found = {}
        for load_name, rate in (("idle", 0.0), ("hot", 10_000.0)):
            async with self.producing() as producer:
                for name in (*names, hot):
                    await producer.partitions_for(name)
                load = Load(producer)
                running = asyncio.create_task(load.steady(hot, rate, 12.0)) if rate else None
                await asyncio.sleep(1.0)
                for name in names:
                    load.send(name)
                    await asyncio.sleep(0.01)
                if running is not None:
                    await running
                await load.settle()
            quiet = load.latencies(lambda _, topic, __: topic != hot)
            found[load_name] = {"p50_ms": at(50, quiet), "p99_ms": at(99, quiet)}
        return found


SITUATIONS = (
    "fresh",
    "rotating",
    "different",
    "equal",
    "saturated",
    "far",
    "step",
    "pause",
    "blocked",
    "topics",
)


async def main(names: list[str], repeat: int) -> dict[str, Any]:
    results: dict[str, Any] = {name: [] for name in names}
    async with LocalCluster(brokers=BROKERS, long_lived=True) as cluster:
        bench = Bench(cluster)
        warm = await bench.topic(3)
        async with bench.producing() as producer:
            await Load(producer).steady(warm, 2048, 5)
        for _ in range(repeat):
            for name in names:
                situation: Callable[[], Awaitable[Any]] = getattr(bench, name)
                results[name].append(await situation())
                sys.stderr.write(f"{name}: {json.dumps(results[name][-1])}\n")
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    return {"machine": machine, "situations": results}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("situations", nargs="*", choices=[*SITUATIONS, []], default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=1)
    wanted = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured = runner.run(main(wanted.situations or list(SITUATIONS), wanted.repeat))
    text = json.dumps(measured, indent=2) + "\n"
    if wanted.out is None:
        sys.stdout.write(text)
    else:
        wanted.out.write_text(text, encoding="utf-8")
