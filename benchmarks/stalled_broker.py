"""Some brokers take nothing for a while: what becomes of the records for the others?

    python -m benchmarks.stalled_broker [--brokers 3] [--stalled 1] [--stall 60] [--rate 3000]
                                        [--buffer 5000000] [--out FILE]
                                        [--clients kafkaclient-send,confluent,...]

Local brokers with one partition each, replication 1. ``--rate`` records of 1000 bytes with random
keys are due each second, whatever happens. The proxies of ``--stalled`` brokers forward nothing for
``--stall`` seconds. ``--buffer`` bytes of memory where the client has such a bound: the records for
one of three brokers fill it in five seconds. Each client runs in a process of its own. ``send``: a
task for each record; ``nowait``: refused records are counted; ``waiting``: 100 tasks that await
each record; ``many``: a call of ``send_many`` in a task for each 10 ms; ``sync-8``: eight threads
with a ``SyncProducer``; ``drop-in``: ``kafkaclient.aiokafka``.

``caught up`` is when the last record for the stalled brokers that was due before the end of the
stall is acknowledged, in seconds after the first answer. ``alone``: how long as many records take
in one go, with nothing else to send.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clients_apart import ClientsApart
from benchmarks.stalled_load import QUIET_S, WARM_UP_S, Answers, Due, Load, clock
from experiments.topics import create_topics
from kafkaclient.errors import BufferFullError
from kafkaclient.hooks import Hooks
from kafkaclient.producer.producer import Producer
from kafkaclient.sync import SyncProducer
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from kafkaclient import Delivery
    from kafkaclient.hooks import FinishedBatch

CLIENTS = (
    "kafkaclient-send",
    "kafkaclient-nowait",
    "kafkaclient-waiting",
    "kafkaclient-many",
    "kafkaclient-sync-1",
    "kafkaclient-sync-8",
    "kafkaclient-drop-in",
    "aiokafka",
    "confluent",
)
VALUE = bytes(1000)
_WORKERS = 100


class Acknowledged(Hooks):
    """The rows of bulk calls, which have one outcome for all: a partition's rows are acknowledged
    in the order of the calls."""

    def __init__(self) -> None:
        self.rows: dict[int, deque[float]] = defaultdict(deque)
        self.answers: Answers | None = None

    def on_batch(self, batch: FinishedBatch) -> None:
        if self.answers is not None:
            rows = self.rows[batch.partition]
            for _ in range(min(batch.records, len(rows))):
                self.answers.done(batch.partition, rows.popleft(), batch.error)


class Ours:
    """The ways of sending of this package, one for each ``--clients kafkaclient-...``."""

    def __init__(
        self, producer: Producer, acknowledged: Acknowledged, wanted: argparse.Namespace
    ) -> None:
        self._producer = producer
        self._topic = wanted.topic
        self.answers = Answers(wanted)
        self._acknowledged = acknowledged
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
        keys = [key for key, _, _ in records]
        await (await self._producer.send_many(self._topic, [VALUE] * len(keys), keys=keys))

    async def work(self) -> None:
        while True:
            await self._send(*await self._backlog.get())

    def send(self, records: list[Due]) -> None:
        for record in records:
            self.start(self._send(*record))

    def many(self, records: list[Due]) -> None:
        self._acknowledged.answers = self.answers
        for _, partition, at in records:
            self._acknowledged.rows[partition].append(at)
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
    hooks = Acknowledged()
    async with Producer(wanted.bootstrap, buffer_memory=wanted.buffer, hooks=hooks) as producer:
        for partition in range(wanted.brokers):
            await producer.send_and_wait(wanted.topic, b"first", partition=partition)
        ours, load = Ours(producer, hooks, wanted), Load(wanted)
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


def sync(how: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """``sync-8``: eight threads send, each its part of the records."""
    threads = int(how.removeprefix("sync-"))
    producer = SyncProducer(wanted.bootstrap, buffer_memory=wanted.buffer)
    for partition in range(wanted.brokers):
        producer.send_and_wait(wanted.topic, b"first", partition=partition)
    answers = Answers(wanted)

    def send(part: int) -> None:
        load = Load(wanted, part, threads)
        while clock() < answers.over:
            for key, partition, at in load.due():
                answers.due(partition, at)
                try:
                    done = producer.send(wanted.topic, VALUE, key)
                except BufferFullError as error:
                    answers.done(partition, at, error)
                    continue
                done.add_done_callback(
                    lambda done, p=partition, at=at: answers.done(p, at, done.exception())
                )
            time.sleep(0.01)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))
    found = answers.figures()
    producer.close(timeout=20)
    return found


async def aiokafka(how: str, wanted: argparse.Namespace) -> dict[str, Any]:
    module = import_module("kafkaclient.aiokafka" if how == "drop-in" else "aiokafka")
    bound = {"buffer_memory": wanted.buffer} if how == "drop-in" else {}
    producer = module.AIOKafkaProducer(
        bootstrap_servers=wanted.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=5,
        **bound,
    )
    await producer.start()
    for partition in range(wanted.brokers):
        await producer.send_and_wait(wanted.topic, b"first", partition=partition)
    answers, load = Answers(wanted), Load(wanted)
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
    found = answers.figures()
    await producer.stop()
    return found


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
    for partition in range(wanted.brokers):
        producer.produce(wanted.topic, b"first", partition=partition)
    producer.flush()
    answers, load = Answers(wanted), Load(wanted)
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
    if how.startswith("sync"):
        return sync(how, wanted)
    if how == "drop-in":
        run = aiokafka
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(how, wanted))


async def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    clients = wanted.clients.split(",")
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(clients))
        for client in clients:
            progress.update(task, description=client)
            async with LocalCluster(wanted.brokers) as cluster:
                topic = f"stalled-{client}"
                await create_topics(cluster, [topic], wanted.brokers)
                runs[client] = await drive(client, cluster, topic, wanted)
            progress.advance(task)
    return {"options": BENCHMARK.options(wanted), "runs": runs}


async def drive(
    client: str, cluster: Any, topic: str, wanted: argparse.Namespace
) -> dict[str, Any]:
    proxies = [cluster.proxy(node) for node in await leaders(cluster.bootstrap, topic, wanted)]
    alone = await free_rate(cluster.proxied_bootstrap, topic, wanted.stalled)
    run = BENCHMARK.figures(client, cluster.proxied_bootstrap, topic, wanted)
    reading = asyncio.create_task(run)
    await asyncio.sleep(QUIET_S + 1.0)  # the start of the process, about
    for proxy in proxies:
        await proxy.stall()
    await asyncio.sleep(wanted.stall)
    for proxy in proxies:
        await proxy.resume()
    found = await reading
    backlog = found["during, stalled"]["due"] - found["during, stalled"]["failed"]
    return found | {"alone_s": round(backlog / alone, 2)}


async def leaders(bootstrap: str, topic: str, wanted: argparse.Namespace) -> list[int]:
    """The leaders of the partitions that are to be stalled."""
    async with Producer(bootstrap) as producer:
        for partition in range(wanted.stalled):
            await producer.send_and_wait(topic, b"leader?", partition=partition)
        led = {p.partition: p.leader for p in producer.load().partitions}
        return [led[partition] for partition in range(wanted.stalled)]


async def free_rate(bootstrap: str, topic: str, partitions: int) -> float:
    """How many records per second these partitions take in one go."""
    rows, began = [VALUE] * 5_000, 0.0
    async with Producer(bootstrap) as producer:
        for _ in range(2):  # the first time is a warm-up
            began = clock()
            await asyncio.gather(
                *(producer.send_many(topic, rows, partition=p) for p in range(partitions))
            )
            await producer.flush()
        return partitions * len(rows) / (clock() - began)


def table(found: dict[str, Any]) -> Table:
    shown = Table(title="records/s acknowledged for the brokers that are well, and their p99")
    shown.add_column("client")
    columns = ("before", "p99 ms", "during", "p99 ms", "after", "refused, well", "peak MB")
    for name in (*columns, "caught up s", "alone s"):
        shown.add_column(name, justify="right")
    seconds = {"before": QUIET_S - WARM_UP_S, "during": found["options"]["stall"], "after": QUIET_S}
    for client, run in found["runs"].items():
        row = []
        for phase in ("before", "during"):
            at = run[f"{phase}, well"]
            row += [f"{at['acked'] / seconds[phase]:,.0f}", str(at["p99_ms"])]
        row.append(f"{run['after, well']['acked'] / seconds['after']:,.0f}")
        row += [str(run["during, well"]["failed"]), str(run["peak_mb"])]
        row += [str(run["caught_up_s"]), str(run["alone_s"])]
        shown.add_row(client, *row)
    return shown


BENCHMARK = ClientsApart(
    "benchmarks.stalled_broker",
    __doc__,
    CLIENTS,
    {
        "brokers": (3, "brokers, each with one partition"),
        "stalled": (1, "brokers that take nothing"),
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
