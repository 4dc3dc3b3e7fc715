"""Large batches are compressed aside: who waits for them, who does not, and what if they fail."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BrokerConnectionError, KafkaError
from kafkaclient.producer.accumulator.compressor import CompressionThreads
from kafkaclient.producer.batches.partition_queue import QueueState
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.records import iter_records, pack

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")
LARGE = 20_000  # for gzip
SMALL = 100


class ByHand:
    """The test decides when what is done aside is done."""

    at_a_time = 2

    def __init__(self) -> None:
        self.jobs: list[Any] = []
        self.closed = False

    def run(self, work: Any, done: Any) -> None:
        self.jobs.append((work, done))

    def finish(self, index: int = 0, result: Any = None) -> None:
        work, done = self.jobs.pop(index)
        done(result or work())

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def hand() -> ByHand:
    return ByHand()


@pytest.fixture
def sealing(bench: type[Bench], hand: ByHand) -> Any:
    """``sealing(leaders, **settings)``: gzip, and large batches by hand."""

    def made(leaders: Any = (0, 0, 1), **settings: Any) -> Any:
        settings = {"codec": CompressionType.GZIP, "batch_size": 16_000} | settings
        b = bench(leaders, background=hand, **settings)
        b.accumulator.update_topic(b.view(), 0.0)
        return b

    return made


def values(batch: Any) -> list[bytes | None]:
    return [record.value for record in iter_records(batch.buffer())]


def finish(b: Any, hand: ByHand, index: int = 0) -> None:
    hand.finish(index)
    b.accumulator.take_sealed(0.0)


def test_a_small_batch_is_compressed_at_once(sealing: Any, hand: ByHand) -> None:
    b = sealing()
    b.put(0, bytes(SMALL))
    (batch,) = b.drain()
    assert batch.builder.codec is CompressionType.GZIP
    assert not hand.jobs


def test_without_compression_nothing_is_large(sealing: Any, hand: ByHand) -> None:
    b = sealing(codec=CompressionType.NONE, batch_size=10_000_000)
    b.put(0, bytes(10_000_000))
    assert len(b.drain()) == 1
    assert not hand.jobs


def test_a_large_batch_leaves_when_it_was_compressed_aside(sealing: Any, hand: ByHand) -> None:
    b = sealing()
    b.put(0, bytes(LARGE))
    queue = b.queue(0)
    assert queue.state is QueueState.SEALING
    assert b.ready() == set()
    assert b.drain() == []
    b.woken.clear()
    hand.finish()
    assert b.woken == [0.0]
    assert queue.state is QueueState.SEALING, "nothing moves outside the sender's passes"
    (batch,) = b.drain()
    assert batch.builder.codec is CompressionType.GZIP
    assert values(batch) == [bytes(LARGE)]
    assert queue.state is QueueState.IDLE


def test_a_large_batch_lingers_first(sealing: Any, hand: ByHand) -> None:
    b = sealing(linger=1.0, batch_size=100_000)
    b.put(0, bytes(LARGE))
    b.put(0, bytes(LARGE))
    assert b.queue(0).state is QueueState.LINGER
    assert not hand.jobs
    b.lines.run_timers(1.0)
    assert b.queue(0).state is QueueState.SEALING
    assert len(hand.jobs) == 1
    finish(b, hand)
    (batch,) = b.drain(now=1.0)
    assert batch.count == 2


def test_the_next_batch_fills_and_does_not_overtake(sealing: Any, hand: ByHand) -> None:
    b = sealing()
    b.put(0, bytes(LARGE))
    b.put(0, b"small")
    assert b.drain() == []
    finish(b, hand)
    assert values(b.drain()[0]) == [bytes(LARGE)]
    assert values(b.drain()[0]) == [b"small"]


def test_large_ones_that_are_done_in_the_other_order_leave_in_theirs(
    sealing: Any, hand: ByHand
) -> None:
    b = sealing()
    for n in (1, 2):
        b.put(0, b"%d" % n * LARGE)
    finish(b, hand, 1)
    assert b.drain() == []
    finish(b, hand)
    assert [values(b.drain()[0])[0][:1] for _ in range(2)] == [b"1", b"2"]


def test_other_partitions_do_not_wait(sealing: Any, hand: ByHand) -> None:
    b = sealing()
    b.put(0, bytes(LARGE))
    b.put(1, b"small")
    assert [values(batch) for batch in b.drain()] == [[b"small"]]


def test_closed_batches_of_a_queue_occupy_every_thread(sealing: Any, hand: ByHand) -> None:
    """In whatever order they are done, they leave in the order of their records."""
    hand.at_a_time = 4
    b = sealing((0,))
    for mark in b"12345":
        b.put(0, bytes([mark]) * LARGE)
    batches = b.queue(0).batches
    assert [batch.compressing for batch in batches] == [True, True, True, True, False]
    assert len(hand.jobs) == 4
    while hand.jobs:
        finish(b, hand, -1)
    assert [values(b.drain()[0])[0][:1] for _ in range(4)] == [b"1", b"2", b"3", b"4"]


def test_two_of_a_queue_are_compressed_ahead_while_nobody_takes_them(
    sealing: Any, hand: ByHand
) -> None:
    """And no more: the open batch goes on growing."""
    hand.at_a_time = 9
    b = sealing((0, 0), late=True, elastic_limit=1_000_000)
    for _ in range(5):
        b.put(None, bytes(16_000))
        b.put(None, bytes(16_000))
    unbound = b.topic.unbound
    assert [batch.compressing for batch in unbound.batches] == [True, True, False]
    assert unbound.batches[2].count == 6
    assert b.accumulator.ready_queues.lanes_with_work() == set()
    finish(b, hand)
    assert unbound.state is QueueState.READY
    assert len(unbound.batches) == 3, "they are still two ahead"
    unbound.take_unbound()
    b.lines.schedule(unbound, 0.0)
    assert [batch.compressing for batch in unbound.batches] == [True, True]


def test_what_waits_for_answers_is_compressed_meanwhile(sealing: Any, hand: ByHand) -> None:
    b = sealing(one_in_flight=True)
    b.put(0, b"small")
    (first,) = b.drain()
    b.put(0, bytes(LARGE))
    b.put(0, bytes(LARGE))
    assert b.queue(0).state is QueueState.BLOCKED
    assert len(hand.jobs) == 2
    b.incomplete.complete(first, 0, -1, 0.0)
    assert b.queue(0).state is QueueState.SEALING


def test_a_batch_that_becomes_large_in_line_is_compressed_aside(sealing: Any, hand: ByHand) -> None:
    b = sealing((0, 0), batch_size=16_000, late=True, elastic_limit=100_000)
    b.put(None, bytes(15_900))
    b.put(None, b"full")
    unbound = b.topic.unbound
    assert unbound.state is QueueState.READY
    assert b.accumulator.ready_queues.lanes_with_work() == {0}
    b.put(None, bytes(1000))
    assert unbound.state is QueueState.SEALING
    assert not b.lines.unbound
    assert len(hand.jobs) == 1


def test_so_many_at_a_time_in_their_order(sealing: Any, hand: ByHand) -> None:
    b = sealing((0,) * 4)
    for partition in range(4):
        b.put(partition, bytes(LARGE))
    assert len(hand.jobs) == 2
    b.incomplete.fail_without_answer(b.queue(2).batches[0], LOST, 0.0)
    finish(b, hand)
    assert len(hand.jobs) == 2
    for _ in range(2):
        finish(b, hand)
    assert not hand.jobs, "nobody works for what was given up"
    assert [batch.queue.partition for batch in b.drain()] == [0, 1, 3]
    assert "waiting=0 at_work=0 finished=0" in repr(b.accumulator.compressor)


def test_a_pass_compresses_so_much_and_the_rest_aside(sealing: Any, hand: ByHand) -> None:
    b = sealing((0,) * 20)
    for partition in range(20):
        b.put(partition, bytes(10_000))
    assert len(b.drain()) == 6
    assert len(hand.jobs) == 2
    left = []
    while hand.jobs:
        finish(b, hand)
        left += b.drain()
    assert len(left) == 14
    b.put(0, bytes(10_000))
    assert len(b.drain()) == 1, "the next pass begins anew"


def test_charged_for_the_records_and_for_what_becomes_of_them(sealing: Any, hand: ByHand) -> None:
    b = sealing()
    b.put(0, bytes(LARGE))
    (batch,) = b.queue(0).batches
    assert b.used == batch.charged == batch.raw_size + batch.size > 1.9 * LARGE
    finish(b, hand)
    assert b.used == batch.charged == batch.size < 1000


@pytest.mark.parametrize("at_work", [True, False])
def test_given_up_while_it_is_compressed(at_work: bool, sealing: Any, hand: ByHand) -> None:
    """It fails at once, what is behind it goes on, and what comes of it is dropped."""
    hand.at_a_time = 1 if at_work else 0
    b = sealing()
    delivery = b.put(0, bytes(LARGE))
    b.put(0, b"small")
    b.incomplete.fail_without_answer(b.queue(0).batches[0], LOST, 0.0)
    assert delivery.exception() is LOST
    (small,) = b.drain()
    assert values(small) == [b"small"]
    assert b.used == small.charged
    if at_work:
        finish(b, hand)
    assert b.drain() == []
    b.incomplete.complete(small, 0, -1, 0.0)
    assert b.used == 0


def test_a_codec_that_fails_aside_costs_that_batch(
    sealing: Any, hand: ByHand, caplog: pytest.LogCaptureFixture
) -> None:
    b = sealing()
    delivery = b.put(0, bytes(LARGE))
    b.put(0, b"small")
    defect = RuntimeError("no codec today")
    with caplog.at_level(logging.ERROR):
        hand.finish(result=defect)
        (small,) = b.drain()
    assert "could not be compressed" in caplog.text
    assert values(small) == [b"small"]
    error = delivery.exception()
    assert isinstance(error, KafkaError)
    assert "compressing with gzip failed" in str(error)
    assert error.__cause__ is defect
    assert b.used == small.charged


def test_whatever_the_codec_raises_is_brought_back(
    sealing: Any, hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> bytes:
        raise MemoryError("a lot")

    b = sealing()
    delivery = b.put(0, bytes(LARGE))
    monkeypatch.setattr(f"{pack.__module__}.compress", broken)
    finish(b, hand)
    assert "MemoryError" in str(delivery.exception())
    assert b.used == 0


def test_the_leader_changes_meanwhile(sealing: Any, hand: ByHand) -> None:
    b = sealing((0, 0))
    b.put(0, bytes(LARGE))
    b.lead(0, -1)
    assert b.queue(0).state is QueueState.LEADERLESS
    finish(b, hand)
    assert b.queue(0).state is QueueState.LEADERLESS
    b.lead(0, 3)
    assert b.ready() == {3}


def test_a_topic_left_with_one_partition_keeps_its_order(sealing: Any, hand: ByHand) -> None:
    b = sealing((0, 0), late=True)
    b.put(None, bytes(LARGE))
    b.put(None, b"second")
    b.leaders, b.epochs = [0], [9]
    b.accumulator.update_topic(b.view(), 0.0)
    b.put(0, b"third")
    assert b.drain() == []
    finish(b, hand)
    assert [values(b.drain()[0])[0] for _ in range(3)] == [bytes(LARGE), b"second", b"third"]


def test_random_bytes_stay_as_they_are(sealing: Any, hand: ByHand) -> None:
    b = sealing()
    value = Random(0).randbytes(LARGE)
    b.put(0, value)
    finish(b, hand)
    (batch,) = b.drain()
    assert batch.builder.codec is CompressionType.NONE
    assert values(batch) == [value]
    assert b.used == batch.size


def test_closing_ends_the_rest(sealing: Any, hand: ByHand) -> None:
    hand.at_a_time = 1
    b = sealing((0, 0))
    for partition in (0, 1):
        b.put(partition, bytes(LARGE))
    b.accumulator.compressor.close()
    assert hand.closed
    assert "waiting=0" in repr(b.accumulator.compressor)


# --- threads of its own -------------------------------------------------------------------------


async def test_work_is_done_in_another_thread_and_told_in_this_one() -> None:
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    threads = []

    def work() -> bytearray:
        threads.append(threading.get_ident())
        return bytearray(b"done")

    def done(result: Any) -> None:
        threads.append(threading.get_ident())
        told.set_result(result)

    CompressionThreads(asyncio.get_running_loop()).run(work, done)
    assert not told.done()
    assert await told == b"done"
    assert threads[0] != threads[1] == threading.get_ident()


async def test_an_executor_that_was_shut_down_leaves_the_work_to_us() -> None:
    loop = asyncio.get_running_loop()
    threads = CompressionThreads(loop)
    threads._executor = ThreadPoolExecutor()
    threads._executor.shutdown()
    told: list[Any] = []
    threads.run(lambda: None, told.append)
    assert told == [], "not from within: the sender would miss it"
    await asyncio.sleep(0)
    assert told == [None]


async def test_a_job_that_others_cancelled_is_done_all_the_same() -> None:
    executor, told = CompressionThreads(asyncio.get_running_loop()), []
    executor.run(lambda: bytearray(b"x"), told.append)
    (job,) = executor._jobs
    job.cancel()
    await asyncio.sleep(0)
    assert told == [b"x"]
    assert not executor._jobs


async def test_the_number_of_threads_is_an_option() -> None:
    loop = asyncio.get_running_loop()
    threads = CompressionThreads(loop, 3)
    assert threads.at_a_time == 3
    gate, waiting = threading.Barrier(4), []
    done = [loop.create_future() for _ in range(3)]
    for future in done:
        threads.run(lambda: waiting.append(gate.wait(10)), future.set_result)
    await loop.run_in_executor(None, gate.wait, 10)  # three at the same time
    await asyncio.gather(*done)
    threads.close()
    assert 1 <= CompressionThreads(loop).at_a_time <= 4


async def test_there_are_no_threads_before_there_is_work() -> None:
    threads = CompressionThreads(asyncio.get_running_loop())
    assert threads._executor is None
    threads.close()
    assert threads._executor is None


def test_closing_leaves_a_thread_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the loop is closed before the thread has come to its end."""
    let_go, told, ended = threading.Event(), [], threading.Event()

    def work() -> None:
        let_go.wait(10)
        ended.set()

    loop = asyncio.new_event_loop()
    executor = CompressionThreads(loop)
    executor.run(work, told.append)
    executor.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    let_go.set()
    assert ended.wait(10)
    deadline = time.monotonic() + 10
    while any("kafkaclient-compress" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert not told
    assert not caplog.records
