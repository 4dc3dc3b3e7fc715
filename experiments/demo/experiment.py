"""The demonstration: a real data set through three real brokers, one of which answers late.

A proxy delays broker 0's Produce responses one after the other, as in the experiment of KIP-794.
The same rows are published in four settings, read back and compared.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from examples.flights import flights
from experiments.clients import OURS, client_config
from experiments.demo.sampler import Samples, sampling
from experiments.readback import ReadBack, read_back
from experiments.topics import create_topics, produce_count
from kafkaclient.perf.clients import make_client
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.run import Labels, LoadRun, measure
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.watcher import Watcher
    from kafkaclient.perf.run import RunRecord
    from kafkaclient.perf.traffic import KeyValue
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["SETTINGS", "DemoPlan", "DemoRun", "DemoSetting", "run_demo"]

SLOW_BROKER = 0
_BROKERS = 3
_LINGER_MS = 5.0  # the producer's default, which no setting changes
_WARM_UP_S = 3.0


@dataclass(frozen=True, slots=True)
class DemoSetting:
    """A run's name, topic and options, and whether its rows have the carrier as their key."""

    name: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)
    """By Kafka's dotted names."""
    keyed: bool = False


SETTINGS = (
    DemoSetting(
        "adaptive.partitioning.enable=false",
        "flights-uniform",
        {"adaptive.partitioning.enable": "false"},
    ),
    DemoSetting("default", "flights-default"),
    DemoSetting(
        "availability.timeout.ms=5", "flights-availability", {"availability.timeout.ms": "5"}
    ),
    DemoSetting("default, keyed by carrier", "flights-keyed", keyed=True),
)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The size of the demonstration; the defaults take four minutes."""

    rows: int | None = None
    """Rows to publish in each run; None for all 336,776."""
    rate: float = 8000.0
    """Rows per second."""
    delay_ms: float = 20.0
    """Delay of each Produce response of broker 0."""
    partitions: int = 12
    """Partitions of each topic, led by the brokers in turn."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A run, the comparison of its topic with what was sent, and the client's gauges over time."""

    setting: DemoSetting
    run: LoadRun
    record: RunRecord
    read_back: ReadBack
    samples: Samples

    def as_json(self) -> dict[str, Any]:
        return {**self.record.as_json(), "read_back": self.read_back.as_json()}


async def run_demo(plan: DemoPlan, watcher: Watcher) -> list[DemoRun]:
    """The runs on brokers that are started here, and ended here, also after a cancellation."""
    watcher.say(f"Starting {_BROKERS} Kafka brokers and reading the flights")
    reading = asyncio.create_task(asyncio.to_thread(flights, plan.rows, keyed=True))
    async with LocalCluster(brokers=_BROKERS) as cluster:
        rows = await reading
        watcher.say(
            f"Brokers are up at {cluster.bootstrap}; {len(rows):,} flights, "
            f"{sum(len(value) for _key, value in rows) / 1e6:.0f} MB of JSON"
        )
        # The rows live until the end. Collections that look through them would show as latency.
        gc.collect()
        gc.freeze()
        topics = ["warm-up", *(setting.topic for setting in SETTINGS)]
        await create_topics(cluster, topics, plan.partitions)
        await _warm_up(cluster, rows, plan, watcher)
        await cluster.delay_produce(SLOW_BROKER, plan.delay_ms / 1e3)
        watcher.say(f"Broker {SLOW_BROKER} now answers each Produce {plan.delay_ms:g} ms late")
        return [
            await _run(cluster, setting, rows, plan, watcher, number)
            for number, setting in enumerate(SETTINGS, 1)
        ]


async def _run(
    cluster: ClusterHandle,
    setting: DemoSetting,
    rows: Sequence[KeyValue],
    plan: DemoPlan,
    watcher: Watcher,
    number: int,
) -> DemoRun:
    sent = rows if setting.keyed else [(None, value) for _key, value in rows]
    label = f"{number}/{len(SETTINGS)} {setting.name}"
    view = watcher.producer_view()
    client = make_client(
        OURS,
        client_config(cluster.proxied_bootstrap, setting.options),
        setting.topic,
        None if view is None else view.metrics,
    )
    load = Load(client, LoadSpec(num_records=len(sent), rate=plan.rate))
    before = await produce_count(cluster)
    async with (
        watcher.working(f"{label}: publishing", len(sent), lambda: load.acknowledged, view),
        sampling(client.traffic) as samples,
    ):
        run = await measure(client, load, sent, Labels(setting.name, _LINGER_MS))
    counted = (await produce_count(cluster)).since(before)
    read = 0

    def progressed(records: int) -> None:
        nonlocal read
        read = records

    async with watcher.working(f"{label}: reading back", len(sent), lambda: read):
        found = await read_back(cluster.bootstrap, setting.topic, sent, on_progress=progressed)
    record = found.added_to(counted.added_to(run.record))
    watcher.say(f"{label}: {_verdict(record, found)}")
    return DemoRun(setting, run, record, found, samples)


def _verdict(record: RunRecord, found: ReadBack) -> str:
    p99 = "?" if record.p99_ms is None else f"{record.p99_ms:.1f}"
    if found.is_exact:
        checked = f"{found.records:,} rows read back, each once, in order per {found.ordered_by}"
    else:
        checked = (
            f"{found.lost:,} lost, {found.duplicated:,} duplicated, {found.reordered:,} reordered, "
            f"{found.unexpected:,} unexpected"
        )
    return f"{record.records_per_s:,.0f} rows/s, p99 {p99} ms; {checked}"


async def _warm_up(
    cluster: ClusterHandle, rows: Sequence[KeyValue], plan: DemoPlan, watcher: Watcher
) -> None:
    """Give the brokers' virtual machines time to compile before the first run."""
    number = min(len(rows), int(plan.rate * _WARM_UP_S))
    client = make_client(OURS, client_config(cluster.proxied_bootstrap), "warm-up")
    load = Load(client, LoadSpec(num_records=number, rate=plan.rate))
    async with watcher.working("Warming the brokers up", number, lambda: load.acknowledged):
        await measure(client, load, rows, Labels("warm-up", _LINGER_MS))
