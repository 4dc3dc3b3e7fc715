"""Bulk calls beside brokers that take nothing: no row is lost, doubled, passed or left behind.

Random calls of ``send_many`` and ``send_arrow``, mixed with ``send`` and ``send_nowait``, on two
topics of a fake cluster in virtual time: rows with keys, with partitions, and with neither, small
buffers, stalls, leaders that move, partitions that are added, cancellations and short waits. Rows
of one call that wait for one broker are set aside. So this looks for holes: a row that was appended
although an earlier one of its key failed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import KafkaError
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import run_virtual
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from kafkaclient import BulkDelivery, ClusterView, Delivery, LoadView, Producer

BROKERS = 3
TOPICS = ("a", "b")
Source = tuple[bytes | None, int | None]
"""A row's key and partition: rows of one source keep their order."""


class LastByte:
    """A custom partitioner, for records with a key and without."""

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView, _: LoadView
    ) -> int:
        return (key or value or b"0")[-1] % cluster.topics[topic].partition_count


@dataclass(frozen=True)
class Plan:
    seed: int
    buffer: int
    max_block_ms: int
    batch_size: int
    partitioner: str
    tasks: int
    grows: bool
    cancels: bool


plans = st.builds(
    Plan,
    seed=st.integers(0, 100_000),
    buffer=st.sampled_from([8_000, 40_000, 150_000]),
    max_block_ms=st.sampled_from([0, 300, 3_000, 600_000]),
    batch_size=st.sampled_from([500, 4_000, 16_384]),
    partitioner=st.sampled_from(["late", "late", "kip794", "custom"]),
    tasks=st.integers(1, 6),
    grows=st.booleans(),
    cancels=st.booleans(),
)


@dataclass
class Call:
    topic: str
    task: int
    sources: list[Source]
    appended: int | None = None
    """How many rows were appended, as the call has told. None: it was canceled."""
    done: BulkDelivery | Delivery | None = None


