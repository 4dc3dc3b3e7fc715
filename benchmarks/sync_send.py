"""What a record costs a program without an event loop.

``python -m benchmarks.sync_send`` starts a broker; an argument names a running one instead.

``SyncProducer.send``, confluent-kafka's ``produce`` and kafka-python's ``send`` take turns: each
sends the records in a loop and then flushes. Columns, in microseconds per record: the loop alone,
until the last acknowledgement, and the CPU time of the whole process until then. The figures of a
client are the medians of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka

import kafkaclient.wire.codec  # noqa: F401 - imports kafka-python without its warnings
from kafkaclient import SyncProducer
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CLIENTS", "Cost", "main", "measure"]

VALUE = bytes(100)
LINGER_MS = 5
WARM_UP = 1000  # records
FLUSH_S = 60.0


class Cost(NamedTuple):
    """Microseconds per record."""

    call: float
    delivered: float
    cpu: float


class Client(NamedTuple):
    """A client with the same way to send and flush as the others."""

    send: Callable[[int], Any]
    """Sends the given number of records, in a loop of the client's own calls."""
    flush: Callable[[], Any]


@contextmanager
def _ours(bootstrap: str, topic: str, **options: Any) -> Iterator[Client]:
    with SyncProducer(bootstrap, linger_ms=LINGER_MS, **options) as producer:

        def send(count: int) -> None:
            for _ in range(count):
                producer.send(topic, VALUE)

        yield Client(send, lambda: producer.flush(FLUSH_S))


@contextmanager
def _ours_many(bootstrap: str, topic: str, **options: Any) -> Iterator[Client]:
    with SyncProducer(bootstrap, linger_ms=LINGER_MS, **options) as producer:
        yield Client(
            lambda count: producer.send_many(topic, [VALUE] * count),
            lambda: producer.flush(FLUSH_S),
        )


@contextmanager
def _confluent(bootstrap: str, topic: str) -> Iterator[Client]:
    options = {"bootstrap.servers": bootstrap, "linger.ms": LINGER_MS, "enable.idempotence": True}
    producer = confluent_kafka.Producer(options)

    def send(count: int) -> None:
        for _ in range(count):
            producer.produce(topic, VALUE)
            producer.poll(0)

    yield Client(send, lambda: producer.flush(FLUSH_S))


@contextmanager
def _kafka_python(bootstrap: str, topic: str) -> Iterator[Client]:
    producer = import_module("kafka").KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, acks="all", enable_idempotence=True
    )

    def send(count: int) -> None:
        for _ in range(count):
            producer.send(topic, VALUE)

    yield Client(send, lambda: producer.flush(FLUSH_S))
    producer.close()


CLIENTS = {
    "SyncProducer.send": _ours,
    "SyncProducer.send_many": _ours_many,
    "confluent-kafka produce": _confluent,
    "kafka-python send": _kafka_python,
}


def measure(client: Client, records: int) -> Cost:
    """Send the records, and wait for their outcome."""
    client.send(WARM_UP)
    client.flush()
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    client.send(records)
    sent = time.perf_counter()
    client.flush()
    ended, cpu = time.perf_counter(), time.process_time() - cpu
    return Cost(*(1e6 * s / records for s in (sent - began, ended - began, cpu)))


async def _on(given: argparse.Namespace) -> dict[str, list[Cost]]:
    if given.bootstrap is not None:
        return _rounds(given, given.bootstrap)
    async with LocalCluster(brokers=1) as cluster:
        return await asyncio.to_thread(_rounds, given, cluster.bootstrap)


def _rounds(given: argparse.Namespace, bootstrap: str) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in CLIENTS}
    for _ in range(given.rounds):
        for name, open_client in CLIENTS.items():
            with open_client(bootstrap, given.topic) as client:
                costs[name].append(measure(client, given.records))
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap", nargs="?")
    parser.add_argument("--topic", default="sync-send")
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="keep the figures of all rounds here, as JSON")
    given = parser.parse_args()
    costs = asyncio.run(_on(given))
    if given.out is not None:
        given.out.write_text(json.dumps(costs), encoding="utf-8")
    print(f"{'us per record':26} {'call':>8} {'delivered':>10} {'cpu':>8}")
    for name, rounds in costs.items():
        call, delivered, cpu = (median(column) for column in zip(*rounds, strict=True))
        print(f"{name:26} {call:8.2f} {delivered:10.2f} {cpu:8.2f}")


if __name__ == "__main__":
    main()
