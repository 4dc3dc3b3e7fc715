"""``send_batch`` beside ``send`` and ``send_many``: whole, once, and in order, whatever happens."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import BufferFullError, RecordTooLargeError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import CLOSE, CLOSE_ANSWER, DROP, DROP_ANSWER, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS, CALLS = 3, 60


class Call(NamedTuple):
    """One call of the producer: which, how many records, to which partition, the pause after it."""

    kind: str
    records: int
    partition: int | None
    pause: float


calls = st.lists(
    st.builds(
        Call,
        st.sampled_from(["send", "nowait", "many", "batch", "batch", "batch"]),
        st.integers(1, 12),
        st.none() | st.integers(0, PARTITIONS - 1),
        st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.02]),
    ),
    min_size=1,
    max_size=CALLS,
)
options = st.fixed_dictionaries(
    {
        "partitioner": st.sampled_from(["late", "kip794", "sticky", "round-robin"]),
        "batch_size": st.sampled_from([0, 300, 16384]),
        "linger_ms": st.sampled_from([0, 5]),
        "compression_type": st.sampled_from(["none", "lz4"]),
        "max_in_flight_requests_per_connection": st.sampled_from([1, 5]),
        "buffer_memory": st.sampled_from([5000, 10**6]),
    }
)
partitions = st.integers(0, PARTITIONS - 1)
damage = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.sampled_from([CLOSE, CLOSE_ANSWER, DROP, DROP_ANSWER])),
        st.tuples(st.just("error"), st.tuples(partitions, st.sampled_from([3, 5, 6, 7, 19, 56]))),
        st.tuples(st.just("refuse"), st.tuples(partitions, st.sampled_from([18, 29]))),
        st.tuples(st.just("reject"), st.tuples(partitions, st.integers(0, 1))),
        st.tuples(st.just("reject"), st.tuples(partitions, st.integers(0, 5))),
        st.tuples(st.just("move"), st.tuples(partitions, st.integers(0, 2))),
        st.tuples(st.just("shrink"), st.sampled_from([150, 400])),
        st.tuples(st.just("shrink"), st.sampled_from([150, 400])),
    ),
    max_size=12,
)


class Story:
    """One run, and what became of each call: its values, its outcome."""

    def __init__(self, plan: list[Call], faults: list[Any], how: dict[str, Any]) -> None:
        self.plan, self.faults, self.how = plan, faults, how
        self.fake = FakeCluster(brokers=3)
        self.fake.create_topic("t", PARTITIONS, replication_factor=3)
        self.fake.round_trip_s = 0.002
        self.done: list[tuple[Call, list[bytes], Any]] = []

    async def run(self) -> None:
        async with Producer(
            self.fake.bootstrap,
            dialer=self.fake,
            rng=Random(1),
            request_timeout_ms=500,
            delivery_timeout_ms=20_000,
            **self.how,
        ) as producer:
            waiting = []
            for n, call in enumerate(self.plan):
                values = [b"%d.%030d" % (n, part) for part in range(call.records)]
                values = values if call.kind in ("many", "batch") else values[:1]
                try:
                    delivery = await getattr(self, call.kind)(producer, values, call.partition)
                except BufferFullError:
                    if call.kind != "nowait":  # the others wait for buffer space
                        raise
                else:
                    waiting.append((call, values, delivery))
                if n < len(self.faults):
                    kind, what = self.faults[n]
                    getattr(self, kind)(what)
                if call.pause:
                    await asyncio.sleep(call.pause)
            await producer.flush()
            for call, values, delivery in waiting:
                outcome = delivery.exception() or delivery.result()
                self.done.append((call, values, outcome))
            pool = inspect(producer).accumulator.buffer_pool
            assert pool.available == pool.total

    # --- the calls

    async def send(self, producer: Producer, values: list[bytes], partition: int | None) -> Any:
        return await producer.send("t", values[0], partition=partition)

    async def nowait(self, producer: Producer, values: list[bytes], partition: int | None) -> Any:
        return producer.send_nowait("t", values[0], partition=partition)

    async def many(self, producer: Producer, values: list[bytes], partition: int | None) -> Any:
        return await producer.send_many("t", values, partition=partition)

    async def batch(self, producer: Producer, values: list[bytes], partition: int | None) -> Any:
        batch = producer.create_batch(batch_size=5000)
        for n, value in enumerate(values):
            assert batch.append(value, None if n % 2 else b"%d" % n)
        return await producer.send_batch(batch, "t", partition=partition)

    # --- the faults

    def answer(self, what: Any) -> None:
        self.fake.control(ApiKey.PRODUCE, what)

    def error(self, what: tuple[int, int]) -> None:
        self.fake.fail_produce("t", *what)

    refuse = error

    def reject(self, what: tuple[int, int]) -> None:
        partition, index = what
        self.fake.fail_produce("t", partition, 87, record_errors=[(index, "bad")])

    def move(self, what: tuple[int, int]) -> None:
        self.fake.move_leader("t", *what)

    def shrink(self, size: int) -> None:
        self.fake.configure_topic("t", max_message_bytes=size)
        later: Callable[..., Any] = asyncio.get_running_loop().call_later
        later(0.05, lambda: self.fake.configure_topic("t", max_message_bytes=10**6))


@settings(max_examples=max(40, settings.default.max_examples))
@given(calls, damage, options)
def test_a_batch_is_written_whole_and_in_order_or_not_at_all(
    plan: list[Call], faults: list[Any], how: dict[str, Any]
) -> None:
    story = Story(plan, faults, how)
    run_virtual(story.run())
    logs = [[r.value for r in story.fake.log("t", p)] for p in range(PARTITIONS)]
    written = [value for log in logs for value in log]
    assert len(written) == len(set(written))
    place = {value: (p, n) for p, log in enumerate(logs) for n, value in enumerate(log)}
    latest: dict[int, int] = {}
    for call, values, outcome in story.done:
        found = [place[value] for value in values if value in place]
        if call.kind == "batch":
            assert len(found) in (0, len(values))
            if isinstance(outcome, BaseException):
                assert not found or outcome.maybe_written, "an earlier attempt had lost its answer"
                assert outcome.code is not None
                assert isinstance(outcome, RecordTooLargeError) == (outcome.code == 10)
            else:
                first = outcome.offset
                assert found == [(outcome.partition, first + n) for n in range(len(values))]
                (header,) = [
                    header
                    for header in story.fake.batches("t", outcome.partition)
                    if header.base_offset == first
                ]
                assert header.record_count == len(values)
        if call.partition is not None:
            for partition, offset in found:
                assert partition == call.partition
                assert offset > latest.get(partition, -1)
                latest[partition] = offset


@settings(max_examples=settings.default.max_examples)
@given(calls, st.sampled_from([0, 300, 16384]), st.sampled_from(["late", "kip794"]))
def test_one_partition_keeps_the_order_of_all_calls(
    plan: list[Call], batch_size: int, partitioner: str
) -> None:
    """With and without ``partition``, as a topic with one partition has no choice."""

    async def run() -> tuple[list[bytes], list[bytes | None]]:
        fake, sent = FakeCluster(1), []
        fake.create_topic("t", 1)
        story = Story(plan, [], {})
        async with Producer(
            fake.bootstrap, dialer=fake, batch_size=batch_size, partitioner=partitioner
        ) as producer:
            for n, call in enumerate(plan):
                values = [b"%d.%030d" % (n, part) for part in range(call.records)]
                values = values if call.kind in ("many", "batch") else values[:1]
                where = None if call.partition is None else 0
                await getattr(story, call.kind)(producer, values, where)
                sent += values
        return sent, [r.value for r in fake.log("t", 0)]

    sent, log = run_virtual(run())
    assert log == sent
