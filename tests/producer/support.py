"""What the tests of the producer share, with types: fixtures return these (see conftest.py).

:func:`start_producer` starts a whole producer on a fake cluster. :class:`Bench` has only an
accumulator: the test is its producer, sender and clock. :class:`OverTcp` puts real sockets between
a producer and the fake cluster.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.cluster.view import PartitionView, TopicView
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
from kafkaclient.producer.batches.idempotence import ProducerIdentity
from kafkaclient.producer.batches.record import Record
from kafkaclient.producer.producer import Producer
from kafkaclient.producer.sender.batch_drainer import BatchDrainer
from kafkaclient.producer.sender.broker_lanes import BrokerSurvey
from kafkaclient.producer.settings import NEVER, AccumulatorSettings
from kafkaclient.producer.wakeup import Wakeup
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.records import BATCH_OVERHEAD, record_size_upper_bound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.partition_queue import PartitionQueue

__all__ = [
    "Bench",
    "Look",
    "Outcomes",
    "OverTcp",
    "StartProducer",
    "Values",
    "batch_drainer",
    "now",
    "one_topic",
    "outcomes_of",
    "start_producer",
    "values_of",
    "warm",
]

StartProducer: TypeAlias = "Callable[..., AbstractAsyncContextManager[Producer]]"
"""``start_producer(fake, **ProducerConfig options)``, for ``async with``."""

Outcomes: TypeAlias = "Callable[[Sequence[Delivery]], Awaitable[list[Any]]]"
Values: TypeAlias = "Callable[..., list[bytes | None]]"


def now() -> float:
    """The event loop's time in seconds."""
    return asyncio.get_running_loop().time()


def one_topic(
    partitions: int = 3, brokers: int = 3, *, round_trip_s: float = 0.0, **topic: Any
) -> FakeCluster:
    """A cluster with the topic ``t``. ``topic``: further arguments of ``create_topic``."""
    fake = FakeCluster(brokers)
    fake.round_trip_s = round_trip_s
    fake.create_topic("t", partitions, **topic)
    return fake


@asynccontextmanager
async def start_producer(fake: FakeCluster, **options: Any) -> AsyncIterator[Producer]:
    """``async with start_producer(fake, **options) as producer``: started, and stopped at the end.

    A producer that was stopped must have given back all its memory, and left no task and no
    timer in the loop.
    """
    options.setdefault("rng", Random(7))
    before = asyncio.all_tasks()
    async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
        yield producer
    buffer_pool = inspect(producer).accumulator.buffer_pool
    assert buffer_pool.available == buffer_pool.total, f"memory is not given back: {producer!r}"
    assert buffer_pool.on_free is None, "nothing waits for memory"
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks survived stop: {left}"


async def warm(producer: Producer, partitions: int = 6) -> None:
    """A record for each partition of ``t`` is acknowledged."""
    for partition in range(partitions):
        await producer.send_and_wait("t", b"", partition=partition)


async def outcomes_of(deliveries: Sequence[Delivery]) -> list[Any]:
    """What each delivery ended with: RecordMetadata or its error."""
    return await asyncio.gather(*deliveries, return_exceptions=True)


