"""One of three brokers takes nothing for a while: what becomes of the records for the others?

    python -m benchmarks.stalled_broker [--stall 60] [--rate 3000] [--buffer 5000000]
                                        [--clients kafkaclient-send,confluent,...] [--out FILE]

Three local brokers, one partition each, replication 1. ``--rate`` records of 1000 bytes with random
keys are due each second, whatever happens. Broker 0's proxy forwards nothing for ``--stall``
seconds. ``--buffer`` bytes of memory where the client has such a bound: the records for one broker
fill it in five seconds. Each client runs in a process of its own. ``send``: a task for each record;
``nowait``: refused records are counted; ``waiting``: 100 tasks that await each record.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter, defaultdict
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clients_apart import ClientsApart
from experiments.topics import create_topics
from kafkaclient.errors import BufferFullError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from kafkaclient import Delivery

CLIENTS = (
    "kafkaclient-send",
    "kafkaclient-nowait",
    "kafkaclient-waiting",
    "kafkaclient-many",
    "aiokafka",
    "confluent",
)
VALUE = bytes(1000)
QUIET_S = 10.0
"""Seconds of load before the stall, the first of which are not counted, and after it."""
WARM_UP_S = 3.0

_WORKERS = 100
Due = tuple[bytes, int, float]
"""A record's key, its partition, and when it is due."""

clock = time.monotonic


