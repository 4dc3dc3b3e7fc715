"""Whatever happens: each acknowledged record is in the log once, in the order of send (B8).

Ids such as ``B8`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kafkaclient.errors import KafkaError, RecordTooLargeError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import (
    CLOSE,
    CLOSE_ANSWER,
    DROP,
    DROP_ANSWER,
    FakeCluster,
    delay,
    delay_answer,
)
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS, BROKERS, RECORDS = 3, 3, 80

RETRIABLE = [2, 3, 5, 6, 7, 19, 20, 56, 74]
UNWRITTEN = [2, 5, 19, 74]
REPAIRABLE = [45, 47, 59]
FINAL = [18, 29, 87]


class Fault(NamedTuple):
    """``argument``: a partition, a broker, an error code or an answer."""

    at: float
    kind: str
    argument: Any


def faults(kinds: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Fault]]:
    one = st.one_of(
        *[
            st.builds(Fault, st.floats(0.0, 2.0).map(lambda at: round(at, 3)), st.just(kind), what)
            for kind, what in kinds.items()
        ]
    )
    return st.lists(one, max_size=12)


partitions = st.integers(0, PARTITIONS - 1)
brokers = st.integers(0, BROKERS - 1)
slow = st.tuples(brokers, st.sampled_from([0.0, 0.02, 0.2]), st.booleans())
"""A broker, how late it answers, and whether it serves the requests of a connection at once."""
ANSWERS = [CLOSE, CLOSE_ANSWER, DROP, DROP_ANSWER, delay(0.3), delay_answer(0.3), delay(2.0)]

HARMLESS: dict[str, st.SearchStrategy[Any]] = {
    "error": st.tuples(partitions, st.sampled_from(RETRIABLE), st.integers(1, 4), st.booleans()),
    "move": st.tuples(partitions, brokers),
    "leaderless": partitions,
    "disconnect": brokers,
    "answer": st.sampled_from(ANSWERS),
    "shrink": st.integers(250, 900),
    "throttle": st.integers(1, 800),
    "slow": slow,
    "stall": brokers,
    "bounce": brokers,
}
HARMFUL = HARMLESS | {"refuse": st.tuples(partitions, st.sampled_from(FINAL))}
# A sequence error says that a batch is not in the log: here nothing is refused that may be there.
REPAIRED: dict[str, st.SearchStrategy[Any]] = {
    "error": st.tuples(partitions, st.sampled_from(UNWRITTEN), st.integers(1, 4), st.just(False)),
    "repair": st.tuples(partitions, st.sampled_from(REPAIRABLE)),
    "move": st.tuples(partitions, brokers),
    "answer": st.just(delay(0.3)),
    "shrink": st.integers(250, 900),
    "throttle": st.integers(1, 800),
    "slow": slow,
}


class Aside:
    """What is compressed aside takes its time."""

    at_a_time = 2

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._timers: list[asyncio.TimerHandle] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        loop, seconds = asyncio.get_running_loop(), self._rng.random() * 0.05
        self._timers.append(loop.call_later(seconds, lambda: done(work())))

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()


class Story:
    """One run: what was sent to each partition, and what became of it."""

    def __init__(self, plan: list[Fault], options: dict[str, Any], seed: int) -> None:
        self.plan = sorted(plan, key=lambda fault: fault.at)
        self.aside = options.get("aside", False)
        self.latency = options.get("latency", 0.0)
        own = {"aside", "latency"}
        self.options = {name: options[name] for name in options if name not in own}
        self.rng = Random(seed)
        self.fake = FakeCluster(brokers=BROKERS)
        self.fake.create_topic("t", PARTITIONS, replication_factor=BROKERS)
        self.fake.round_trip_s = 0.004
        self.outcomes: list[Any] = []
        self.free: set[int] = set()
        """The records whose partition was the producer's to choose."""

    async def run(self) -> None:
        async with Producer(
            self.fake.bootstrap, dialer=self.fake, rng=Random(1), **self.options
        ) as producer:
            compressor = inspect(producer).accumulator.compressor
            if self.aside and compressor.enabled:
                compressor.small_batch_bytes, compressor._background = 150, Aside(self.rng)
            for broker in range(BROKERS):
                self.slow((broker, self.latency, True))
            damage = asyncio.create_task(self._do_damage())
            deliveries = []
            for n in range(RECORDS):
                value = b"%d." % n + bytes(self.rng.randrange(120))
                where = {0: {"key": b"%d" % (n % 7)}, 1: {"partition": n % PARTITIONS}}
                how: dict[str, Any] = where.get(self.rng.randrange(3), {})
                if not how:
                    self.free.add(n)
                if self.rng.randrange(4):
                    deliveries.append(await producer.send("t", value, **how))
                else:
                    deliveries.append(producer.send_nowait("t", value, **how))
                if self.rng.randrange(3) == 0:
                    await asyncio.sleep(self.rng.random() * 0.06)
            await damage
            await producer.flush()
            assert all(delivery.done() for delivery in deliveries)
            self.outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            buffer_pool = inspect(producer).accumulator.buffer_pool
            metrics = producer.metrics().producer
        assert buffer_pool.available == buffer_pool.total
        failed = sum(isinstance(outcome, KafkaError) for outcome in self.outcomes)
        assert metrics["record-error-total"] == failed

    async def _do_damage(self) -> None:
        loop = asyncio.get_running_loop()
        for at, kind, what in self.plan:
            await asyncio.sleep(max(0.0, at - loop.time()))
            getattr(self, kind)(what)
        await asyncio.sleep(3.0)

    def error(self, what: Any) -> None:
        partition, code, times, append = what
        self.fake.fail_produce("t", partition, code, times, append=append and code in (7, 20))

    def refuse(self, what: Any) -> None:
        self.fake.fail_produce("t", *what)

    repair = refuse

    def move(self, what: Any) -> None:
        self.fake.move_leader("t", *what)

    def leaderless(self, partition: int) -> None:
        self.move((partition, -1))
        self._later(0.4, self.move, (partition, self.rng.randrange(BROKERS)))

    def disconnect(self, broker: int) -> None:
        self.fake.drop_connections(broker)

    def answer(self, what: Any) -> None:
        self.fake.control(ApiKey.PRODUCE, what)

    def shrink(self, size: int) -> None:
        self.fake.configure_topic("t", max_message_bytes=size)
        self._later(0.5, lambda: self.fake.configure_topic("t", max_message_bytes=10**6))

    def slow(self, what: Any) -> None:
        broker, seconds, overlapping = what
        self.fake.delay_produce(broker, seconds, overlapping=overlapping)

    def throttle(self, milliseconds: int) -> None:
        self.fake.throttle(milliseconds)
        self._later(0.2, self.fake.throttle, 0)

    def stall(self, broker: int) -> None:
        self.fake.stall_broker(broker)
        self._later(0.7, self.fake.resume_broker, broker)

    def bounce(self, broker: int) -> None:
        self.fake.stop_broker(broker)
        self._later(0.6, self.fake.start_broker, broker)

    @staticmethod
    def _later(seconds: float, what: Callable[..., Any], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, what, *args)

    def log(self, partition: int) -> list[int]:
        values = [record.value or b"" for record in self.fake.log("t", partition)]
        return [int(value.split(b".")[0]) for value in values]

    def acknowledged(self, partition: int) -> list[int]:
        return [
            n
            for n, outcome in enumerate(self.outcomes)
            if not isinstance(outcome, BaseException) and outcome.partition == partition
        ]

    def in_order(self, partition: int, *, repeated: bool = False) -> list[int]:
        """The log with each record in its place. Bound late, records without key keep their order
        among themselves, but not against the others, whose partition is known at once; and not
        if they were set aside for a partition's share and its broker failed.
        ``repeated``: records may come again; their first place counts."""
        log = self.log(partition)
        if repeated:
            log = list(dict.fromkeys(log))
        if self.options["partitioner"] != "late":
            return log
        free = [n for n in log if n in self.free]
        others = [n for n in log if n not in self.free]
        assert len(free) == len(set(free))
        if not self.options["partitioner_share_floor"]:
            assert free == sorted(free)
        assert others == sorted(set(others))
        return sorted(log)


