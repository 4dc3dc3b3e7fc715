"""Back-off, leader epochs and the answers' verdicts, batch by batch."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafkaclient.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    LeaderChangedError,
    ProtocolError,
    RecordTooLargeError,
)
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.producer.sender.liveness import Misrouting
from kafkaclient.producer.sender.responses import ResponseHandler
from kafkaclient.producer.settings import RetrySettings
from kafkaclient.wire.produce import PartitionResult, ProduceResult
from kafkaclient.wire.records import iter_records

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")


class Hub:
    """Answers over a bench; plays the metadata."""

    def __init__(self, bench: type[Bench], **settings: Any) -> None:
        self.bench = bench
        self.reasons: list[str] = []
        self.fatal: list[KafkaError] = []
        self.metrics = ProducerMetrics(lambda: 0.0)
        self.answers = ResponseHandler(
            bench.accumulator.incomplete,
            bench.accumulator.identity,
            self,
            RetrySettings(**settings),
            self.metrics,
            Misrouting(cast("Any", self), cast("Any", self)),
            cast("Any", self),
            rng=Random(1),
        )

    def fail_producer(self, error: KafkaError) -> None:
        self.fatal.append(error)

    refreshed_at = float("-inf")

    def add_topic(self, name: str) -> None: ...

    def request_refresh(self, reason: str) -> None:
        self.reasons.append(reason)

    def apply_leaders(self, hints: list[Any], endpoints: object = ()) -> None:
        for hint in hints:
            self.bench.lead(hint.partition, hint.leader, hint.leader_epoch)

    def take(self, batches: list[Any], code: int, now: float = 0.0, **fields: Any) -> None:
        results = [
            PartitionResult(
                *batch.queue.tp, code, -1 if code else 40, -1, 0, (), None, -1, -1
            )._replace(**fields)
            for batch in batches
        ]
        self.answers.response(batches, ProduceResult(results, 0, ()), 0, now)


def test_exponential_retry_backoff(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testExponentialRetryBackoff: 100 ms doubling, 20 % of jitter."""
    b = bench()
    hub = Hub(b)
    b.put(0)
    now = 0.0
    for k in range(4):
        batches = b.drain(now=now)
        assert len(batches) == 1
        hub.answers.no_response(batches, LOST, now)
        lower, upper = 0.8 * 0.1 * 2**k, min(1.0, 1.2 * 0.1 * 2**k)
        assert b.drain(now=now + lower - 0.001) == []
        assert b.lines.next_timer() <= now + upper + 1e-9
        now += upper + 0.001
    assert b.ready(now) == {0}


def test_backoff_is_drawn_once_per_attempt(bench: type[Bench]) -> None:
    b = bench()
    hub = Hub(b)
    b.put(0)
    hub.answers.no_response(b.drain(), LOST, 0.0)
    timers = {b.lines.next_timer() for _ in range(10) if b.drain(now=0.01) == []}
    assert len(timers) == 1


def test_a_newer_leader_is_asked_at_once(bench: type[Bench]) -> None:
    """testReadyAndDrainWhenABatchIsBeingRetried: an epoch that rose ends the back-off, once."""
    b = bench(leaders=(0, 0))
    hub = Hub(b)
    b.lead(0, 0, 100)
    b.put(0)
    hub.take(b.drain(now=0.0), 6, now=0.0)
    assert b.drain(now=0.001) == [], "the same epoch backs off"
    b.lead(0, 0, 100, now=0.002)
    assert b.drain(now=0.002) == []
    b.lead(0, 0, 101, now=0.003)
    (batch,) = b.drain(now=0.003)
    assert (batch.leader_epoch, batch.attempts) == (101, 2)
    hub.take([batch], 6, now=0.004)
    assert b.drain(now=0.005) == [], "it failed under this epoch: back-off again"
    (batch,) = b.drain(now=2.0)
    b.lead(0, 0, 102, now=2.1)  # while it is on the wire
    hub.take([batch], 6, now=2.2)
    (batch,) = b.drain(now=2.2)
    assert (batch.leader_epoch, batch.attempts) == (102, 4)


def test_a_newer_leader_is_asked_for_every_retry(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0, 1))
    hub = Hub(b)
    b.put_batches(0, 3)
    batches = [b.drain()[0] for _ in range(3)]
    for batch in batches:
        hub.take([batch], 6)
    b.lead(0, 1, now=0.001)
    for batch in batches:
        assert b.drain(1, now=0.001) == [batch]
        hub.take([batch], 0, now=0.001)


