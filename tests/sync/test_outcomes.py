"""Each future of a ``SyncProducer`` has its outcome, once."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import KafkaError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
from kafkaclient.sync.feeder import Outcomes
from kafkaclient.sync.futures import FutureState, SendFuture
from tests.sync.support import one_topic, running

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kafkaclient import SyncProducer


def _outcomes() -> tuple[Outcomes, FutureState]:
    state = FutureState()
    return Outcomes(state, lambda *_: None), state


def _batch(records: int) -> tuple[BatchResult, list[Any]]:
    batch_result, deliveries = BatchResult("t"), []
    for _ in range(records):
        batch_result.count += 1
        deliveries.append(delivery_for_last(batch_result, 0))
    return batch_result, deliveries


async def test_a_batch_that_is_done_before_its_records_are_watched() -> None:
    outcomes, state = _outcomes()
    batch_result, deliveries = _batch(2)
    batch_result.resolve(5)
    futures: list[SendFuture[Any]] = [SendFuture(state) for _ in deliveries]
    outcomes.taken(2)
    for future, delivery in zip(futures, deliveries, strict=True):
        outcomes.appended(future, delivery)
    assert outcomes.unsettled == 2
    await asyncio.sleep(0)
    assert [future.result(0).offset for future in futures] == [5, 6]
    assert outcomes.unsettled == 0


async def test_each_transition_counts_its_records() -> None:
    outcomes, state = _outcomes()
    outcomes.taken(3)
    many, refused, one = SendFuture[Any](state), SendFuture[Any](state), SendFuture[Any](state)
    bulk_result, _ = _batch(10)
    bulk = BulkDelivery("t")
    bulk.add([(bulk_result, 0, 10)])
    outcomes.appended_many(many, "t", bulk)
    assert outcomes.unsettled == 12
    outcomes.refuse(refused, "t", LookupError("a defect"))
    assert outcomes.unsettled == 11
    batch_result, (delivery,) = _batch(1)
    outcomes.appended(one, delivery)
    bulk_result.resolve(0)
    batch_result.fail(KafkaError("no"))
    await outcomes.wait_settled()
    assert outcomes.unsettled == 0
    assert many.result(0).records == 10
    assert "a defect" in str(refused.exception(0))
    assert str(one.exception(0)) == "no"


class _Flushed:
    """A producer whose flush ends in the same iteration of the loop as the batch."""

    def __init__(self, batch_result: BatchResult) -> None:
        self._batch_result = batch_result

    async def flush(self) -> None:
        self._batch_result.resolve(0)


async def test_a_flush_ends_after_the_futures_of_bulk_calls_have_their_outcomes() -> None:
    outcomes, state = _outcomes()
    outcomes.taken(1)
    future, (batch_result, _) = SendFuture[Any](state), _batch(3)
    bulk = BulkDelivery("t")
    bulk.add([(batch_result, 0, 3)])
    outcomes.appended_many(future, "t", bulk)
    await outcomes.flush(cast("Any", _Flushed(batch_result)))
    assert future.done()
    assert outcomes.unsettled == 0


class _Work:
    """What one thread does with a producer: each step is a call."""

    def __init__(self, producer: SyncProducer, seed: int, called: list[object]) -> None:
        self._producer = producer
        self._rng = random.Random(seed)
        self._called = called
        self.futures: list[Future[Any]] = []
        self.callbacks = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            with suppress(KafkaError):
                self._step()

    def _step(self) -> None:
        rng, producer = self._rng, self._producer
        topic = rng.choice(["t", "t", "t", "u", "missing"])
        value = bytes(rng.choice([10, 500, 3000]))
        what = rng.randrange(8)
        if what == 0:
            producer.flush(rng.choice([0.001, 5]))
        elif what == 1:
            self.futures.append(producer.send_many(topic, [value] * rng.randrange(20)))
        elif what == 2:
            self.futures.append(producer.send(topic, value, partition=rng.randrange(4)))
        elif what == 3 and topic != "missing":
            producer.send_and_wait(topic, value)
        else:
            self.futures += [
                producer.send(topic, value, rng.choice([None, b"k"])) for _ in range(9)
            ]
        if self.futures and rng.random() < 0.5:
            self.futures[-1].add_done_callback(self._called.append)
            self.callbacks += 1


@given(
    seed=st.integers(0, 2**32),
    buffer_memory=st.sampled_from([12_000, 60_000, 1 << 20]),
    linger_ms=st.sampled_from([0, 5]),
    close_s=st.sampled_from([None, 0.0, 0.05]),
    early=st.booleans(),
)
@settings(deadline=None, max_examples=5)
def test_every_future_has_its_outcome(
    seed: int, buffer_memory: int, linger_ms: int, close_s: float | None, early: bool
) -> None:
    """Threads send, call back and flush, with a small buffer, and a close at any time."""
    fake = one_topic(2, auto_create_topics=False)
    fake.create_topic("u", 1, 1)
    called: list[object] = []
    with running(
        fake,
        buffer_memory=buffer_memory,
        max_request_size=10_000,
        batch_size=4096,
        linger_ms=linger_ms,
        max_block_ms=200,
    ) as producer:
        works = [_Work(producer, seed + n, called) for n in range(3)]
        threads = [threading.Thread(target=work.run, args=(25,)) for work in works]
        for thread in threads:
            thread.start()
        if early:
            threads[0].join(0.1)
            producer.close(close_s)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        producer.flush()
        futures = [future for work in works for future in work.futures]
        if close_s is None or not early:
            assert all(future.done() for future in futures)
        producer.close(close_s)
        assert all(future.done() for future in futures)
        thread_of = producer._thread
        assert thread_of is not None
        assert thread_of.unsettled == 0
    assert len(called) == sum(work.callbacks for work in works)
    for future in futures:
        error = future.exception(0)
        assert error is None or isinstance(error, KafkaError)


@pytest.mark.parametrize("what", ["missing topic", "no partition", "a column", "too large"])
def test_a_refused_send_many_that_nobody_reads_is_reported(what: str) -> None:
    unseen: list[Any] = []
    options = {"linger_ms": 0, "max_block_ms": 1000, "max_request_size": 1000}
    with running(
        one_topic(auto_create_topics=False), on_error=unseen.append, **options
    ) as producer:
        calls = {
            "missing topic": lambda: producer.send_many("missing", [b"x", b"y"]),
            "no partition": lambda: producer.send_many("t", [b"x", b"y"], partition=9),
            "a column": lambda: producer.send_many("t", [b"x", b"y"], keys=[b"k"]),
            "too large": lambda: producer.send_many("t", [bytes(2000)]),
        }
        calls[what]()
        producer.flush()
    assert len(unseen) == 1