PARTITIONERS = ["kip794", "late", "sticky", "uniform-sticky", "round-robin", "random"]
OPTIONS = st.fixed_dictionaries(
    {
        "partitioner": st.sampled_from(PARTITIONERS),
        "partitioner_share_floor": st.sampled_from([0.0, 0.6]),
        "adaptive_partitioning_enable": st.booleans(),
        "batch_size": st.sampled_from([0, 300, 16384]),
        "linger_ms": st.sampled_from([0, 5, 40]),
        "compression_type": st.sampled_from(["none", "lz4"]),
        "aside": st.booleans(),
        "latency": st.sampled_from([0.0, 0.1]),
        "max_in_flight_requests_per_connection": st.sampled_from([1, 2, 5]),
        "buffer_memory": st.sampled_from([40_000, 10**6]),
        "request_timeout_ms": st.sampled_from([500, 5000]),
    }
)


few = settings(
    max_examples=settings.default.max_examples,
    phases=[phase for phase in Phase if phase is not Phase.explain],  # it is slow
)


@few
@given(faults(HARMLESS) | faults(REPAIRED), OPTIONS, st.integers(0, 1000))
def test_faults_that_pass_lose_duplicate_and_reorder_nothing(
    plan: list[Fault], options: dict[str, Any], seed: int
) -> None:
    """B8: idempotence: every record is acknowledged, and in the log exactly once, in order. Only if
    max.message.bytes was lowered after an attempt without an answer, a batch that may have been
    written cannot be sent again as it was: its records fail, and the error says so."""
    story = Story(plan, options, seed)
    run_virtual(story.run())
    failed = {n for n, o in enumerate(story.outcomes) if isinstance(o, BaseException)}
    for error in (story.outcomes[n] for n in failed):
        assert isinstance(error, RecordTooLargeError)
        assert error.maybe_written
    for partition in range(PARTITIONS):
        log = story.in_order(partition)
        assert [n for n in log if n not in failed] == story.acknowledged(partition)
        for offset, n in enumerate(story.log(partition)):
            assert n in failed or story.outcomes[n].offset in (offset, -1)


