"""The demonstration: a real dataset through three real brokers, one of which answers late.

Broker 0's Produce responses are held back one after the other by a proxy, as in the experiment of
KIP-794; the same rows are published in four settings, read back and compared.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.experiments.clients import make_client
from kafkaclient.experiments.flights import flights
from kafkaclient.experiments.load import Load, LoadSpec
from kafkaclient.experiments.readback import ReadBack, read_back
from kafkaclient.experiments.run import Labels, Run, measure
from kafkaclient.experiments.sampler import Samples, sampling
from kafkaclient.experiments.topics import create_topics, produce_count
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from kafkaclient.experiments.payload import KeyValue
    from kafkaclient.experiments.record import RunRecord
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["SETTINGS", "DemoPlan", "DemoRun", "DemoSetting", "Watcher", "run_demo"]

SLOW_BROKER = 0
_BROKERS = 3
_LINGER_MS = 5.0  # the producer's default, which no setting changes
_WARM_UP_S = 3.0


@dataclass(frozen=True, slots=True)
class DemoSetting:
    """One run's name, options (Kafka's dotted names) and whether rows are keyed by carrier."""

    name: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)
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
    """How large the demonstration is; the defaults take four minutes."""

    rows: int | None = None
    """Rows to publish in each run; None for all 336,776."""
    rate: float = 8000.0
    """Rows per second."""
    delay_ms: float = 20.0
    """How late each Produce response of broker 0 is."""
    partitions: int = 12
    """Partitions of each topic, led by the brokers in turn."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A run, what was found in its topic, and its gauges over time."""

    setting: DemoSetting
    run: Run
    record: RunRecord
    read_back: ReadBack
    samples: Samples

    def as_json(self) -> dict[str, Any]:
        return {**self.record.as_json(), "read_back": self.read_back.as_json()}


class Watcher(Protocol):
    """Shows somebody what the demonstration is doing."""

    def say(self, text: str) -> None:
        """Something begins, or has ended."""

    def working(
        self, text: str, total: int, done: Callable[[], int]
    ) -> AbstractAsyncContextManager[object]:
        """Something with a measurable progress goes on while the block lasts."""


async def run_demo(plan: DemoPlan, watcher: Watcher) -> list[DemoRun]:
    """Start the brokers, make the runs, end the brokers (also when cancelled)."""
    watcher.say(f"Starting {_BROKERS} Kafka brokers and reading the flights")
    reading = asyncio.create_task(asyncio.to_thread(flights, plan.rows, keyed=True))
    async with LocalCluster(brokers=_BROKERS) as cluster:
        rows = await reading
        watcher.say(
            f"Brokers are up at {cluster.bootstrap}; {len(rows):,} flights, "
            f"{sum(len(value) for _key, value in rows) / 1e6:.0f} MB of JSON"
        )
        # The rows stay until the end; to look them through again and again would show as latency.
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
    client = make_client("kafkaclient", _config(cluster, setting.options), setting.topic)
    load = Load(client, LoadSpec(num_records=len(sent), rate=plan.rate))
    before = await produce_count(cluster)
    async with (
        watcher.working(f"{label}: publishing", len(sent), lambda: load.acknowledged),
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
    """Give the brokers' virtual machines time to compile, or the first run would pay for it."""
    number = min(len(rows), int(plan.rate * _WARM_UP_S))
    client = make_client("kafkaclient", _config(cluster, {}), "warm-up")
    load = Load(client, LoadSpec(num_records=number, rate=plan.rate))
    async with watcher.working("Warming the brokers up", number, lambda: load.acknowledged):
        await measure(client, load, rows, Labels("warm-up", _LINGER_MS))


def _config(cluster: ClusterHandle, options: Mapping[str, str]) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.proxied_bootstrap,
        "client.id": "kafkaclient-demo",
        **options,
    }
