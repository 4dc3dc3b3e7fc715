"""Records with and without key in one topic: does either kind starve, and how do peers fare?

    python -m benchmarks.mixed_load [--seconds 60] [--repeat 3] [--clients kafkaclient,confluent]
                                    [--rate 20000] [--unkeyed 20] [--delay 5] [--out FILE]

Three local brokers, one partition each, replication 1, default settings of each client. Broker 0
answers each Produce request ``--delay`` ms late. ``--rate`` records of 1000 bytes with a key and
``--unkeyed`` without one are sent each second. The clients take turns, each in a process of its
own; the table shows the median of the runs. docs/concepts/partition-choice.md has the figures.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import time
from array import array
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clients_apart import ClientsApart
from experiments.topics import create_topics
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CLIENTS = ("kafkaclient", "confluent")
KINDS = ("keyed", "unkeyed")
VALUE = bytes(1000)
WARM_UP = 3.0
"""Seconds at the start that are not counted."""

clock = time.perf_counter


class Latencies:
    """From the call to the acknowledgement, in seconds, in flat arrays: many objects would have
    Python's garbage collector stop everything now and then."""

    def __init__(self) -> None:
        self._counted_from = clock() + WARM_UP
        self._took = {kind: array("d") for kind in KINDS}
        self.failed = 0

    def of(self, kind: str) -> Callable[[Exception | None], None]:
        at = clock()

        def answered(error: Exception | None) -> None:
            if error is not None:
                self.failed += 1
            elif at >= self._counted_from:
                self._took[kind].append(clock() - at)

        return answered

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {"failed": self.failed}
        for kind, took in self._took.items():
            ordered = sorted(took)
            found[kind] = {
                f"p{percent:g}_ms": round(1e3 * ordered[int(len(ordered) * percent / 100)], 2)
                for percent in (50, 99, 99.9)
            } | {"records": len(ordered)}
        return found


class Pace:
    """How many records of each kind are due, at steady rates."""

    def __init__(self, keyed: float, unkeyed: float, seconds: float) -> None:
        self._rates = {"keyed": keyed, "unkeyed": unkeyed}
        self._sent = dict.fromkeys(KINDS, 0)
        self._began = clock()
        self._seconds = seconds

    @property
    def over(self) -> bool:
        return clock() - self._began >= self._seconds

    def due(self) -> dict[str, int]:
        elapsed = clock() - self._began
        due = {kind: int(elapsed * self._rates[kind]) - self._sent[kind] for kind in KINDS}
        due["keyed"] = min(due["keyed"], 500)  # an application yields, also when it is behind
        for kind, count in due.items():
            self._sent[kind] += count
        return due


def kafkaclient(bootstrap: str, topic: str, pace: Callable[[], Pace]) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        keys = Random(1)
        async with Producer(bootstrap) as producer:
            await producer.partitions_for(topic)
            gc.freeze()
            latencies, going = Latencies(), pace()
            while not going.over:
                for kind, count in going.due().items():
                    for _ in range(count):
                        key = b"%d" % keys.randrange(10**6) if kind == "keyed" else None
                        answered = latencies.of(kind)
                        producer.send_nowait(topic, VALUE, key).add_done_callback(
                            lambda delivery, answered=answered: answered(delivery.exception())
                        )
                await asyncio.sleep(0.001)
            await producer.flush()
            await asyncio.sleep(0.05)
        return latencies.figures()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def confluent(bootstrap: str, topic: str, pace: Callable[[], Pace]) -> dict[str, Any]:
    from confluent_kafka import Producer as ConfluentProducer  # noqa: PLC0415 - the child's

    keys = Random(1)
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
    )
    producer.list_topics(topic, timeout=10)
    gc.freeze()
    latencies, going = Latencies(), pace()
    while not going.over:
        for kind, count in going.due().items():
            for _ in range(count):
                key = b"%d" % keys.randrange(10**6) if kind == "keyed" else None
                answered = latencies.of(kind)
                producer.produce(
                    topic, VALUE, key, on_delivery=lambda e, _, answered=answered: answered(e)
                )
        producer.poll(0.001)
    producer.flush()
    return latencies.figures()


def work(wanted: argparse.Namespace) -> dict[str, Any]:
    client: Callable[..., dict[str, Any]] = globals()[wanted.work]

    def pace() -> Pace:
        return Pace(wanted.rate, wanted.unkeyed, wanted.seconds + WARM_UP)

    return client(wanted.bootstrap, wanted.topic, pace)


async def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    clients = wanted.clients.split(",")
    runs: dict[str, list[Any]] = {client: [] for client in clients}
    console = Console(stderr=True)
    async with LocalCluster(brokers=3, long_lived=True) as cluster:
        await cluster.proxy(0).delay_produce(wanted.delay / 1000)
        with Progress(console=console) as progress:
            task = progress.add_task("mixed load", total=wanted.repeat * len(clients))
            for turn in range(wanted.repeat):
                for client in clients:
                    progress.update(task, description=client)
                    topic = f"mixed-{client}-{turn}"
                    await create_topics(cluster, [topic], 3)
                    runs[client].append(
                        await BENCHMARK.figures(client, cluster.proxied_bootstrap, topic, wanted)
                    )
                    progress.advance(task)
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    return {"machine": machine, "options": BENCHMARK.options(wanted), "runs": runs}


def table(found: dict[str, Any]) -> Table:
    shown = Table(title="latency in ms, median of the runs")
    shown.add_column("client")
    for kind in KINDS:
        for percent in ("50", "99", "99.9"):
            shown.add_column(f"{kind} p{percent}", justify="right")
    shown.add_column("failed", justify="right")
    for client, runs in found["runs"].items():
        row = [
            f"{median(run[kind][f'p{percent}_ms'] for run in runs):.1f}"
            for kind in KINDS
            for percent in ("50", "99", "99.9")
        ]
        shown.add_row(client, *row, str(sum(run["failed"] for run in runs)))
    return shown


BENCHMARK = ClientsApart(
    "benchmarks.mixed_load",
    __doc__,
    CLIENTS,
    {
        "seconds": (60.0, "counted, in each run"),
        "repeat": (3, "runs of each client"),
        "rate": (20_000.0, "records/s with a key"),
        "unkeyed": (20.0, "records/s without one"),
        "delay": (5.0, "of broker 0's answers, in ms"),
    },
    work,
    measure,
    table,
)

if __name__ == "__main__":
    BENCHMARK.main()