@few
@given(faults(HARMFUL), OPTIONS, st.integers(0, 1000), st.sampled_from([1500, 120_000]))
def test_refusals_and_expiry_keep_the_order_of_the_rest(
    plan: list[Fault], options: dict[str, Any], seed: int, delivery_timeout: int
) -> None:
    """B8: what was acknowledged is in the log once and in order, whatever failed around it."""
    options = options | {"request_timeout_ms": 500, "delivery_timeout_ms": delivery_timeout}
    story = Story(plan, options, seed)
    run_virtual(story.run())
    for partition in range(PARTITIONS):
        log = story.in_order(partition)
        assert log == sorted(set(log))
        assert set(story.acknowledged(partition)) <= set(log)


@pytest.mark.parametrize("in_flight", [1, 5])
@few
@given(
    plan=faults(HARMLESS),
    seed=st.integers(0, 1000),
    partitioner=st.sampled_from(["kip794", "late"]),
)
def test_without_idempotence_nothing_acknowledged_is_lost(
    in_flight: int, plan: list[Fault], seed: int, partitioner: str
) -> None:
    """B8: at least once; in order, apart from repetitions, with one request in flight."""
    options = {
        "partitioner": partitioner,
        "partitioner_share_floor": 0.6,
        "enable_idempotence": False,
        "max_in_flight_requests_per_connection": in_flight,
        "batch_size": 300,
        "request_timeout_ms": 5000,
    }
    story = Story(plan, options, seed)
    run_virtual(story.run())
    assert not [outcome for outcome in story.outcomes if isinstance(outcome, BaseException)]
    for partition in range(PARTITIONS):
        log = story.log(partition)
        assert sorted(set(log)) == story.acknowledged(partition)
        if in_flight == 1:
            first = story.in_order(partition, repeated=True)
            assert first == sorted(first)
