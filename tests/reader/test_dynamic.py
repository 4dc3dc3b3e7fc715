"""A read whose partitions are added, removed, sought, paused and resumed meanwhile."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import (
    AuthorizationError,
    FetchTimeoutError,
    OffsetOutOfRangeError,
    ReaderStateError,
    UnknownTopicError,
)
from kafkaclient.reader import Reader
from kafkaclient.testing.clock import run_virtual, virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


async def taken(reading, seconds=1.0):
    """What comes until nothing has come for some time."""
    rows = []
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        await reading.wait(until - loop.time())
        while (batch := reading.take()) is not None:
            rows += batch
            until = loop.time() + seconds
    return rows


def offsets(rows, partition=P0):
    return [row.offset for row in rows if row[:2] == partition]


@virtual_time
async def test_another_event_loop_can_neither_use_nor_close_a_reader(fake, tools):
    tools.fill(fake, 0, 2)
    async with tools.reader(fake) as reader:
        for call in (reader.list_topics, reader.close):
            with pytest.raises(ReaderStateError, match="the reader belongs to the event loop"):
                await asyncio.to_thread(asyncio.run, call())
        assert (await reader.offsets([P0], at="latest"))[P0] == fake.end_offset("t", 0)
        with pytest.raises(TypeError, match="a partition is a pair of topic and number"):
            reader.read({"t": (0, 1)})


@virtual_time
async def test_partitions_come_and_go(fake, tools):
    for number in range(3):
        tools.fill(fake, number, 2)
    async with tools.reader(fake) as reader:
        reading = reader.read({})
        assert reading.take() is None
        reading.add(P0, 2)
        reading.add(P1, 0, 4)
        assert reading.ends == {P0: None, P1: None}
        rows = await taken(reading)
        assert (offsets(rows), offsets(rows, P1)) == ([2, 3, 4, 5], [0, 1, 2, 3])
        assert reading.positions == {P0: 6, P1: 4}
        assert reading.ends == {P0: 6, P1: 6}
        reading.remove(P0)
        reading.seek(P1, 3)
        reading.add(P2, 5)
        tools.fill(fake, 0, 1)
        rows = await taken(reading)
        assert [row[1:3] for row in rows] in ([(1, 3), (2, 5)], [(2, 5), (1, 3)])
        assert reading.positions == {P1: 4, P2: 6}
        reading.add(P0, 6)
        assert offsets(await taken(reading)) == [6, 7, 8]


@virtual_time
async def test_an_iteration_goes_on_with_what_was_added(fake, tools):
    tools.fill(fake, 0, 2)
    tools.fill(fake, 1, 1)
    async with tools.reader(fake) as reader:
        reading = reader.read({P0: (0, 6)})
        rows = list(await anext(reading))
        reading.add(P1, 0, 3)
        reading.seek(P0, 4)
        rows += await tools.records(reading)
        assert (offsets(rows), offsets(rows, P1)) == ([0, 1, 2, 3, 4, 5, 4, 5], [0, 1, 2])


@virtual_time
async def test_a_paused_partition_is_not_fetched(fake, tools):
    tools.fill(fake, 0, 2)
    async with tools.reader(fake, fetch_max_wait_ms=100) as reader:
        reading = reader.read({})
        reading.add(P0, 0, paused=True)
        assert await taken(reading) == []
        assert fake.requests_of(ApiKey.FETCH) == []
        reading.resume(P0)
        assert len(await taken(reading)) == 6
        reading.pause(P0)
        await asyncio.sleep(1)  # the request in flight
        tools.fill(fake, 0, 1)
        sent = len(fake.requests_of(ApiKey.FETCH))
        assert await taken(reading) == []
        assert len(fake.requests_of(ApiKey.FETCH)) == sent
        reading.resume(P0)
        assert offsets(await taken(reading)) == [6, 7, 8]


@virtual_time
async def test_what_is_fetched_of_a_paused_partition_starves_no_other(fake, tools):
    """It would fill the whole of fetch.max.bytes. It is fetched again."""
    other = TopicPartition("t", 3)
    async with tools.reader(fake, fetch_max_bytes=600, max_partition_fetch_bytes=600) as reader:
        tools.fill(fake, 0, 10)
        reading = reader.read({P0: 0, other: 0})
        rows = []
        while not rows:  # a part of what was fetched
            await reading.wait()
            rows += reading.take() or ()
        await asyncio.sleep(1)
        await reading.wait()
        reading.pause(P0)
        tools.fill(fake, 3, 10)
        assert offsets(await taken(reading), other) == list(range(30))
        assert reading.positions[P0] == len(rows) < 30
        reading.resume(P0)
        assert offsets(rows + await taken(reading)) == list(range(30))


@virtual_time
async def test_a_partition_that_is_resumed_or_added_ends_the_wait(fake, tools):
    tools.fill(fake, 0, 1)
    async with tools.reader(fake) as reader:
        reading = reader.read({})
        for change in (
            lambda: reading.add(P0, 0, paused=True),
            lambda: reading.resume(P0),
            lambda: reading.seek(P0, 1),
            lambda: reading.remove(P0),
            reading.wake,
        ):
            waiting = asyncio.ensure_future(reading.wait())
            await asyncio.sleep(0.1)
            while (reading.take()) is not None:
                await asyncio.sleep(0)
            change()
            async with asyncio.timeout(0.01):
                await waiting
        waiting = asyncio.ensure_future(reading.wait())
        await asyncio.sleep(0)
        with pytest.raises(ReaderStateError, match="two tasks"):
            await reading.wait()
        reading.close()
        with pytest.raises(ReaderStateError, match="closed"):
            await waiting
        for call in (reading.take, lambda: reading.add(P0, 0)):
            with pytest.raises(ReaderStateError, match="closed"):
                call()


@virtual_time
async def test_wrong_changes_are_refused(fake, tools):
    async with tools.reader(fake) as reader:
        reading = reader.read({P0: 0})
        with pytest.raises(ValueError, match="t-0 is part of the read already"):
            reading.add(P0, 5)
        with pytest.raises(ValueError, match="no range of offsets from -1"):
            reading.seek(P0, -1)
        for call in (reading.remove, reading.pause, reading.resume, lambda p: reading.seek(p, 0)):
            with pytest.raises(KeyError):
                call(P1)
        assert reading.positions == {P0: 0}


@virtual_time
async def test_an_error_stops_its_partition_alone(fake, tools):
    """Until a seek."""
    for number in range(3):
        tools.fill(fake, number, 2)
    fake.delete_records("t", 0, 4)
    async with tools.reader(fake) as reader:
        reading = reader.read({P0: 0, P1: 0})
        assert len(await taken(reading)) == 6
        (error,) = reading.errors.values()
        assert isinstance(error, OffsetOutOfRangeError)
        assert (error.available, reading.positions[P0]) == ((4, 6), 0)
        reading.seek(P0, 4)
        assert reading.errors == {}
        assert offsets(await taken(reading)) == [4, 5]
        fake.delete_topic("t")
        fake.create_topic("t", 6, 3)
        tools.fill(fake, 0, 1)
        assert await taken(reading, 10) == []
        assert {type(each) for each in reading.errors.values()} == {UnknownTopicError}
        reading.seek(P0, 1)
        reading.remove(P1)
        assert offsets(await taken(reading)) == [1, 2]


@virtual_time
async def test_a_range_that_is_not_answered_delays_no_other_partition(fake, tools):
    """The available offsets are asked for after the other partitions have got their records."""
    tools.fill(fake, 0, 2)
    tools.fill(fake, 3, 2)  # the same leader
    fake.delete_records("t", 0, 4)
    async with tools.reader(fake, max_block_ms=20_000) as reader:
        reading = reader.read({P0: 0, ("t", 3): 0})
        fake.control(ApiKey.LIST_OFFSETS, 6, keep=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while reading.take() is None:
            await reading.wait()
        tools.fill(fake, 3, 1)
        while (batch := reading.take()) is None:
            await reading.wait()
        assert (batch.base_offset, loop.time() - began < 1) == (6, True)
        assert reading.errors == {}


@virtual_time
async def test_permission_and_absence_stop_their_partition_alone(fake, tools):
    tools.fill(fake, 0, 1)
    fake.create_topic("u", 1, 3)
    async with tools.reader(fake, max_block_ms=5_000) as reader:
        reading = reader.read({})
        reading.add(("gone", 0), 0)
        fake.control(ApiKey.FETCH, 29)
        reading.add(("u", 0), 0)
        await taken(reading, 1)
        reading.add(P0, 0)
        assert offsets(await taken(reading, 10)) == [0, 1, 2]
        found = {tp.topic: type(error) for tp, error in reading.errors.items()}
        assert found == {"u": AuthorizationError, "gone": FetchTimeoutError}


@virtual_time
async def test_the_end_of_a_committed_read_is_the_last_stable_offset(fake, tools):
    tools.fill(fake, 0, 1)
    fake.append("t", 0, tools.sealed([b"open"], producer=(7, 0), transactional=True))
    async with tools.reader(fake, isolation_level="read_committed") as reader:
        reading = reader.read({P0: 0})
        assert len(await taken(reading)) == 3
        assert (reading.ends[P0], reading.positions[P0]) == (3, 3)
        inspect(fake).partition("t", 0).log.end_transaction(7, 0, commit=False)
        assert await taken(reading) == []
        assert (reading.ends[P0], reading.positions[P0]) == (5, 5)


# --- against a model ------------------------------------------------------------------------------

partitions = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("write"), partitions, st.integers(1, 40)),
    st.tuples(st.sampled_from(["add", "seek"]), partitions, st.floats(0, 1)),
    st.tuples(st.sampled_from(["remove", "pause", "resume"]), partitions, st.none()),
    st.tuples(st.just("take"), st.none(), st.integers(1, 5)),
    st.tuples(st.just("sleep"), st.none(), st.sampled_from([0.0, 0.0004, 0.0011, 0.05, 1.0])),
    st.tuples(st.just("stop broker"), st.integers(0, 1), st.none()),
    st.tuples(st.just("move"), partitions, st.integers(0, 1)),
)


class Model:
    """A reading, and what may come next of each partition: every offset, in order."""

    def __init__(self, fake, reading):
        self.fake = fake
        self.reading = reading
        self.next: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    async def wait(self):
        while True:
            await self.reading.wait(0.05)
            await asyncio.sleep(0.0003)

    async def run(self, what, number, value):
        if what == "sleep":
            await asyncio.sleep(value)
        elif what == "take":
            for _ in range(value):
                self.take()
        elif what == "stop broker":
            self.fake.stop_broker(number)
            await asyncio.sleep(0.01)
            self.fake.start_broker(number)
        elif what == "move":
            self.fake.move_leader("t", number, value)
        elif what == "write":
            self.write(number, value)
        else:
            self.change(what, number, value)

    async def finish(self):
        """Take all that is still to come, and then nothing comes."""
        for tp in list(self.paused):
            self.change("resume", tp.partition, None)
        ends = {tp: self.fake.end_offset("t", tp.partition) for tp in self.next}
        async with asyncio.timeout(60):
            while self.next != ends:
                if not self.take():
                    await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert not self.take()
        assert self.reading.errors == {}

    def change(self, what, number, value):
        tp = TopicPartition("t", number)
        if what == "add" and tp not in self.next:
            self.next[tp] = round(value * self.fake.end_offset("t", number))
            self.reading.add(tp, self.next[tp])
        elif tp not in self.next:
            return
        elif what == "seek":
            self.next[tp] = round(value * self.fake.end_offset("t", number))
            self.reading.seek(tp, self.next[tp])
        elif what == "remove":
            self.reading.remove(tp)
            del self.next[tp]
            self.paused.discard(tp)
        elif what == "pause":
            self.reading.pause(tp)
            self.paused.add(tp)
        elif what == "resume":
            self.reading.resume(tp)
            self.paused.discard(tp)

    def write(self, number, count):
        builder = BatchBuilder(2**20)
        for offset in range(count):
            builder.append(1000, None, b"%d" % (self.fake.end_offset("t", number) + offset), [])
        builder.seal()
        self.fake.append("t", number, bytes(builder.buffer()))

    def take(self):
        batch = self.reading.take()
        if batch is None:
            return False
        tp = batch.topic_partition
        assert tp in self.next, "it was removed"
        assert tp not in self.paused
        for row in batch:
            assert (row.offset, row.value) == (self.next[tp], b"%d" % self.next[tp])
            self.next[tp] += 1
        assert self.reading.positions[tp] == batch.next_offset == self.next[tp]
        return True


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(steps, max_size=40),
    fetch=st.sampled_from([150, 1_000, 1_048_576]),
    whole=st.sampled_from([300, 2_000, 52_428_800]),
)
def test_nothing_is_lost_or_given_twice_whatever_changes(script, fetch, whole):
    async def main():
        fake = FakeCluster(brokers=2)
        fake.round_trip_s = 0.001
        fake.create_topic("t", 3, 2)
        for number in range(3):
            fake.move_leader("t", number, 0)  # most competition for fetch.max.bytes
        options = {
            "max_partition_fetch_bytes": fetch,
            "fetch_max_bytes": whole,
            "fetch_max_wait_ms": 100,
        }
        async with Reader(fake.bootstrap, dialer=fake, rng=Random(1), **options) as reader:
            model = Model(fake, reader.read({}))
            for number in range(3):
                for count in (5, 1, 20, 5):
                    model.write(number, count)
                model.change("add", number, 0)
            waiting = asyncio.create_task(model.wait())
            for step in script:
                await model.run(*step)
            await model.finish()
            waiting.cancel()
            await asyncio.wait({waiting})

    run_virtual(main())