@dataclass
class Run:
    plan: Plan
    fake: FakeCluster = field(default_factory=lambda: FakeCluster(brokers=BROKERS))
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.plan.seed)
        self.partitions = dict.fromkeys(TOPICS, 6)
        for topic in TOPICS:
            self.fake.create_topic(topic, 6)

    async def go(self) -> None:
        plan = self.plan
        options: dict[str, Any] = {
            "buffer_memory": plan.buffer,
            "max_block_ms": plan.max_block_ms,
            "batch_size": min(plan.batch_size, plan.buffer),
            "metadata_max_age_ms": 500,
            "delivery_timeout_ms": 900_000,
            "partitioner": LastByte() if plan.partitioner == "custom" else plan.partitioner,
        }
        async with start_producer(self.fake, **options) as producer:
            for topic in TOPICS:
                await self.warm(producer, topic)
            faults = asyncio.create_task(self.faults())
            tasks = [asyncio.create_task(self.task(producer, n)) for n in range(plan.tasks)]
            async with asyncio.timeout(5_000):
                await asyncio.gather(faults, *tasks)
                await producer.flush()
                for call in self.calls:
                    if call.done is not None:
                        await call.done
                for topic in TOPICS:
                    await self.warm(producer, topic)  # nothing waits any more
            assert producer.metrics().producer["waiting-threads"] == 0

    async def warm(self, producer: Producer, topic: str) -> None:
        for partition in range(6):
            for _ in range(100):
                try:
                    await producer.send_and_wait(topic, b"", partition=partition)
                    break
                except KafkaError:  # max.block.ms may be 0
                    await asyncio.sleep(0.1)
            else:
                raise AssertionError(f"partition {partition} takes no records")

    async def faults(self) -> None:
        draw = self.random
        for _ in range(draw.choice([2, 4])):
            node, topic = draw.randrange(BROKERS), draw.choice(TOPICS)
            self.fake.stall_broker(node)
            await asyncio.sleep(draw.choice([0.05, 0.2, 0.5, 1.5]))
            if draw.random() < 0.3:
                self.fake.move_leader(topic, draw.randrange(6), draw.randrange(BROKERS))
            if self.plan.grows and draw.random() < 0.7:
                self.partitions[topic] += 3
                self.fake.add_partitions(topic, self.partitions[topic])
                await asyncio.sleep(draw.choice([0.5, 1.0]))
            self.fake.resume_broker(node)
            await asyncio.sleep(draw.choice([0, 0.1, 0.5]))

    async def task(self, producer: Producer, number: int) -> None:
        draw = self.random
        for _ in range(draw.choice([2, 4])):
            way = draw.choice(["many", "many", "arrow", "send", "nowait"])
            rows = draw.choice([1, 5, 40, 200]) if way in {"many", "arrow"} else 1
            size = min(draw.choice([20, 300, 1500]), self.plan.buffer // 10)
            kinds = draw.choice(["k", "kkku", "kp" if way == "arrow" else "k", "u"])
            call = Call(
                draw.choice(TOPICS), number, [self.source(draw.choice(kinds)) for _ in range(rows)]
            )
            self.calls.append(call)
            await self.make(producer, call, len(self.calls) - 1, way, size)
            await asyncio.sleep(draw.choice([0, 0, 0.05, 0.3]))

    def source(self, kind: str) -> Source:
        if kind == "p":
            return None, self.random.randrange(6)
        return (b"k%d" % self.random.randrange(30) if kind == "k" else None), None

    async def make(self, producer: Producer, call: Call, number: int, way: str, size: int) -> None:
        values = [
            b"%d %d " % (number, n) + bytes(self.random.choice([size, size // 2, 1]))
            for n in range(len(call.sources))
        ]
        keys = [key for key, _ in call.sources]
        sending: Any
        try:
            if way == "nowait":
                call.done = producer.send_nowait(call.topic, values[0], keys[0])
            else:
                if way == "many":
                    sending = producer.send_many(call.topic, values, keys=keys)
                elif way == "arrow":
                    table = {"key": pa.array(keys, pa.binary()), "value": values}
                    if any(partition is not None for _, partition in call.sources):
                        explicit = [partition for _, partition in call.sources]
                        table["partition"] = pa.array(explicit, pa.int32())
                    sending = producer.send_arrow(call.topic, pa.table(table))
                else:
                    sending = producer.send(call.topic, values[0], keys[0])
                call.done = await self.perhaps_canceled(sending)
        except asyncio.CancelledError:
            return
        except KafkaError as error:
            call.done = getattr(error, "delivery", None)
            call.appended = 0 if call.done is None else getattr(call.done, "records", 0)
            return
        call.appended = len(values)

    async def perhaps_canceled(self, sending: Any) -> Any:
        task = asyncio.ensure_future(sending)
        if self.plan.cancels and self.random.random() < 0.4:
            loop, after = asyncio.get_running_loop(), self.random.choice([0, 0.05, 0.1, 0.3])
            for _ in range(self.random.choice([1, 2])):  # a second time while it ends
                loop.call_later(after, task.cancel)
        return await task

    def check(self) -> None:
        written: dict[int, set[int]] = defaultdict(set)
        for topic in TOPICS:
            for partition in range(self.partitions[topic]):
                self.check_log(topic, partition, written)
        for number, call in enumerate(self.calls):
            assert call.appended in {None, len(written[number])}, (call, len(written[number]))
            missing: set[Source] = set()
            for row, source in enumerate(call.sources):
                if row not in written[number]:
                    missing.add(source)
                elif source != (None, None):
                    assert source not in missing, f"a hole: call {number}, row {row}"

    def check_log(self, topic: str, partition: int, written: dict[int, set[int]]) -> None:
        """Each row is there once. Rows of a source are in order, in a call, and in calls that a
        task made one after the other."""
        by_task: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for record in self.fake.log(topic, partition):
            if not record.value:
                continue
            number, row = map(int, record.value.split()[:2])
            call = self.calls[number]
            source = call.sources[row]
            assert (call.topic, source[0]) == (topic, record.key)
            assert source[1] in {None, partition}
            assert row not in written[number], f"twice: call {number}, row {row}"
            written[number].add(row)
            if source != (None, None):
                # New partitions: rows of one call only, its keys may have had another partition.
                whole = number if self.plan.grows else -1
                by_task[call.task, source, whole].append((number, row))
        for rows in by_task.values():
            assert all(before < after for before, after in pairwise(rows)), "passed"


@settings(max_examples=settings().max_examples // 2)
@given(plan=plans)
def test_bulk_calls_beside_brokers_that_take_nothing(plan: Plan) -> None:
    run = Run(plan)
    run_virtual(run.go())
    run.check()
