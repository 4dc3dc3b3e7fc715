"""Whatever is compressed when, and whatever fails: order is kept, and memory is given back once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.producer.batches.partition_queue import QueueState
from kafkaclient.producer.sender.broker_lanes import BrokerSurvey
from kafkaclient.producer.settings import NEVER
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.records import iter_records

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")
PARTITIONS = 3
UNKEYED = -1


class Aside:
    at_a_time = 2

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def run(self, work: Any, done: Any) -> None:
        self.jobs.append((work, done))

    def close(self) -> None:
        raise AssertionError("nobody closes it")


class Walk:
    """Records are numbered; ``left`` has, by partition or UNKEYED, those that left for the first
    time, in the order in which they did."""

    def __init__(self, bench: type[Bench], *, elastic: bool) -> None:
        self.aside = Aside()
        self.bench = b = bench(
            (0,) * PARTITIONS,
            idempotent=True,
            background=self.aside,
            codec=CompressionType.LZ4,
            late=True,
            share_floor=0.0,
            batch_size=600,
            elastic_limit=4000 if elastic else 0,
            buffer_memory=100_000,
        )
        b.accumulator.update_topic(b.view(), 0.0)
        b.accumulator.compressor.small_batch_bytes = 500
        self.numbers = 0
        self.deliveries: list[Any] = []
        self.batches: dict[Any, None] = {}
        self.out: list[Any] = []
        self.left: dict[int, list[int]] = defaultdict(list)

    def put(self, argument: int) -> None:
        where = (argument % (PARTITIONS + 1)) - 1
        value = b"%d.%d." % (where, self.numbers) + bytes(argument % 700)
        self.numbers += 1
        delivery = self.bench.put(None if where == UNKEYED else where, value)
        if delivery is not None:
            self.deliveries.append(delivery)
        self.batches.update(dict.fromkeys(self.bench.incomplete))

    def go(self, _: int) -> None:
        """A pass of the sender."""
        b = self.bench
        b.accumulator.take_sealed(0.0)
        b.lines.run_timers(0.0)
        connection: Any = None
        survey = BrokerSurvey({0: connection}, (), {0}, set(), NEVER)
        requests = b.binder.drain(survey, 5000, 0.0)
        for batch in requests.get(0, []):
            assert batch.sealed
            assert not batch.compressing
            assert not batch.result.done
            self.out.append(batch)
            if batch.attempts == 1:
                for record in iter_records(batch.buffer()):
                    where, number, _ = record.value.split(b".", 2)
                    self.left[int(where)].append(int(number))

    def finish(self, argument: int) -> None:
        if self.aside.jobs:
            work, done = self.aside.jobs.pop(argument % len(self.aside.jobs))
            done(RuntimeError("codec") if argument % 7 == 0 else work())

    def answer(self, argument: int) -> None:
        if self.out:
            batch = self.out.pop(argument % len(self.out))
            self.bench.incomplete.complete(batch, 0, -1, 0.0)

    def lose(self, argument: int) -> None:
        if self.out:
            batch = self.out.pop(argument % len(self.out))
            batch.mark_uncertain()
            self.bench.incomplete.retry(batch, LOST, 0.0, 0.0)

    def give_up(self, argument: int) -> None:
        waiting = [batch for batch in self.bench.incomplete if not batch.in_flight]
        if waiting:
            batch = waiting[argument % len(waiting)]
            self.bench.incomplete.fail_without_answer(batch, LOST, 0.0)
            assert batch.result.done
            assert batch.charged == 0

    def check(self) -> None:
        b = self.bench
        assert b.used == sum(batch.charged for batch in self.batches)
        for batch in self.batches:
            if not batch.result.done:
                if batch.compressing:
                    needed = batch.raw_size + batch.size
                else:
                    needed = batch.size if batch.sealed else batch.builder.capacity
                assert batch.charged >= needed
        for numbers in self.left.values():
            assert numbers == sorted(set(numbers))
        for queue in (b.topic.unbound, *b.topic.queues.values()):
            assert not (queue.state is QueueState.READY and queue.batches[0].compressing)
            waits = queue.state is QueueState.SEALING
            assert not waits or queue.batches[0].compressing

    def end(self) -> None:
        """Everything comes to its end, without anybody looking for it."""
        b = self.bench
        for _ in range(10_000):
            if not b.incomplete and not self.aside.jobs:
                break
            self.finish(1)
            self.go(0)
            self.answer(0)
            self.check()
        self.go(0)
        assert not len(b.incomplete)
        assert all(delivery.done() for delivery in self.deliveries)
        assert b.used == 0
        assert "waiting=0 at_work=0 finished=0" in repr(b.accumulator.compressor)


STEPS = [*("put",) * 3, "go", *("finish",) * 2, "answer", "lose", "give_up"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
@given(
    elastic=st.booleans(),
    walk=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 10_000)), min_size=20, max_size=150
    ),
)
def test_order_and_memory(bench: type[Bench], elastic: bool, walk: list[tuple[str, int]]) -> None:
    story = Walk(bench, elastic=elastic)
    for step, argument in walk:
        getattr(story, step)(argument)
        story.check()
    story.end()
