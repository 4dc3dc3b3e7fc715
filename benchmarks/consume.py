"""How fast are records consumed?

    python -m benchmarks.consume [--rounds 3] [--small 2000000] [--large 500000]
                                 [--clients kafkaclient,aiokafka,...] [--out FILE]

One local broker, a topic with records of 100 bytes and one with 1000 bytes, each with four
partitions, uncompressed. Each client reads both topics to the end, in a process of its own and in a
new group; the clients take turns, ``--rounds`` times. The time is from the first record to the
last; the records are counted, and so are the bytes of their values. CPU time is that of the whole
process, with its threads, in the same period. Shown are the medians.

kafkaclient: by record, ``batches`` and ``arrow`` (a pyarrow.RecordBatch of each batch); ``reader``
reads without a group, by record and as Arrow. aiokafka:
by record and ``getmany()``. confluent: ``consume(500)`` and ``poll()``.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow
import uvloop
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer as ConfluentConsumer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clients_apart import ClientsApart
from experiments.topics import create_topics
from kafkaclient import Producer
from kafkaclient.consumer import Consumer
from kafkaclient.reader import Reader
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    import argparse

SIZES = {"small": 100, "large": 1000}
PARTITIONS = 4
_SLICE = 10_000


class Meter:
    """Counts records and bytes until all have come."""

    def __init__(self, records: int) -> None:
        self.left, self._records, self._bytes = records, records, 0
        self._wall = self._cpu = 0.0

    def took(self, records: int, nbytes: int) -> bool:
        """Count records. Whether all have come."""
        if self.left == self._records:
            self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.left -= records
        self._bytes += nbytes
        return self.left <= 0

    def figures(self) -> dict[str, Any]:
        wall_s, cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if self.left:
            raise RuntimeError(f"{-self.left} records too many")
        return {
            "records_per_s": round(self._records / wall_s),
            "cpu_us_per_record": round(1e6 * cpu_s / self._records, 3),
            "records": self._records,
            "bytes": self._bytes,
        }


async def _kafkaclient(how: str, options: dict[str, str], topic: str, meter: Meter) -> None:
    async with Consumer(
        options["bootstrap.servers"],
        group_id=options["group.id"],
        topics=[topic],
        auto_offset_reset="earliest",
    ) as consumer:
        if how == "records":
            async for record in consumer:
                if meter.took(1, len(record.value or b"")):
                    return
        async for batch in consumer.batches():
            if how == "arrow":
                found = pyarrow.record_batch(batch)
                nbytes = found.column("value").nbytes - 4 * (found.num_rows + 1)
            else:
                nbytes = batch.content_bytes
            if meter.took(len(batch), nbytes):
                return


async def _reader(how: str, options: dict[str, str], topic: str, meter: Meter) -> None:
    async with Reader(options["bootstrap.servers"]) as reader:
        starts = await reader.offsets(topic, at="earliest")
        ends = await reader.offsets(topic, at="latest")
        async for batch in reader.read({p: (starts[p], ends[p]) for p in starts}):
            if how == "records":
                meter.took(len(batch), sum(len(record.value or b"") for record in batch))
                continue
            found = pyarrow.record_batch(batch)
            meter.took(len(batch), found.column("value").nbytes - 4 * (found.num_rows + 1))


async def _aiokafka(how: str, options: dict[str, str], topic: str, meter: Meter) -> None:
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=options["bootstrap.servers"],
        group_id=options["group.id"],
        auto_offset_reset="earliest",
    ) as consumer:
        if how == "records":
            async for record in consumer:
                if meter.took(1, len(record.value)):
                    return
        while True:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                if meter.took(len(records), sum(len(record.value) for record in records)):
                    return


def _confluent(how: str, options: dict[str, str], topic: str, meter: Meter) -> None:
    consumer = ConfluentConsumer({**options, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        while True:
            if how == "consume":
                records = consumer.consume(500, 1.0)
            else:
                record = consumer.poll(1.0)
                records = [] if record is None else [record]
            if records and meter.took(len(records), sum(len(r.value()) for r in records)):
                return
    finally:
        consumer.close()


CLIENTS = {
    "kafkaclient": (_kafkaclient, "records"),
    "kafkaclient-batches": (_kafkaclient, "batches"),
    "kafkaclient-arrow": (_kafkaclient, "arrow"),
    "reader": (_reader, "records"),
    "reader-arrow": (_reader, "arrow"),
    "aiokafka": (_aiokafka, "records"),
    "aiokafka-getmany": (_aiokafka, "getmany"),
    "confluent-consume": (_confluent, "consume"),
    "confluent-poll": (_confluent, "poll"),
}


def work(wanted: argparse.Namespace) -> dict[str, Any]:
    consume, how = CLIENTS[wanted.work]
    found = {}
    for name in SIZES:
        meter = Meter(getattr(wanted, name))
        options = {"bootstrap.servers": wanted.bootstrap, "group.id": str(uuid4())}
        running = consume(how, options, f"{wanted.topic}-{name}", meter)
        if running is not None:
            uvloop.run(running)
        found[name] = meter.figures()
    return found


async def _fill(bootstrap: str, topic: str, records: int, size: int) -> None:
    async with Producer(bootstrap, linger_ms=5) as producer:
        value = bytes(size)
        for first in range(0, records, _SLICE):
            number = min(_SLICE, records - first)
            await (
                await producer.send_many(
                    topic, [value] * number, partition=first // _SLICE % PARTITIONS
                )
            )


async def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    clients = wanted.clients.split(",")
    found: dict[str, Any] = {client: {name: [] for name in SIZES} for client in clients}
    async with LocalCluster(brokers=1) as cluster:
        await create_topics(cluster, [f"consume-{name}" for name in SIZES], PARTITIONS)
        for name, size in SIZES.items():
            await _fill(cluster.bootstrap, f"consume-{name}", getattr(wanted, name), size)
        with Progress(console=Console(stderr=True)) as progress:
            for _ in progress.track(range(int(wanted.rounds)), description="rounds"):
                for client in clients:
                    took = await RUN.figures(client, cluster.bootstrap, "consume", wanted)
                    for name in SIZES:
                        found[client][name].append(took[name])
    return found


def table(found: dict[str, Any]) -> Table:
    shown = Table(title="records consumed")
    shown.add_column("client", no_wrap=True)
    for size in SIZES.values():
        shown.add_column(f"records/s, {size} B", justify="right")
        shown.add_column(f"CPU us/record, {size} B", justify="right")
    for client, by_size in found.items():
        cells = []
        for name in SIZES:
            cells.append(f"{median(each['records_per_s'] for each in by_size[name]):,.0f}")
            cells.append(f"{median(each['cpu_us_per_record'] for each in by_size[name]):.2f}")
        shown.add_row(client, *cells)
    return shown


RUN = ClientsApart(
    "benchmarks.consume",
    __doc__,
    tuple(CLIENTS),
    {
        "rounds": (3, "how often each client reads both topics"),
        "small": (2_000_000, "records of 100 bytes"),
        "large": (500_000, "records of 1000 bytes"),
    },
    work,
    measure,
    table,
)

if __name__ == "__main__":
    RUN.main()