def test_a_leader_hint_moves_the_partition_before_the_retry(bench: type[Bench]) -> None:
    """KIP-951: the answer names the new leader."""
    b = bench()
    hub = Hub(b)
    b.put(0)
    hub.take(b.drain(0), 6, leader_id=1, leader_epoch=5)
    assert len(b.drain(1)) == 1
    assert b.queue(0).leader_epoch == 5


@pytest.mark.parametrize("anew", [False, True])
def test_a_leader_named_for_a_former_topic_is_not_taken_for_the_new(
    bench: type[Bench], anew: bool
) -> None:
    """KIP-951: its epoch is higher than any that the new one may reach in years."""
    b = bench(leaders=(0,))
    hub = Hub(b)
    b.put(0)
    (batch,) = b.drain()
    batch.topic_id = b"1"
    b.topic.topic_id = b"2" if anew else b"1"
    hub.take([batch], 6, leader_id=3, leader_epoch=9)
    assert b.queue(0).leader_epoch == (0 if anew else 9)


def test_an_acknowledged_batch(bench: type[Bench]) -> None:
    b = bench()
    hub = Hub(b)
    delivery = b.put(0, timestamp=5)
    hub.take(b.drain(), 0, log_append_time_ms=99, log_start_offset=12)
    assert delivery.result() == ("test", 0, 40, 99, 1, 12)
    assert b.used == 0
    assert (b.queue(0).records_sent, b.queue(0).bytes_sent) == (1, 73)
    assert hub.reasons == []


def test_a_duplicate_is_a_success_without_offset(bench: type[Bench]) -> None:
    b = bench(idempotent=True)
    hub = Hub(b)
    delivery = b.put(0)
    hub.take(b.drain(), 46, log_start_offset=-1)
    assert delivery.result()[2:] == (-1, 0, -1, -1)


@pytest.mark.parametrize("code", [-1, 17, 29, 87, 42, 1234])
def test_a_refusal_is_final(bench: type[Bench], code: int) -> None:
    b = bench()
    hub = Hub(b)
    delivery = b.put(0)
    hub.take(b.drain(), code, error_message="because")
    error = delivery.exception()
    assert isinstance(error, BrokerError)
    assert error.code == code
    assert "1 record to test-0 on broker 0" in str(error)
    assert "because" in str(error)
    assert b.used == 0
    assert hub.fatal == []


@pytest.mark.parametrize("code", [90])
@pytest.mark.parametrize("idempotent", [True, False])
def test_some_refusals_end_an_idempotent_producer(
    bench: type[Bench], code: int, idempotent: bool
) -> None:
    b = bench(idempotent=idempotent)
    hub = Hub(b)
    delivery = b.put(0)
    hub.take(b.drain(), code)
    assert delivery.exception().code == code
    assert hub.fatal == ([delivery.exception()] if idempotent else [])


def test_record_errors_name_the_culprits(bench: type[Bench]) -> None:
    """KIP-467: the broker's word on a record reaches that record's delivery; the others are sent
    again without it (S4). One without a word of its own gets that on the batch."""
    b = bench()
    hub = Hub(b)
    deliveries = [b.put(0, b"%d" % n) for n in range(6)]
    errors = ((1, "no key"), (2, None), (4, "late"), (6, "no such record"), (-1, "nor this"))
    hub.take(b.drain(), 87, record_errors=errors, error_message="invalid")
    failed = {n: str(d.exception()) for n, d in enumerate(deliveries) if d.done()}
    assert list(failed) == [1, 2, 4]
    assert [
        word in message
        for word, message in zip(["no key", "invalid", "late"], failed.values(), strict=True)
    ] == [True] * 3
    (rest,) = b.drain(now=1.0)
    assert [r.value for r in iter_records(rest.buffer())] == [b"0", b"3", b"5"]
    hub.take([rest], 0)
    assert [deliveries[n].result().offset for n in (0, 3, 5)] == [40, 41, 42]
    assert b.used == 0
    assert hub.metrics.snapshot().producer["record-error-total"] == 3


@pytest.mark.parametrize("culprits", [(), (0, 1, 2)])
def test_no_culprit_or_nothing_else(bench: type[Bench], culprits: tuple[int, ...]) -> None:
    b = bench()
    hub = Hub(b)
    deliveries = [b.put(0) for _ in range(3)]
    hub.take(b.drain(), 87, record_errors=tuple((n, f"reason {n}") for n in culprits))
    messages = [str(d.exception()) for d in deliveries]
    assert [f"reason {n}" in message for n, message in enumerate(messages)] == [bool(culprits)] * 3


