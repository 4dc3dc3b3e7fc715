"""Random faults against the accumulator: what is acknowledged is in the log once and in order.

Two brokers share one log per partition, whose leader checks sequences as a real one does; requests
are served and answered, or lost, by hand. Whatever happened, everything gets an outcome once the
faults stop.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkaclient.cluster.view import LeaderHint, PartitionView, TopicView
from kafkaclient.errors import BrokerConnectionError, DeliveryTimeoutError, KafkaError
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
from kafkaclient.producer.batches.delivery_errors import delivery_timeout
from kafkaclient.producer.batches.idempotence import MAX_EPOCH, ProducerIdentity
from kafkaclient.producer.batches.record import Record
from kafkaclient.producer.sender.broker_lanes import BrokerSurvey
from kafkaclient.producer.sender.liveness import Misrouting
from kafkaclient.producer.sender.responses import ResponseHandler
from kafkaclient.producer.settings import NEVER, AccumulatorSettings, RetrySettings
from kafkaclient.producer.wakeup import Wakeup
from kafkaclient.testing.fake.log import PartitionLog, RefusedError
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.produce import PartitionResult, ProduceResult, RecordError
from kafkaclient.wire.record_reader import batch_header
from kafkaclient.wire.records import BATCH_OVERHEAD, record_size_upper_bound
from tests.producer.support import batch_drainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.delivery import Delivery

BROKERS = (0, 1)
PARTITIONS = (0, 1, 2)
MAX_IN_FLIGHT = 5
DELIVERY_TIMEOUT = 20.0
NEAR_THE_WRAP = 2**31 - 4
BATCH_SIZES = (0, 300, 1200)
CODECS = (CompressionType.NONE, CompressionType.LZ4)
RETRIES = (1, 2**31 - 1)
EPOCHS = (0, MAX_EPOCH)
WAITS = (0.01, 0.01, 0.06, 0.06, 0.3, 0.3, 1.1, 9.0)


class Fate(Enum):
    """What a broker does with a batch: (code answered instead of its own, whether it appends)."""

    SERVED = (None, True)
    NOT_ENOUGH_REPLICAS = (19, False)
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20, True)
    TIMED_OUT_WRITTEN = (7, True)
    TIMED_OUT_UNWRITTEN = (7, False)
    LEADER_LEFT_AFTER_APPEND = (6, True)
    SERVER_ERROR_WRITTEN = (-1, True)
    SERVER_ERROR_UNWRITTEN = (-1, False)
    REFUSED = (87, False)
    CULPRIT = (32, False)
    """The second record's fault, as far as it has one."""


FATES = st.tuples(*[st.sampled_from([Fate.SERVED, *Fate]) for _ in PARTITIONS])
ALL_SERVED = (Fate.SERVED,) * len(PARTITIONS)


class Request:
    """A Produce request on the wire; the bytes are those at the time of sending."""

    def __init__(self, batches: list[ProducerBatch]) -> None:
        self.batches = batches
        self.producer_id = batches[0].producer_id
        self.topic_ids = [batch.topic_id for batch in batches]
        self.data = [bytes(batch.buffer()) for batch in batches]
        self.answer: ProduceResult | None = None


