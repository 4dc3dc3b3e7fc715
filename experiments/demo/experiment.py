"""The demonstration: a real data set through three real brokers, one of which answers late.

A proxy delays broker 0's Produce responses one after the other, as in the experiment of KIP-794.
The same rows are published in four settings, read back and compared. In two more runs, of this
client and of a peer, the broker takes nothing for a while.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from examples.flights import flights
from experiments.clients import OURS, client_config
from experiments.demo.sampler import Samples, sampling
from experiments.demo.stall import ManyTasks, Stall, rate_to_others, stalling
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
    stalled: bool = False
    """Whether broker 0 takes nothing in the middle of the run."""
    client: str = OURS


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
    DemoSetting("keyed, broker 0 stalled", "flights-stalled", keyed=True, stalled=True),
    DemoSetting(
        "confluent-kafka: keyed, broker 0 stalled",
        "flights-stalled-peer",
        keyed=True,
        stalled=True,
        client="confluent",
    ),
)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The size of the demonstration; the defaults take six minutes."""

    rows: int | None = None
    """Rows to publish in each run; None for all 336,776."""
    rate: float = 8000.0
    """Rows per second; half of it in the runs with a stalled broker."""
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
    stall: Stall | None = None
    to_others: tuple[float, float] | None = None
    """Rows per second to the other brokers, before the stall and during it."""

    def as_json(self) -> dict[str, Any]:
        rates = self.to_others or (None, None)
        return {
            **self.record.as_json(),
            **dict(zip(("to_others_before_per_s", "to_others_stalled_per_s"), rates, strict=True)),
            "read_back": self.read_back.as_json(),
        }


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
        settings = _installed(watcher)
        topics = ["warm-up", *(setting.topic for setting in settings)]
        await create_topics(cluster, topics, plan.partitions)
        await _warm_up(cluster, rows, plan, watcher)
        await cluster.delay_produce(SLOW_BROKER, plan.delay_ms / 1e3)
        watcher.say(f"Broker {SLOW_BROKER} now answers each Produce {plan.delay_ms:g} ms late")
        return [
            await _run(cluster, setting, rows, plan, watcher, f"{number}/{len(settings)}")
            for number, setting in enumerate(settings, 1)
        ]


def _installed(watcher: Watcher) -> list[DemoSetting]:
    if find_spec("confluent_kafka") is not None:
        return list(SETTINGS)
    watcher.say(
        "Left out confluent-kafka, which is not installed: pip install 'kafkaclient[bench]'"
    )
    return [setting for setting in SETTINGS if setting.client == OURS]


async def _run(
    cluster: ClusterHandle,
    setting: DemoSetting,
    rows: Sequence[KeyValue],
    plan: DemoPlan,
    watcher: Watcher,
    number: str,
) -> DemoRun:
    sent = rows if setting.keyed else [(None, value) for _key, value in rows]
    label = f"{number} {setting.name}"
    options, stall, rate = setting.options, None, plan.rate
    if setting.stalled:
        # Each row that waits for room has a task: at the full rate these would be what a core does.
        rate /= 2
        size = sum(len(value) for _key, value in rows) / len(rows)
        stall = Stall.of(rate, size, len(rows))
        options, sent = stall.options(setting.client), sent[: stall.rows]
        label += f" {stall.seconds:g} s"
    view = watcher.producer_view() if setting.client == OURS else None
    config = client_config(cluster.proxied_bootstrap, options)
    metrics = None if view is None else view.metrics
    client = (
        ManyTasks(config, setting.topic, metrics)
        if setting.stalled and setting.client == OURS
        else make_client(setting.client, config, setting.topic, metrics)
    )
    load = Load(client, LoadSpec(num_records=len(sent), rate=rate))
    before = await produce_count(cluster)
    async with (
        watcher.working(f"{label}: publishing", len(sent), lambda: load.acknowledged, view),
        sampling(client.traffic) as samples,
        stalling(cluster, SLOW_BROKER, stall) if stall else nullcontext(),
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
    to_others = rate_to_others(samples, SLOW_BROKER, stall) if stall else None
    watcher.say(f"{label}: {_verdict(record, found)}")
    return DemoRun(setting, run, record, found, samples, stall, to_others)


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