class Answers:
    """By phase, and by whether the record's broker is the stalled one: counts and latencies."""

    def __init__(self, stall: float) -> None:
        self._began = clock()
        self._ends = (WARM_UP_S, QUIET_S, QUIET_S + stall, 2 * QUIET_S + stall)
        self.over = self._began + self._ends[-1]
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._took: dict[tuple[str, str], list[float]] = defaultdict(list)

    def phase(self, at: float) -> str:
        names = ("warm-up", "before", "during", "after", "later")
        since = at - self._began
        return names[sum(since >= end for end in self._ends)]

    def due(self, partition: int, at: float) -> None:
        self._counts["due", self.phase(at), _which(partition)] += 1

    def done(self, partition: int, at: float, error: BaseException | None) -> None:
        """The record that was due at ``at`` has its outcome."""
        now, which = clock(), _which(partition)
        if error is not None:
            self._counts["failed", self.phase(at), which] += 1
            return
        self._counts["acked", self.phase(now), which] += 1
        self._took[self.phase(at), which].append(now - at)

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for phase in ("before", "during", "after"):
            for which in ("well", "stalled"):
                took = sorted(self._took[phase, which])
                found[f"{phase}, {which}"] = {
                    "due": self._counts["due", phase, which],
                    "acked": self._counts["acked", phase, which],
                    "failed": self._counts["failed", phase, which],
                    "p50_ms": round(1e3 * took[len(took) // 2], 1) if took else None,
                    "p99_ms": round(1e3 * took[len(took) * 99 // 100], 1) if took else None,
                }
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return found | {"peak_mb": usage.ru_maxrss // 1024}


def _which(partition: int) -> str:
    return "stalled" if partition == 0 else "well"


class Load:
    """The records that are due, at a steady rate: key, partition, and when."""

    def __init__(self, rate: float) -> None:
        self._rate, self._keys = rate, Random(1)
        self._began, self._sent = clock(), 0

    def due(self) -> list[Due]:
        count = int((clock() - self._began) * self._rate) - self._sent
        first, self._sent = self._sent, self._sent + count
        keys = [b"%d" % self._keys.randrange(10**6) for _ in range(count)]
        at = self._began
        return [
            (key, partition_for_key(key, 3), at + (first + n) / self._rate)
            for n, key in enumerate(keys)
        ]


class Ours:
    """The ways of sending of this package, one for each ``--clients kafkaclient-...``."""

    def __init__(self, producer: Producer, wanted: argparse.Namespace) -> None:
        self._producer = producer
        self._topic = wanted.topic
        self.answers = Answers(wanted.stall)
        self.tasks: set[asyncio.Task[None]] = set()
        self._backlog: asyncio.Queue[Due] = asyncio.Queue()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _send(self, key: bytes, partition: int, at: float) -> None:
        try:
            done = await self._producer.send(self._topic, VALUE, key)
            await done
        except Exception as error:  # noqa: BLE001 - it is counted
            self.answers.done(partition, at, error)
        else:
            self.answers.done(partition, at, None)

    async def _send_many(self, records: list[Due]) -> None:
        keys, failure = [key for key, _, _ in records], None
        try:
            await (await self._producer.send_many(self._topic, [VALUE] * len(keys), keys=keys))
        except Exception as error:  # noqa: BLE001 - it is counted
            failure = error
        for _, partition, at in records:
            self.answers.done(partition, at, failure)

    async def work(self) -> None:
        while True:
            await self._send(*await self._backlog.get())

    def send(self, records: list[Due]) -> None:
        for record in records:
            self.start(self._send(*record))

    def many(self, records: list[Due]) -> None:
        if records:
            self.start(self._send_many(records))

    def waiting(self, records: list[Due]) -> None:
        for record in records:
            self._backlog.put_nowait(record)

    def nowait(self, records: list[Due]) -> None:
        for key, partition, at in records:
            try:
                done = self._producer.send_nowait(self._topic, VALUE, key)
            except BufferFullError as error:
                self.answers.done(partition, at, error)
                continue
            done.add_done_callback(partial(self._answered, partition, at))

    def _answered(self, partition: int, at: float, done: Delivery) -> None:
        self.answers.done(partition, at, done.exception())


async def kafkaclient(how: str, wanted: argparse.Namespace) -> dict[str, Any]:
    async with Producer(wanted.bootstrap, buffer_memory=wanted.buffer) as producer:
        for partition in range(3):
            await producer.send_and_wait(wanted.topic, b"first", partition=partition)
        ours, load = Ours(producer, wanted), Load(wanted.rate)
        for _ in range(_WORKERS if how == "waiting" else 0):
            ours.start(ours.work())
        while clock() < ours.answers.over:
            records = load.due()
            for _, partition, at in records:
                ours.answers.due(partition, at)
            getattr(ours, how)(records)
            await asyncio.sleep(0.01)
        found = ours.answers.figures()
        for task in ours.tasks:
            task.cancel()
        await producer.stop(timeout=20)
    return found


async def aiokafka(_how: str, wanted: argparse.Namespace) -> dict[str, Any]:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - the child's

    producer = AIOKafkaProducer(
        bootstrap_servers=wanted.bootstrap, enable_idempotence=True, acks="all", linger_ms=5
    )
    await producer.start()
    for partition in range(3):
        await producer.send_and_wait(wanted.topic, b"first", partition=partition)
    answers, load = Answers(wanted.stall), Load(wanted.rate)
    tasks: set[asyncio.Task[None]] = set()

    async def send(key: bytes, partition: int, at: float) -> None:
        try:
            await producer.send_and_wait(wanted.topic, VALUE, key=key)
        except Exception as error:  # noqa: BLE001 - it is counted
            answers.done(partition, at, error)
        else:
            answers.done(partition, at, None)

    while clock() < answers.over:
        for key, partition, at in load.due():
            answers.due(partition, at)
            task = asyncio.create_task(send(key, partition, at))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.01)
    return answers.figures()


async def confluent(_how: str, wanted: argparse.Namespace) -> dict[str, Any]:
    from confluent_kafka import Producer as ConfluentProducer  # noqa: PLC0415 - the child's

    producer = ConfluentProducer(
        {
            "bootstrap.servers": wanted.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": wanted.buffer // 1000,
            "log_level": 2,
        }
    )
    for partition in range(3):
        producer.produce(wanted.topic, b"first", partition=partition)
    producer.flush()
    answers, load = Answers(wanted.stall), Load(wanted.rate)
    while clock() < answers.over:
        for key, partition, at in load.due():
            answers.due(partition, at)
            try:
                producer.produce(
                    wanted.topic,
                    VALUE,
                    key,
                    on_delivery=lambda error, _, p=partition, at=at: answers.done(
                        p, at, None if error is None else RuntimeError(str(error))
                    ),
                )
            except BufferError as error:
                answers.done(partition, at, error)
        producer.poll(0)
        await asyncio.sleep(0.005)
    return answers.figures()


def work(wanted: argparse.Namespace) -> dict[str, Any]:
    client, _, how = wanted.work.partition("-")
    run = {"kafkaclient": kafkaclient, "aiokafka": aiokafka, "confluent": confluent}[client]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(how, wanted))


async def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    clients = wanted.clients.split(",")
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(clients))
        for client in clients:
            progress.update(task, description=client)
            async with LocalCluster(3) as cluster:
                topic = f"stalled-{client}"
                await create_topics(cluster, [topic], 3)
                runs[client] = await drive(client, cluster, topic, wanted)
            progress.advance(task)
    return {"options": BENCHMARK.options(wanted), "runs": runs}


async def drive(
    client: str, cluster: Any, topic: str, wanted: argparse.Namespace
) -> dict[str, Any]:
    leader = await leader_of(cluster.bootstrap, topic)
    run = BENCHMARK.figures(client, cluster.proxied_bootstrap, topic, wanted)
    reading = asyncio.create_task(run)
    await asyncio.sleep(QUIET_S + 1.0)  # the start of the process, about
    proxy = cluster.proxy(leader)
    await proxy.stall()
    await asyncio.sleep(wanted.stall)
    await proxy.resume()
    return await reading


async def leader_of(bootstrap: str, topic: str) -> int:
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"leader?", partition=0)
        return next(p.leader for p in producer.load().partitions if p.partition == 0)


def table(found: dict[str, Any]) -> Table:
    shown = Table(title="records/s acknowledged for the brokers that are well, and their p99")
    shown.add_column("client")
    for name in ("before", "p99 ms", "during", "p99 ms", "after", "refused, well", "peak MB"):
        shown.add_column(name, justify="right")
    seconds = {"before": QUIET_S - WARM_UP_S, "during": found["options"]["stall"], "after": QUIET_S}
    for client, run in found["runs"].items():
        row = []
        for phase in ("before", "during"):
            at = run[f"{phase}, well"]
            row += [f"{at['acked'] / seconds[phase]:,.0f}", str(at["p99_ms"])]
        row.append(f"{run['after, well']['acked'] / seconds['after']:,.0f}")
        row += [str(run["during, well"]["failed"]), str(run["peak_mb"])]
        shown.add_row(client, *row)
    return shown


BENCHMARK = ClientsApart(
    "benchmarks.stalled_broker",
    __doc__,
    CLIENTS,
    {
        "stall": (60.0, "seconds"),
        "rate": (3000.0, "records/s"),
        "buffer": (5_000_000, "bytes"),
    },
    work,
    measure,
    table,
)

if __name__ == "__main__":
    BENCHMARK.main()