class Cluster:
    """The brokers' side, and the client's view of who leads what."""

    def __init__(self, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self.logs = [PartitionLog() for _ in PARTITIONS]
        self.leaders = [0, 0, 1]
        self.epochs = [0, 0, 0]
        self.topic_id = UUID(int=1)
        self.former: list[list[PartitionLog]] = []

    def create_anew(self) -> None:
        self.former.append(self.logs)
        self.logs = [PartitionLog() for _ in PARTITIONS]
        self.epochs = [0, 0, 0]
        self.topic_id = UUID(int=self.topic_id.int + 1)

    def view(self, lost: frozenset[int] = frozenset()) -> TopicView:
        return TopicView(
            "t",
            self.topic_id,
            tuple(
                PartitionView(p, -1 if p in lost else self.leaders[p], self.epochs[p])
                for p in PARTITIONS
            ),
        )

    def serve(self, node: int, request: Request, fates: tuple[Fate, ...], hints: bool) -> None:
        results = []
        asked = zip(request.batches, request.data, request.topic_ids, strict=True)
        for batch, data, topic_id in asked:
            p = batch.queue.partition
            result = PartitionResult("t", p, 0, -1, -1, 0, (), None, -1, -1)
            if topic_id != self.topic_id.bytes:
                result = result._replace(error_code=100)
            elif self.leaders[p] != node:
                result = result._replace(error_code=6)
                if hints:
                    result = result._replace(leader_id=self.leaders[p], leader_epoch=self.epochs[p])
            else:
                result = self._append(p, data, fates[p], result)
            results.append(result)
        request.answer = ProduceResult(results, 0, ())

    def _append(self, p: int, data: bytes, fate: Fate, result: PartitionResult) -> PartitionResult:
        code, appends = fate.value
        if appends:
            try:
                appended = self.logs[p].append(data, self.max_message_bytes)
            except RefusedError as refused:
                return result._replace(error_code=int(refused.code))
            result = result._replace(base_offset=appended.base_offset)
        if fate is Fate.CULPRIT:
            culprits = () if batch_header(data).record_count < 2 else (RecordError(1, "old"),)
            result = result._replace(record_errors=culprits)
        return result._replace(error_code=code) if code else result


class Producing(RuleBasedStateMachine):
    """The sender's part is played by the rules; see the module's docstring."""

    idempotent = True

    @initialize(
        small_batches_only=st.booleans(),
        batch_size=st.sampled_from(BATCH_SIZES),
        codec=st.sampled_from(CODECS),
        one_in_flight=st.booleans(),
        retries=st.sampled_from(RETRIES),
        epoch=st.sampled_from(EPOCHS),
    )
    def start(
        self,
        small_batches_only: bool,
        batch_size: int,
        codec: CompressionType,
        one_in_flight: bool,
        retries: int,
        epoch: int,
    ) -> None:
        self.cluster = Cluster(330 if small_batches_only else 1_000_000)
        self.now = 100.0
        self.serials = count()
        self.rng = Random(1)
        self.identity = ProducerIdentity(self.idempotent)
        self.accumulator = RecordAccumulator(
            AccumulatorSettings(
                batch_size=batch_size,
                linger=0.05,
                buffer_memory=20_000,
                delivery_timeout=DELIVERY_TIMEOUT,
                codec=codec,
                one_in_flight=one_in_flight or not self.idempotent,
            ),
            identity=self.identity,
            random31=count().__next__,
            wakeup=Wakeup(lambda: self.now),
            metrics=(metrics := ProducerMetrics(lambda: self.now)),
        )
        self.answers = ResponseHandler(
            self.accumulator.incomplete,
            self.identity,
            self,
            RetrySettings(retries=retries),
            metrics,
            Misrouting(self, self),
            self,
            rng=self.rng,
        )
        self.topic = self.accumulator.topic("t")
        self.accumulator.update_topic(self.cluster.view(), self.now)
        self.wire: dict[int, deque[Request]] = {node: deque() for node in BROKERS}
        self.undead: deque[tuple[int, Request]] = deque()
        self.sent: list[tuple[int, int, Delivery]] = []
        self.producer_ids = count(1)
        if self.idempotent:
            self.identity.assign(next(self.producer_ids), epoch)
            wrapping = self.topic.queue(1).sequence
            wrapping.producer_id, wrapping.epoch = self.identity.producer_id, epoch
            wrapping.next = NEAR_THE_WRAP

    # --- the cluster's metadata, as Answers sees it ---------------------------------------------

    refreshed_at = float("-inf")

    def add_topic(self, name: str) -> None: ...

    def request_refresh(self, reason: str) -> None: ...

    def apply_leaders(self, hints: list[LeaderHint], endpoints: object = ()) -> None:
        self.learn(frozenset())

    def fail_producer(self, error: KafkaError) -> None:
        raise error

    # --- the application ------------------------------------------------------------------------

    @rule(partition=st.sampled_from(PARTITIONS), records=st.integers(1, 4), size=st.integers(1, 90))
    def append(self, partition: int, records: int, size: int) -> None:
        for _ in range(records):
            serial = next(self.serials)
            value = b"%d " % serial + self.rng.randbytes(size)
            upper_bound = BATCH_OVERHEAD + record_size_upper_bound(None, value)
            record = Record(1000, None, value, (), None, upper_bound)
            delivery = self.accumulator.append(self.topic, partition, record, self.now)
            if delivery is not None:
                self.sent.append((partition, serial, delivery))

    # --- the sender -----------------------------------------------------------------------------

    @rule(node=st.sampled_from(BROKERS))
    def drain(self, node: int) -> None:
        if len(self.wire[node]) < MAX_IN_FLIGHT:
            survey = BrokerSurvey({node: None}, (), set(), set(), NEVER)  # type: ignore[dict-item]
            requests = batch_drainer(self.accumulator).drain(survey, 100_000, self.now)
            if requests:
                self.wire[node].append(Request(requests[node]))

    @precondition(lambda self: self.identity.wanted)
    @rule()
    def assign(self) -> None:
        self.identity.assign(next(self.producer_ids), 0)
        self.accumulator.incomplete.reschedule(self.now)

    @rule(seconds=st.sampled_from(WAITS))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        incomplete = self.accumulator.incomplete
        while (batch := incomplete.next_expired(self.now)) is not None:
            error = delivery_timeout(batch, self.now - batch.created, DELIVERY_TIMEOUT, None)
            incomplete.fail_without_answer(batch, error, self.now)
        self.accumulator.ready_queues.run_timers(self.now)

    @rule(lost=st.frozensets(st.sampled_from(PARTITIONS)))
    def learn(self, lost: frozenset[int]) -> None:
        self.accumulator.update_topic(self.cluster.view(lost), self.now)

    # --- the brokers and the network ------------------------------------------------------------

    @rule(node=st.sampled_from(BROKERS), fates=FATES, hints=st.booleans())
    def serve(self, node: int, fates: tuple[Fate, ...], hints: bool) -> None:
        waiting = (request for request in self.wire[node] if request.answer is None)
        request = next(waiting, None)
        if request is not None:
            self.cluster.serve(node, request, fates, hints)

    @rule(node=st.sampled_from(BROKERS))
    def answer(self, node: int) -> None:
        if self.wire[node] and self.wire[node][0].answer is not None:
            request = self.wire[node].popleft()
            assert request.answer is not None
            self.answers.response(request.batches, request.answer, node, self.now)

    @rule(node=st.sampled_from(BROKERS))
    def cut(self, node: int) -> None:
        """What was served is written, what was not may be some day, and nobody is told."""
        lost, self.wire[node] = self.wire[node], deque()
        self.undead += [(node, request) for request in lost if request.answer is None]
        for request in lost:
            self.answers.no_response(request.batches, BrokerConnectionError("cut"), self.now)

    @rule()
    def come_back(self) -> None:
        """A broker that stood still reads what was sent on a connection that has ended since."""
        if self.undead:
            node, request = self.undead.popleft()
            # Nothing keeps what has no producer id, or a former one, from being written.
            if self.idempotent and request.producer_id == self.identity.producer_id:
                self.cluster.serve(node, request, ALL_SERVED, hints=False)

    @rule(partition=st.sampled_from(PARTITIONS))
    def move(self, partition: int) -> None:
        self.cluster.leaders[partition] ^= 1
        self.cluster.epochs[partition] += 1

    @rule()
    def create_anew(self) -> None:
        """The topic is deleted and created anew; the client learns of it later."""
        self.cluster.create_anew()

    @rule()
    def forget(self) -> None:
        """The topic is not used for long, and then it is."""
        for _ in range(10):
            if not self.topic.in_use:
                break
            for node in BROKERS:
                self.round_trip(node)
        busy = self.topic.in_use
        assert self.accumulator.release("t") is not busy
        assert ("t" in self.accumulator.topics) is busy
        self.topic = self.accumulator.topic("t")
        self.accumulator.update_topic(self.cluster.view(), self.now)

    @rule(limit=st.sampled_from([330, 1_000_000]))
    def limit(self, limit: int) -> None:
        self.cluster.max_message_bytes = limit

    @rule(node=st.sampled_from(BROKERS))
    def round_trip(self, node: int) -> None:
        """Without this, random walks rarely get anything acknowledged."""
        self.drain(node)
        self.serve(node, ALL_SERVED, False)
        self.answer(node)

    # --- what always holds ----------------------------------------------------------------------

    def _on_wire(self) -> list[ProducerBatch]:
        return [b for requests in self.wire.values() for r in requests for b in r.batches]

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "wire"):
            return
        on_wire = self._on_wire()
        assert all(batch.in_flight for batch in on_wire)
        for queue in self.topic.queues.values():
            assert queue.in_flight == sum(batch.queue is queue for batch in on_wire)
            waiting = [batch for batch in queue.unacked if not batch.in_flight]
            assert waiting == list(queue.batches)[: len(waiting)]
            assert not any(batch.attempts for batch in list(queue.batches)[len(waiting) :])
        alive = {*self.accumulator.incomplete, *on_wire}
        buffer_pool = self.accumulator.buffer_pool
        assert buffer_pool.total - buffer_pool.available == sum(batch.charged for batch in alive)
        for batch in alive:
            assert batch.charged >= (batch.size if batch.sealed else batch.builder.capacity)

    @invariant()
    def logs_are_right(self) -> None:
        if not hasattr(self, "wire"):
            return
        topics = [
            [[int(r.value.split()[0]) for r in log.records()] for log in logs]
            for logs in [*self.cluster.former, self.cluster.logs]
        ]
        for serials in [serials for logs in topics for serials in logs]:
            assert self._repeats_aside(serials) == sorted(set(serials))
        for partition, serial, delivery in self.sent:
            if not delivery.done():
                continue
            error = delivery.exception()
            there = [logs[partition] for logs in topics if serial in logs[partition]]
            if error is None:
                offset = delivery.result().offset
                assert there
                assert offset < 0 or any(
                    offset < len(log) and log[offset] == serial for log in there
                )
            assert type(error) is not KafkaError, "a defect was confined to its batch"
            if isinstance(error, DeliveryTimeoutError) and not error.maybe_written:
                assert serial not in topics[-1][partition]

    def _repeats_aside(self, serials: list[int]) -> list[int]:
        return serials

    def teardown(self) -> None:
        if not hasattr(self, "wire"):
            return
        for _ in range(400):
            if not (self.accumulator.incomplete or self._on_wire()):
                break
            self.now += 1.1
            self.learn(frozenset())
            if self.identity.wanted:
                self.assign()
            self.accumulator.ready_queues.run_timers(self.now)
            for node in BROKERS:
                self.round_trip(node)
            self.counts_agree()
        assert not len(self.accumulator.incomplete), list(self.accumulator.incomplete)
        assert all(delivery.done() for _, _, delivery in self.sent)
        assert self.accumulator.buffer_pool.available == self.accumulator.buffer_pool.total
        assert not any(queue.unacked for queue in self.topic.queues.values())
        self.counts_agree()
        self.logs_are_right()