def values_of(fake: FakeCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values in a partition's log, in order."""
    return [record.value for record in fake.log(topic, partition)]


class Look:
    """What has become of the topic ``t``."""

    def is_v2(self, fake: FakeCluster) -> bool:
        return inspect(fake).transactions_v2

    def written(self, fake: FakeCluster, partitions: int = 6) -> list[bytes]:
        """All values, sorted."""
        return sorted(r.value or b"" for p in range(partitions) for r in fake.log("t", p))

    def committed(self, fake: FakeCluster, partitions: int = 6) -> list[bytes]:
        """What consumers of committed records see, sorted."""
        return sorted(r.value or b"" for p in range(partitions) for r in fake.committed_log("t", p))

    def all_ended(self, fake: FakeCluster, partitions: int = 6) -> bool:
        """Whether no log has an open transaction."""
        ends = [inspect(fake).partition("t", p).log.end_offset for p in range(partitions)]
        return ends == [fake.last_stable_offset("t", p) for p in range(partitions)]


def batch_drainer(accumulator: RecordAccumulator) -> BatchDrainer:
    """As the sender makes it."""
    return BatchDrainer(
        accumulator.ready_queues,
        accumulator.binding,
        accumulator.compressor,
        accumulator.incomplete,
        accumulator.identity,
        accumulator.buffer_pool,
    )


class _Woken(Wakeup):
    """Only notes when the sender is to be woken."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.times: list[float] = []

    def wake_at(self, when: float = 0.0) -> None:
        self.times.append(when)


class Bench:
    """A RecordAccumulator with one topic. ``leaders[p]`` leads partition p; -1 means no leader.

    Random draws are 0, 1, 2, ...; ``draws`` counts them. ``woken`` lists what the sender is told.
    """

    def __init__(
        self,
        leaders: Sequence[int] = (0, 0, 1),
        *,
        idempotent: bool = False,
        background: Any = None,
        **settings: Any,
    ) -> None:
        settings.setdefault("linger", 0.0)
        self.draws = 0
        self.wakeup = _Woken()
        self.woken = self.wakeup.times
        self.metrics = ProducerMetrics(lambda: 0.0)
        self.identity = ProducerIdentity(idempotent)
        if idempotent:
            self.identity.assign(1, 0)
        self.accumulator = RecordAccumulator(
            AccumulatorSettings(**settings),
            identity=self.identity,
            random31=self._draw,
            wakeup=self.wakeup,
            metrics=self.metrics,
            background=background,
        )
        self.incomplete = self.accumulator.incomplete
        self.lines = self.accumulator.ready_queues
        self.buffer_pool = self.accumulator.buffer_pool
        self.binder = batch_drainer(self.accumulator)
        self.topic = self.accumulator.topic("test")
        self.leaders = list(leaders)
        self.epochs = [0] * len(leaders)
        self.topic.view = self.view()

    def _draw(self) -> int:
        self.draws += 1
        return self.draws - 1

    def view(self) -> TopicView:
        known = zip(count(), self.leaders, self.epochs, strict=False)
        return TopicView("test", None, tuple(PartitionView(*fields) for fields in known))

    def lead(self, partition: int, leader: int, epoch: int | None = None, now: float = 0.0) -> None:
        """Metadata tells of a leader; by default its epoch is one more than the last."""
        self.leaders[partition] = leader
        self.epochs[partition] = self.epochs[partition] + 1 if epoch is None else epoch
        self.accumulator.update_topic(self.view(), now)

    def queue(self, partition: int) -> PartitionQueue:
        return self.topic.queue(partition)

    def put(
        self,
        partition: int | None = None,
        value: bytes | None = b"value",
        *,
        key: bytes | None = None,
        now: float = 0.0,
        timestamp: int = 0,
        force: bool = False,
    ) -> Delivery | None:
        bound = BATCH_OVERHEAD + record_size_upper_bound(key, value)
        record = Record(timestamp, key, value, (), partition, bound)
        return self.accumulator.append(self.topic, partition, record, now, force=force)

    def put_batches(
        self, partition: int, batches: int = 1, *, records: int = 1, now: float = 0.0
    ) -> list[ProducerBatch]:
        """That many closed batches at the end of a partition's queue."""
        queue = self.queue(partition)
        made = []
        for _ in range(batches):
            for _ in range(records):
                self.put(partition, now=now)
            made.append(queue.batches[-1])
            queue.batches[-1].close()
            self.lines.schedule(queue, now)
        return made

    def drain(self, node: int = 0, now: float = 0.0, max_bytes: int = 1 << 20) -> list[Any]:
        self.accumulator.take_sealed(now)
        self.lines.run_timers(now)
        connection: Any = None  # nothing is sent here
        survey = BrokerSurvey({node: connection}, (), set(), set(), NEVER)
        return self.binder.drain(survey, max_bytes, now).get(node, [])

    def ready(self, now: float = 0.0) -> set[int]:
        """The brokers that something could be sent to."""
        self.lines.run_timers(now)
        lines = self.lines.ready
        return {n for n, line in lines.items() if any(self.lines.sendable(q, now) for q in line)}

    def refresh_load(self, *unavailable: int) -> None:
        """What the sender does at the end of a pass."""
        self.accumulator.end_pass(unavailable)
        self.topic.strategy.show_load()

    @property
    def used(self) -> int:
        return self.buffer_pool.total - self.buffer_pool.available


class OverTcp:
    """A dialer to a fake cluster through real sockets on 127.0.0.1, for what only those can show.

    ``dialer`` dials; ``async with`` ends the servers behind it.
    """

    def __init__(self, fake: FakeCluster, dialer: TcpDialer | None = None) -> None:
        self.tcp = dialer or TcpDialer()
        self._fake = fake
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._relays: set[asyncio.Task[None]] = set()

    async def dial(self, host: str, port: int, factory: Callable[[], Any]) -> Any:
        if (host, port) not in self._servers:
            self._servers[host, port] = await asyncio.get_running_loop().create_server(
                lambda: _Relay(partial(self._fake.dial, host, port), self._relays), "127.0.0.1", 0
            )
        [sock] = self._servers[host, port].sockets
        return await self.tcp.dial("127.0.0.1", sock.getsockname()[1], factory)

    async def __aenter__(self) -> OverTcp:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)


class _Relay(asyncio.Protocol):
    """One end of a connection, whose bytes go to the other end."""

    def __init__(self, dial: Callable[..., Any] | None, tasks: set[asyncio.Task[None]]) -> None:
        self._dial = dial
        self._tasks = tasks
        self._early: list[bytes] = []
        self.other: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self._dial is not None:
            task = asyncio.get_running_loop().create_task(self._join(self._dial))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _join(self, dial: Callable[..., Any]) -> None:
        try:
            self.other, end = await dial(lambda: _Relay(None, self._tasks))
        except OSError:
            self.transport.abort()
            return
        end.other = self.transport
        self.other.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.writelines([data])

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.abort()