def test_a_batch_that_may_be_written_is_not_sent_in_part(bench: type[Bench]) -> None:
    """The broker checks records before it looks for duplicates: the whole may be in the log."""
    b = bench(idempotent=True)
    hub = Hub(b)
    deliveries = [b.put(0) for _ in range(3)]
    (batch,) = b.drain()
    hub.answers.no_response([batch], BrokerConnectionError("cut"), 0.0)
    hub.take(b.drain(now=1.0), 32, record_errors=((1, "old"),))
    assert all(d.exception() is not None for d in deliveries)
    assert all(d.exception().maybe_written for d in deliveries), "the rejected record's, too"


def test_retries_run_out(bench: type[Bench]) -> None:
    b = bench()
    hub = Hub(b, retries=2)
    delivery, now = b.put(0), 0.0
    for _ in range(3):
        assert not delivery.done()
        hub.take(b.drain(now=now), 6, now=now)
        now += 2.0
    assert isinstance(delivery.exception(), LeaderChangedError)
    assert b.used == 0
    assert not b.queue(0).unacked


def test_a_partition_left_out_of_the_answer_is_retried(bench: type[Bench]) -> None:
    b = bench()
    hub = Hub(b)
    b.put(0)
    (batch,) = b.drain()
    hub.answers.response([batch], ProduceResult([], 0, ()), 0, 0.0)
    assert batch.maybe_written
    assert isinstance(batch.last_error, ProtocolError)
    assert b.drain(now=1.0) == [batch]


@pytest.mark.parametrize("code", [3, 5, 6])
def test_an_old_idea_of_the_cluster_is_refreshed(bench: type[Bench], code: int) -> None:
    b = bench()
    hub = Hub(b)
    b.put(0)
    hub.take(b.drain(), code)
    assert len(hub.reasons) == 1


def test_a_lone_record_too_large_fails(bench: type[Bench]) -> None:
    b = bench()
    hub = Hub(b)
    delivery = b.put(0, bytes(500))
    hub.take(b.drain(), 10)
    error = delivery.exception()
    assert isinstance(error, RecordTooLargeError)
    assert error.code == 10
    assert "max.message.bytes" in str(error)


def test_sequence_errors_without_sequences_are_refusals(bench: type[Bench]) -> None:
    b = bench()
    hub = Hub(b)
    delivery = b.put(0)
    hub.take(b.drain(), 45)
    assert delivery.exception().code == 45


def test_a_split_uses_up_no_retry(bench: type[Bench]) -> None:
    b = bench(batch_size=65536)
    hub = Hub(b, retries=1)
    deliveries = [b.put(0, bytes(1000)) for _ in range(8)]
    hub.take(b.drain(), 10)
    hub.take(b.drain(), 10)
    (part,) = b.drain()
    assert part.count == 2
    hub.take([part], 6)
    assert not any(d.done() for d in deliveries)
    hub.take(b.drain(now=5.0), 6, now=5.0)
    assert [d.done() for d in deliveries] == [True] * 2 + [False] * 6


def test_the_error_says_whether_the_record_may_have_been_written(bench: type[Bench]) -> None:
    """Whatever error the record fails with: two batches share one, and only one was uncertain."""
    b = bench(leaders=(0, 0))
    hub = Hub(b, retries=1)
    refused = b.put(0)
    hub.take(b.drain(), 29)
    lost = b.put(0)
    in_flight = b.put(1)
    first = [batch for batch in b.drain() if batch.queue.partition == 0]
    hub.answers.no_response(first, LOST, 0.0)
    hub.take(b.drain(now=10.0), 29)
    stopped = KafkaError("stopped")
    for batch in list(b.incomplete):
        b.incomplete.fail_without_answer(batch, stopped, 10.0)
    waiting = b.put(0)
    for batch in list(b.incomplete):
        b.incomplete.fail_without_answer(batch, stopped, 10.0)
    for delivery, uncertain in (
        (refused, False),
        (lost, True),
        (in_flight, True),
        (waiting, False),
    ):
        error = delivery.exception()
        assert error is not None
        assert error.maybe_written is uncertain
    assert not stopped.maybe_written
    assert not LOST.maybe_written