class ProducingAtLeastOnce(Producing):
    """Without idempotence, one request at a time: nothing lost, order kept, repeats allowed."""

    idempotent = False

    def _repeats_aside(self, serials: list[int]) -> list[int]:
        return list(dict.fromkeys(serials))


def walk(machine: type[Producing], seed: int, steps: int) -> None:
    """A random walk through the rules. It reaches faults that need several things to come
    together far more often than the machine does, which tries one variation at a time."""
    rng = Random(seed)
    world = machine.__new__(machine)
    world.start(
        small_batches_only=rng.random() < 0.5,
        batch_size=rng.choice(BATCH_SIZES),
        codec=rng.choice(CODECS),
        one_in_flight=rng.random() < 0.3,
        retries=rng.choice(RETRIES),
        epoch=rng.choice(EPOCHS),
    )
    troubles = list(Fate)
    partition, node = lambda: rng.choice(PARTITIONS), lambda: rng.choice(BROKERS)
    moves: list[tuple[int, Callable[[], None]]] = [
        (20, lambda: world.append(partition(), rng.randint(1, 4), rng.randint(1, 90))),
        (20, lambda: world.drain(node())),
        (20, lambda: world.serve(node(), fates(), rng.random() < 0.5)),
        (18, lambda: world.answer(node())),
        (4, lambda: world.cut(node())),
        (4, world.come_back),
        (2, lambda: world.move(partition())),
        (1, world.create_anew),
        (3, world.forget),
        (2, lambda: world.limit(rng.choice([330, 1_000_000]))),
        (3, lambda: world.learn(frozenset())),
        (1, lambda: world.learn(frozenset({partition()}))),
        (5, lambda: world.assign() if world.identity.wanted else None),
        (7, lambda: world.wait(rng.choice(WAITS))),
    ]

    def fates() -> tuple[Fate, ...]:
        return tuple(
            rng.choice(troubles) if rng.random() < 0.4 else Fate.SERVED for _ in PARTITIONS
        )

    weights, rules = zip(*moves, strict=True)
    for step in rng.choices(rules, weights, k=steps):
        step()
        world.counts_agree()
    world.logs_are_right()
    world.teardown()


@pytest.mark.parametrize("seeds", [range(at, at + 25) for at in range(0, 200, 25)], ids=str)
def test_random_walks(seeds: range) -> None:
    for seed in seeds:
        walk(Producing, seed, 200)


def test_random_walks_without_idempotence() -> None:
    for seed in range(50):
        walk(ProducingAtLeastOnce, seed, 200)


def _case(machine: type[Producing]) -> Any:
    case = machine.TestCase
    case.settings = settings(stateful_step_count=60)
    return case


TestProducing = _case(Producing)
TestProducingAtLeastOnce = _case(ProducingAtLeastOnce)
