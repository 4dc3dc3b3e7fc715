"""SyncConsumer: the consumer's promises, in threads."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Consumer, SyncConsumer
from kafkaclient.consumer import RebalanceListener
from kafkaclient.errors import BootstrapError, ConsumerStateError
from kafkaclient.testing import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

WHERE = TopicPartition("t", 0)


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    return cluster


def fill(fake: FakeCluster, records: int) -> None:
    """Append records, each value its offset, in batches of three."""
    at, end = fake.end_offset("t", 0), fake.end_offset("t", 0) + records
    while at < end:
        builder = BatchBuilder(2**20)
        for offset in range(at, min(at + 3, end)):
            builder.append(1000 + offset, None, b"%d" % offset, [])
        builder.seal(0)
        fake.append("t", 0, bytes(builder.buffer()))
        at = min(at + 3, end)


@contextmanager
def consuming(fake: FakeCluster, **options: Any) -> Iterator[SyncConsumer]:
    options = {"group_id": "g", "topics": ["t"], "auto_offset_reset": "earliest"} | options
    with SyncConsumer(fake.bootstrap, dialer=fake, heartbeat_interval_ms=300, **options) as made:
        yield made
    assert not [each for each in threading.enumerate() if each.name == "kafkaclient-kafkaclient"]


def test_what_was_stepped_past_is_committed(fake: FakeCluster) -> None:
    fill(fake, 10)
    with consuming(fake) as consumer:
        for record in consumer:
            if record.offset == 7:
                break
        assert consumer.position(WHERE) == 8
        assert consumer.assignment == {WHERE}
        assert consumer.subscription == {"t"}
        assert consumer.lag() == {WHERE: 2}
        assert consumer.group_metadata.generation_id > 0
        assert consumer.metrics().consumer["records-consumed-total"] >= 8
    assert fake.committed_offset("g", *WHERE) == 7, "8 was in hand"
    with consuming(fake) as consumer:
        assert [next(iter(consumer)).offset, next(iter(consumer)).offset] == [7, 7]
        consumer.commit()
        assert consumer.committed([WHERE]) == {WHERE: 8}


def test_poll_takes_nothing_when_its_time_is_up(fake: FakeCluster) -> None:
    with consuming(fake) as consumer:
        began = monotonic()
        assert consumer.poll(0.05) is None
        assert monotonic() - began < 5
        fill(fake, 2)
        found = consumer.poll()
        assert found is not None
        assert found.value == b"0"
        assert consumer.poll(10) == next(iter(consumer)), "a loop begins with what is in hand"
        assert consumer.poll(0.01) is not None
        consumer.commit({WHERE: 1})
    assert fake.committed_offset("g", *WHERE) == 1, "what was in hand is not finished"


def test_batches(fake: FakeCluster) -> None:
    fill(fake, 7)
    with consuming(fake) as consumer:
        seen = 0
        for batch in consumer.batches():
            seen += len(batch)
            if seen == 7:
                consumer.commit()
                break
    assert fake.committed_offset("g", *WHERE) == 7


def test_workers_finish_records_in_any_order(fake: FakeCluster) -> None:
    fill(fake, 300)
    last = threading.Event()
    with consuming(fake) as consumer, ThreadPoolExecutor(8) as pool:
        for record in consumer.tracked():
            if record.offset == 150:
                pool.submit(lambda late=record: (last.wait(), late.done()))
            else:
                pool.submit(record.done)
            if record.offset == 299:
                break
        last.set()
        pool.shutdown()
        consumer.commit()
    assert fake.committed_offset("g", *WHERE) == 300


def test_seek_and_pause_from_another_thread_count_at_once(fake: FakeCluster) -> None:
    fill(fake, 30)
    with consuming(fake) as consumer, ThreadPoolExecutor(1) as other:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if seen == [0]:
                other.submit(consumer.seek, WHERE, 20).result()
            elif len(seen) == 3:
                other.submit(consumer.pause, WHERE).result()
                assert consumer.poll(0.05) == record, "a new loop begins with what is in hand"
                assert consumer.poll(0.05) is None, "nothing of a paused partition"
                other.submit(consumer.resume, WHERE).result()
                break
        assert seen == [0, 20, 21]
        consumer.seek_to("earliest")
        assert consumer.offsets([WHERE], "latest") == {WHERE: 30}
        assert next(iter(consumer)).offset == 0


def test_another_loop_takes_over(fake: FakeCluster) -> None:
    fill(fake, 9)
    with consuming(fake) as consumer:
        first, second = iter(consumer), None
        assert next(first).offset == 0
        second = iter(consumer)
        assert next(second).offset == 0
        with pytest.raises(ConsumerStateError, match="another loop"):
            next(first)
        assert next(second).offset == 1


def test_assigned_by_hand_and_stopped_by_another_thread(fake: FakeCluster) -> None:
    fill(fake, 2)
    consumer = SyncConsumer(fake.bootstrap, dialer=fake, auto_offset_reset="earliest")
    assert "SyncConsumer" in repr(consumer)
    with pytest.raises(ConsumerStateError, match="not started"):
        consumer.poll()
    with consumer:
        consumer.assign([WHERE])
        stopping = threading.Thread(target=consumer.stop)
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if seen == [0, 1]:
                stopping.start()
        stopping.join()
        assert seen == [0, 1]
    with pytest.raises(ConsumerStateError, match="closed"):
        consumer.lag()
    with pytest.raises(ConsumerStateError, match="started once"):
        consumer.start()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(consumer)


@pytest.mark.parametrize("how", ["loop", "poll", "batches"])
def test_a_call_of_another_thread_ends_with_the_consumer(fake: FakeCluster, how: str) -> None:
    """Also while a record is deserialized: it comes again to the next consumer."""
    fill(fake, 1)
    deserializing = threading.Event()

    async def never(_: bytes) -> None:
        deserializing.set()
        await asyncio.sleep(600)

    options: dict[str, Any] = {} if how == "batches" else {"value_deserializer": never}
    with consuming(fake, **options) as consumer, ThreadPoolExecutor(1) as pool:
        if how == "batches":
            batches = consumer.batches()
            assert len(next(batches)) == 1
            taken = pool.submit(next, batches, None)
        else:
            taken = pool.submit(
                consumer.poll if how == "poll" else lambda: next(iter(consumer), None)
            )
            assert deserializing.wait(10)
        consumer.stop()
        assert taken.result(10) is None
        for _ in range(2):
            with pytest.raises(ConsumerStateError, match="closed"):
                consumer.poll()


def test_a_listener_may_use_the_consumer(fake: FakeCluster) -> None:
    fill(fake, 9)
    told: list[str] = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions: Any) -> None:
            told.append("assigned")
            for each in partitions:
                made.seek(each, 4)

        def on_revoked(self, partitions: Any) -> None:
            told.append("revoked")
            made.commit(dict.fromkeys(partitions, 6))

    # The listener may be called before the with statement has bound its name.
    made = SyncConsumer(
        fake.bootstrap,
        dialer=fake,
        group_id="g",
        topics=["t"],
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        listener=Listener(),
        enable_auto_commit=False,
    )
    with made:
        assert next(iter(made)).offset == 4
    assert told == ["assigned", "revoked"]
    assert fake.committed_offset("g", *WHERE) == 6


def test_it_has_the_methods_of_the_consumer() -> None:
    others = {"getone", "has_assignment", "known_partitions", "loop"}  # poll, wait_assigned, ...
    theirs = {name for name in dir(Consumer) if not name.startswith("_")}
    assert theirs - set(dir(SyncConsumer)) == others
    for name in theirs - others:
        mine, other = (getattr(each, name) for each in (SyncConsumer, Consumer))
        if inspect.isfunction(other):
            mine, other = inspect.signature(mine), inspect.signature(other)
            assert mine.parameters == other.parameters, name


def test_what_the_cluster_and_the_consumer_know(fake: FakeCluster) -> None:
    fill(fake, 2)
    with consuming(fake) as consumer:
        assert consumer.is_running
        assert consumer.wait_assigned() == {WHERE}
        assert consumer.wait_position(WHERE) == 0
        assert consumer.healthy(), str(consumer.healthy())
        records = consumer.getmany(timeout_ms=10_000)
        assert [record.value for record in records[WHERE]] == [b"0", b"1"]
        last = consumer.last_fetch(WHERE)
        assert last is not None
        assert last.high_watermark == 2
        assert set(consumer.list_topics()) == {"t"}
        assert [view.partition for view in consumer.partitions_for("t")] == [0]
        found = consumer.offsets_for_times({WHERE: 1001})[WHERE]
        assert found is not None
        assert found.offset == 1
        consumer.pause(WHERE)
        assert consumer.paused == {WHERE}
        consumer.unsubscribe()
        assert not consumer.assignment
        assert "neither topics" in str(consumer.healthy())
    assert not consumer.is_running
    assert str(consumer.healthy()) == "the consumer is closed"
    assert str(SyncConsumer(fake.bootstrap).healthy()) == "the consumer is not started"


def test_in_a_thread_with_an_event_loop_no_call_waits(fake: FakeCluster) -> None:
    with consuming(fake) as consumer:

        async def main() -> None:
            consumer.poll(0)

        with pytest.raises(ConsumerStateError, match="runs an event loop"):
            asyncio.run(main())


def test_errors_of_the_start_are_raised_by_it(fake: FakeCluster) -> None:
    nobody = SyncConsumer("127.0.0.1:1", group_id="g", topics=["t"], max_block_ms=100)
    with pytest.raises(BootstrapError):
        nobody.start()
    nobody.stop()


def test_a_dropped_consumer_warns_and_leaves_its_group(fake: FakeCluster) -> None:
    consumer = SyncConsumer(fake.bootstrap, dialer=fake, group_id="g", topics=["t"])
    consumer.start()
    consumer.poll(0.05)
    thread = consumer._thread
    assert thread is not None
    with pytest.warns(ResourceWarning, match="unclosed <SyncConsumer"):
        del consumer
    thread._thread.join(10)
    assert not thread._thread.is_alive()


SCRIPT = """
import os, sys
from kafkaclient import Consumer, SyncConsumer
from kafkaclient.testing import FakeCluster
fake = FakeCluster(1)
fake.create_topic("t", 1)
consumer = SyncConsumer(fake.bootstrap, dialer=fake, group_id="g", topics=["t"])
consumer.start()
consumer.poll(0.1)
child = os.fork()
if not child:
    try:
        consumer.poll(0)
    except Exception as error:
        print(error, flush=True)
    sys.exit(0)
os.waitpid(child, 0)
consumer.poll(0.1)
print("assigned", len(consumer.wait_assigned()))
"""


def test_a_fork_and_the_end_of_the_interpreter() -> None:
    forks = "ignore::DeprecationWarning"  # Python 3.12 warns of a fork beside threads
    command = [sys.executable, "-W", forks, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "parent process" in done.stdout
    assert "assigned 1" in done.stdout
