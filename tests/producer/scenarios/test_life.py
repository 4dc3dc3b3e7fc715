"""From the first call to the last: start, stop and what may be called when.

Ids such as ``L8`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import traceback
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BootstrapError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    ReaderStateError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.reader.reader import Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.inspect import inspect
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster
    from tests.producer.support import Look, StartProducer, Values


@virtual_time
async def test_stop_ends_a_start_under_way() -> None:
    fake = one_topic(brokers=1)
    fake.stall_broker(0)
    producer = Producer(fake.bootstrap, dialer=fake)
    start = asyncio.create_task(producer.start())
    await asyncio.sleep(0.1)
    with pytest.raises(ProducerStateError, match="is being started"):
        await producer.send("t", b"v")
    with pytest.raises(ProducerStateError, match="is being started"):
        await producer.start()
    before = now()
    assert await asyncio.gather(producer.stop(), producer.stop()) == [0, 0]
    with pytest.raises(ProducerClosedError):
        await start
    assert now() - before < 0.1
    assert repr(producer).endswith("is stopped>")
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_stop_at_every_moment_of_a_start() -> None:
    """Whichever comes first, the two agree."""
    fake = one_topic(brokers=1)
    fake.round_trip_s = 0.002
    for turns in range(40):
        producer = Producer(fake.bootstrap, dialer=fake)
        start = asyncio.create_task(producer.start())
        for _ in range(turns):
            await asyncio.sleep(0 if turns % 2 else 0.0002)
        assert await asyncio.wait_for(producer.stop(), 1) == 0
        (outcome,) = await asyncio.gather(start, return_exceptions=True)
        assert outcome is None or isinstance(outcome, ProducerStateError)
        assert repr(producer).endswith("is stopped>")
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("stopped", [False, True])
@virtual_time
async def test_calls_without_a_start(stopped: bool) -> None:
    producer = Producer("localhost:9092")
    if stopped:
        assert await producer.stop() == 0
    calls: list[Any] = [
        producer.metrics,
        producer.load,
        producer.flush,
        lambda: producer.partitions_for("t"),
        lambda: producer.send("t", b"v"),
        lambda: producer.send_nowait("t", b"v"),
    ]
    for call in calls:
        with pytest.raises(ProducerStateError) as caught:
            await call()
        assert isinstance(caught.value, ProducerClosedError) == stopped


def test_a_producer_that_was_never_made_says_nothing_at_its_end() -> None:
    with pytest.raises(TypeError):
        Producer("a:9092", "b:9092")  # type: ignore[call-arg]


@virtual_time
async def test_a_fatal_error_gathers_no_frames(producing: StartProducer) -> None:
    async with producing(one_topic()) as producer:
        inspect(producer).fail_producer(fatal := ProducerClosedError("defect"))
        for _ in range(50):
            with pytest.raises(ProducerClosedError, match="defect"):
                await producer.send("t", b"v")
        assert sum(1 for _ in traceback.walk_tb(fatal.__traceback__)) < 8


async def test_the_wrong_event_loop(producing: StartProducer) -> None:
    """From a thread with another loop, or with none: refused, and nothing is harmed."""
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        for node in range(3):
            fake.stall_broker(node)
        pending = await producer.send("t", b"w")
        many = await producer.send_many("t", [b"x"])

        async def wait_for(delivery: Any) -> None:
            await delivery

        async def call_back() -> None:
            pending.add_done_callback(print)

        calls: list[Any] = [
            lambda: producer.send_nowait("t", b"v"),  # without any loop
            lambda: asyncio.run(producer.send("t", b"v")),
            lambda: asyncio.run(producer.send_many("t", [b"v"])),
            lambda: asyncio.run(producer.flush()),
            lambda: asyncio.run(producer.partitions_for("t")),
            lambda: asyncio.run(producer.stop()),
            lambda: asyncio.run(wait_for(pending)),
            lambda: asyncio.run(wait_for(many)),
            lambda: asyncio.run(call_back()),
        ]
        for call in calls:
            with pytest.raises(ProducerStateError, match="event loop") as caught:
                await asyncio.to_thread(call)
            assert not isinstance(caught.value, ProducerClosedError)
        for node in range(3):
            fake.resume_broker(node)
        await asyncio.gather(pending, many)


@virtual_time
async def test_a_delivery_of_a_split_batch_knows_its_event_loop(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1, max_message_bytes=400)
    async with producing(fake) as producer:
        deliveries = [await producer.send("t", bytes(100)) for _ in range(8)]
        await asyncio.gather(*deliveries)
        assert {delivery._batch_result.resolve_index(0)[0].loop for delivery in deliveries} == {
            asyncio.get_running_loop()
        }


# --- dropped without a stop ---------------------------------------------------------------------


def drop(held: list[Producer]) -> None:
    held.clear()
    gc.collect()


@virtual_time
async def test_a_producer_that_is_dropped_warns_and_leaves_nothing_behind(values: Values) -> None:
    """What it had accepted is delivered all the same."""
    fake = one_topic(1)
    before = asyncio.all_tasks()
    held = [Producer(fake.bootstrap, dialer=fake, linger_ms=1000)]
    await held[0].start()
    await held[0].send("t", b"first")
    delivery = await held[0].send("t", b"last")
    await asyncio.sleep(0)
    with pytest.warns(ResourceWarning, match="unclosed producer"):
        drop(held)
    await delivery
    assert values(fake, "t") == [b"first", b"last"]
    await asyncio.sleep(2)
    assert asyncio.all_tasks() == before
    assert sum(map(fake.connections, range(3))) == 0


@pytest.mark.parametrize("moment", ["idle", "begun", "sent", "aborted"])
@virtual_time
async def test_a_transactional_producer_that_is_dropped_aborts(
    fake: FakeCluster, look: Look, moment: str
) -> None:
    """Like any other it warns; no task is left behind, no connection, no open transaction."""
    before = asyncio.all_tasks()
    held = [Producer(fake.bootstrap, dialer=fake, transactional_id="tx")]
    await held[0].start()
    if moment != "idle":
        await held[0].begin_transaction()
    if moment in ("sent", "aborted"):
        await held[0].send_and_wait("t", b"v")
        await held[0].send("t", b"w")
    if moment == "aborted":
        await held[0].abort_transaction()
    with pytest.warns(ResourceWarning, match="unclosed producer"):
        drop(held)
    await asyncio.sleep(5)
    assert asyncio.all_tasks() == before
    assert sum(map(fake.connections, range(3))) == 0
    assert look.committed(fake) == []
    assert look.all_ended(fake)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
@virtual_time
async def test_what_belongs_to_one_owner_cannot_be_copied(
    how: Any, producing: StartProducer
) -> None:
    """A copy that is dropped would stop the original."""
    fake = one_topic()
    new = Producer(fake.bootstrap, dialer=fake)
    async with producing(fake) as producer, Reader(fake.bootstrap, dialer=fake) as reader:
        await producer.send_and_wait("t", b"v")
        many = await producer.send_many("t", [b"v"])
        for owner in (new, producer, reader, many, await producer.send("t", b"v")):
            with pytest.raises(TypeError, match=f"{type(owner).__name__} cannot be copied or"):
                how(owner)
        gc.collect()
        await producer.send_and_wait("t", b"the original still sends")


@pytest.mark.parametrize("policy", ["asyncio", "uvloop"])
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_loop_that_does_not_run_any_more(policy: str) -> None:
    """Whatever was open a moment ago: without a loop, in a second one, and when it is closed."""
    new_loop = asyncio.new_event_loop
    if policy == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop
    fake = one_topic()

    async def main() -> tuple[Producer, Reader]:
        producer, reader = (
            Producer(fake.bootstrap, dialer=fake),
            Reader(fake.bootstrap, dialer=fake),
        )
        await producer.start()
        await reader.start()
        await producer.send_and_wait("t", b"v")
        producer.send_nowait("t", b"a batch is open")
        producer.send_nowait("t", b"and has a tap")
        return producer, reader

    async def other(call: Any) -> None:
        await call()

    home = new_loop()
    producer, reader = home.run_until_complete(main())
    calls: list[Any] = [
        lambda p, _: p.send("t", b"v"),
        lambda p, _: p.send_many("t", [b"v"]),
        lambda p, _: p.refresh_metadata(),
        lambda p, _: p.flush(),
        lambda p, _: p.stop(),
        lambda _, r: r.partitions("t"),
    ]
    for closed in (False, True):
        with pytest.raises(ProducerStateError, match="closed" if closed else "another thread"):
            producer.send_nowait("t", b"without a loop")
        for call in calls:
            with pytest.raises((ProducerStateError, ReaderStateError), match="event loop"):
                asyncio.run(other(partial(call, producer, reader)))
        if not closed:
            home.run_until_complete(other(producer.stop))
            home.run_until_complete(other(reader.close))
            assert len(fake.log("t", 0)) + len(fake.log("t", 1)) + len(fake.log("t", 2)) == 3
            producer, reader = home.run_until_complete(main())
            home.close()
    del producer, reader
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert {"unclosed producer 'kafkaclient'", "unclosed reader 'kafkaclient'"} <= {
        str(warning.message).partition(":")[0] for warning in caught
    }


@virtual_time
async def test_many_dropped_producers_take_no_more_than_one() -> None:
    fake = one_topic(1)
    for _ in range(20):
        held = [Producer(fake.bootstrap, dialer=fake)]
        await held[0].start()
        await held[0].send_and_wait("t", b"v")
        with pytest.warns(ResourceWarning, match="unclosed producer"):
            drop(held)
        await asyncio.sleep(2)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert sum(map(fake.connections, range(3))) == 0


# --- a task of ours ends ------------------------------------------------------------------------


def _sender(producer: Producer, fail: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inspect(producer).sender._wakeup, "_work", fail)
    inspect(producer).sender._wakeup.wake_at()


def _metadata(producer: Producer, fail: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inspect(producer).metadata, "_until_due", fail)
    inspect(producer).metadata.request_refresh("the test")


def _identity(producer: Producer, fail: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kafkaclient.producer.sender.producer_ids.InitProducerIdCall", fail)
    inspect(producer).accumulator.identity.producer_id = -1
    inspect(producer).producer_ids.ensure()


@pytest.mark.parametrize("crash", [_sender, _metadata, _identity])
@virtual_time
async def test_a_crashed_task_ends_everything_with_its_cause(
    crash: Any,
    producing: StartProducer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """L8: no delivery is left pending, and whoever sends afterwards learns why."""

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            fake.stall_broker(node)
        pending = [await producer.send("t", b"v", partition=n % 3) for n in range(6)]
        parked = producer.send_nowait("unknown", b"v")
        crash(producer, fail, monkeypatch)
        started = now()
        outcomes = await asyncio.gather(*pending, parked, return_exceptions=True)
        assert now() - started < 5
        assert {type(outcome) for outcome in outcomes} == {ProducerClosedError}
        assert all(isinstance(o.__cause__, ZeroDivisionError) for o in outcomes[:-1])
        for _ in range(2):
            with pytest.raises(ProducerClosedError, match="ZeroDivisionError"):
                await producer.send("t", b"v")
        await asyncio.wait_for(producer.flush(), 1)
    told = [r.message for r in caplog.records if "the producer cannot go on" in r.message]
    assert len(told) == 1


# --- max.block.ms=0 -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"transactional_id": "tx"}])
@virtual_time
async def test_sending_never_waits_but_a_start_does(options: Any, producing: StartProducer) -> None:
    """With max.block.ms=0."""
    fake = one_topic()
    fake.round_trip_s = 0.05
    async with producing(fake, max_block_ms=0, **options) as producer:
        if options:
            await producer.begin_transaction()
        began = now()
        with pytest.raises(MetadataTimeoutError, match=r"within 0 s \(max.block.ms\)"):
            await producer.send("t", b"unknown yet")
        assert now() == began
        await asyncio.sleep(1)
        await producer.send("t", b"v")
        await producer.refresh_metadata()
        if options:
            await producer.commit_transaction()
            assert (await producer.committed("g", [("t", 0)])) == {("t", 0): None}
    assert sum(len(fake.log("t", p)) for p in range(3)) >= 1


@virtual_time
async def test_a_start_without_max_block_ends_with_the_request_timeout() -> None:
    fake = one_topic(brokers=1)
    fake.stall_broker(0)
    began = now()
    with pytest.raises(BootstrapError, match=r"within 7 s \(request.timeout.ms, as max.block.ms"):
        await Producer(fake.bootstrap, dialer=fake, max_block_ms=0, request_timeout_ms=7000).start()
    assert now() - began == pytest.approx(7)
