"""Order is the order of calls: across tasks, across the ways of sending, whatever is waited for.

Records with the same key, or the same explicit partition, stand in the log in the order in which
``send``, ``send_nowait``, ``send_many`` or ``send_arrow`` was called, also when the first ones wait
for metadata, for buffer space, or for a partition that the topic has just got.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import (
    BufferFullError,
    KafkaError,
    PartitionOutOfRangeError,
    ProducerClosedError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual, virtual_time
from kafkaclient.testing.inspect import inspect
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake import FakeCluster
    from tests.producer.support import StartProducer


PARTITIONS = 2
WAYS = ["send", "send_nowait", "send_many", "send_arrow"]


class Call(NamedTuple):
    """One call in a task of its own, ``pause`` turns of the event loop (or milliseconds, if it is
    more than 3) after the one before it. ``where``: a key, or the number of a partition."""

    way: str
    where: bytes | int
    records: int
    size: int
    pause: int
    cancel: bool = False


class Caller:
    """Makes calls, and numbers their records as they are called."""

    def __init__(self, producer: Producer) -> None:
        self.next = 0
        self.refused: list[Exception] = []
        self._producer = producer

    async def make(self, call: Call) -> None:
        numbers = range(self.next, self.next + call.records)
        self.next = numbers.stop
        values = [b"%06d" % n + bytes(call.size) for n in numbers]
        try:
            await getattr(self, call.way)(call.where, values)
        except KafkaError as error:
            self.refused.append(error)

    async def send(self, where: bytes | int, values: list[bytes]) -> None:
        await self._producer.send("t", values[0], **_place(where))

    async def send_nowait(self, where: bytes | int, values: list[bytes]) -> None:
        for value in values:
            self._producer.send_nowait("t", value, **_place(where))

    async def send_many(self, where: bytes | int, values: list[bytes]) -> None:
        if isinstance(where, int):
            await self._producer.send_many("t", values, partition=where)
        else:
            await self._producer.send_many("t", values, keys=[where] * len(values))

    async def send_arrow(self, where: bytes | int, values: list[bytes]) -> None:
        column = "partition" if isinstance(where, int) else "key"
        table = pa.table({column: [where] * len(values), "value": values})
        await self._producer.send_arrow("t", table)


def _place(where: bytes | int) -> dict[str, Any]:
    return {"partition": where} if isinstance(where, int) else {"key": where}


async def make_calls(caller: Caller, calls: list[Call]) -> None:
    tasks = []
    for call in calls:
        for _ in range(call.pause if call.pause <= 3 else 0):
            await asyncio.sleep(0)
        if call.pause > 3:
            await asyncio.sleep(call.pause / 1000)
        tasks.append(asyncio.create_task(caller.make(call)))
        if call.cancel:
            tasks[len(tasks) // 2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def assert_in_order(fake: FakeCluster) -> int:
    """Each partition's records by key and without, in the order of their numbers; how many."""
    records = 0
    for partition in range(len(inspect(fake).topics["t"].partitions)):
        told = defaultdict[bytes | None, list[int]](list)
        for record in fake.log("t", partition):
            if record.value != b"warm":
                told[record.key].append(int(record.value[:6]))
        for numbers in told.values():
            assert numbers == sorted(numbers)
            assert len(set(numbers)) == len(numbers)
            records += len(numbers)
    return records


def _tamed(call: Call) -> Call:
    """Records of ``send_nowait`` are small, so that a call that waits before them finds its room
    in any case; else they go first."""
    if call.way == "send_nowait":
        return call._replace(size=min(call.size, 100))
    return call._replace(records=1) if call.way == "send" else call


def calls(*, beyond: bool = False) -> st.SearchStrategy[list[Call]]:
    numbers = st.integers(0, PARTITIONS if beyond else PARTITIONS - 1)
    call = st.builds(
        Call,
        st.sampled_from(WAYS),
        st.sampled_from([b"a", b"b"]) | numbers,
        st.integers(1, 4),
        st.sampled_from([0, 100, 3000, 12_000]),
        st.integers(0, 8),
        st.sampled_from([False] * 5 + [True]),
    )
    one = call.map(_tamed)
    return st.lists(one, min_size=2, max_size=30)


def refusals(
    made: list[Call],
    *,
    brokers: int = 2,
    latency: float = 0.0,
    prepare: Callable[[FakeCluster], object] | None = None,
    **options: int,
) -> list[Exception]:
    """Make the calls, and check the order in the log; returns the errors of refused records.
    ``prepare(fake)`` is called once the producer knows the topic; without it the first calls wait
    for the topic's metadata."""

    async def run() -> list[Exception]:
        fake = one_topic(PARTITIONS, brokers, round_trip_s=latency)
        async with Producer(fake.bootstrap, dialer=fake, rng=Random(1), **options) as producer:
            if prepare is not None:
                await producer.send_and_wait("t", b"warm", partition=0)
                prepare(fake)
            caller = Caller(producer)
            await make_calls(caller, made)
        assert_in_order(fake)
        return caller.refused

    return run_virtual(run())


@settings(deadline=None)
@given(made=calls(), latency=st.sampled_from([0.0, 0.003, 0.02]), memory=st.integers(45, 90))
def test_before_the_metadata_and_with_little_memory(
    made: list[Call], latency: float, memory: int
) -> None:
    options = {"buffer_memory": memory * 1000, "max_request_size": 28_000}
    refused = refusals(made, latency=latency, **options)
    assert all(isinstance(error, BufferFullError) for error in refused)


@settings(deadline=None)
@given(made=calls(), stalled=st.sampled_from([0.0, 0.05, 2.0]))
def test_while_a_broker_stands_still_and_memory_runs_out(made: list[Call], stalled: float) -> None:
    def stall(fake: FakeCluster) -> None:
        fake.stall_broker(0)
        asyncio.get_running_loop().call_later(stalled, fake.resume_broker, 0)

    options = {"buffer_memory": 45_000, "max_request_size": 28_000}
    refused = refusals(made, brokers=1, prepare=stall, **options)
    assert all(isinstance(error, BufferFullError) for error in refused)


@settings(deadline=None)
@given(made=calls(beyond=True), latency=st.sampled_from([0.0, 0.003]))
def test_while_the_topic_grows(made: list[Call], latency: float) -> None:
    made = [call._replace(where=call.where if isinstance(call.where, int) else 1) for call in made]
    refusals(made, latency=latency, prepare=lambda fake: fake.add_partitions("t", PARTITIONS + 1))


# --- one by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [1, 2, 3])
def test_a_later_call_passes_no_row_behind_one_that_is_set_aside(sends: int) -> None:
    """The second call waits for all partitions when a row of the first one is set aside. The next
    row of the first call is for the same partition, and joins that one."""
    small = [Call("send", b"a", 1, 0, 0)] * sends
    large = Call("send_many", b"a", 3, 12_000, 0)
    made = [large, *small, Call("send_many", 1, 3, 3000, 0), Call("send_many", 1, 1, 0, 0)]
    assert not refusals(made, buffer_memory=45_000, max_request_size=28_000)


@pytest.mark.parametrize("later", WAYS)
@pytest.mark.parametrize("earlier", WAYS)
@virtual_time
async def test_who_waits_for_metadata_goes_first(
    producing: Callable[..., Any], earlier: str, later: str
) -> None:
    fake = one_topic(1, brokers=1, round_trip_s=0.01)
    async with producing(fake) as producer:
        caller = Caller(producer)
        await make_calls(caller, [Call(earlier, b"k", 1, 0, 0), Call(later, b"k", 1, 0, 1)])
    assert not caller.refused
    assert assert_in_order(fake) == 2


@pytest.mark.parametrize("later", [way for way in WAYS if way != "send_nowait"])
@pytest.mark.parametrize("earlier", [way for way in WAYS if way != "send_nowait"])
@virtual_time
async def test_who_waits_for_memory_goes_first(
    producing: Callable[..., Any], earlier: str, later: str
) -> None:
    """Although the later record would fit into a batch that is open."""
    fake = one_topic(1, brokers=1)
    options = {"buffer_memory": 30_000, "max_request_size": 28_000, "linger_ms": 1000}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"warm")
        fake.stall_broker(0)
        await producer.send("t", b"000000" + bytes(12_000), key=b"k")
        await asyncio.sleep(2)
        await producer.send("t", b"000001" + bytes(1000), key=b"k")  # a batch with room
        caller = Caller(producer)
        caller.next = 2
        made = [Call(earlier, b"k", 1, 25_000, 0), Call(later, b"k", 1, 0, 1)]
        calling = asyncio.create_task(make_calls(caller, made))
        await asyncio.sleep(0.1)
        with pytest.raises(BufferFullError, match="callers waiting"):
            producer.send_nowait("t", b"000009", key=b"k")
        fake.resume_broker(0)
        await calling
    assert not caller.refused
    assert assert_in_order(fake) == 4


@virtual_time
async def test_who_waits_to_hear_of_a_new_partition_goes_first(producing: StartProducer) -> None:
    """The answer to an older request tells of the partition before the caller's own request is
    answered."""
    fake = one_topic(2, brokers=1, round_trip_s=0.01)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"warm", partition=0)
        await asyncio.sleep(5)
        fake.add_partitions("t", 3)
        refreshing = asyncio.create_task(producer.refresh_metadata())
        await asyncio.sleep(0.002)
        earlier = asyncio.create_task(producer.send("t", b"000000", partition=2))
        await asyncio.sleep(0)
        refused = 0
        while not earlier.done():
            try:
                producer.send_nowait("t", b"%06d" % (refused + 1), partition=2)
            except PartitionOutOfRangeError:
                refused += 1
            await asyncio.sleep(0.001)
        producer.send_nowait("t", b"999999", partition=2)
        await refreshing
    assert refused
    assert assert_in_order(fake) >= 2


@virtual_time
async def test_a_cancelled_waiter_lets_the_others_go_on(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1, round_trip_s=0.01)
    async with producing(fake) as producer:
        tasks = [asyncio.create_task(producer.send("t", b"%06d" % n)) for n in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [record.value for record in fake.log("t", 0)] == [b"000001", b"000002", b"000004"]


@virtual_time
async def test_a_bulk_call_that_waits_keeps_its_place_for_a_whole_slice(
    producing: StartProducer,
) -> None:
    fake = one_topic(1, brokers=1, round_trip_s=0.01)
    async with producing(fake) as producer:
        caller = Caller(producer)
        made = [Call("send_many", b"k", 300, 0, 0), Call("send", b"k", 1, 0, 1)]
        await make_calls(caller, [*made, Call("send_arrow", b"k", 300, 0, 0)])
    assert assert_in_order(fake) == 601


@virtual_time
async def test_stop_ends_a_bulk_call_that_waits_for_more_room_and_those_behind(
    producing: StartProducer,
) -> None:
    fake = one_topic(1, brokers=1)
    loop = asyncio.get_running_loop()
    async with producing(fake, buffer_memory=30_000, max_request_size=28_000) as producer:
        await producer.send_and_wait("t", b"warm")
        fake.stall_broker(0)
        bulk = asyncio.create_task(producer.send_many("t", [bytes(9000)] * 9))
        await asyncio.sleep(0.1)
        behind = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(0.1)
        stopped_at = loop.time()
        await producer.stop(timeout=1)
        refused = await asyncio.gather(bulk, behind, return_exceptions=True)
        assert loop.time() - stopped_at < 3
        assert all(isinstance(error, ProducerClosedError) for error in refused), refused


@virtual_time
async def test_kept_records_do_not_hold_the_room_that_an_earlier_send_waits_for(
    producing: StartProducer,
) -> None:
    fake = one_topic(1, brokers=1, round_trip_s=0.01)
    options = {"buffer_memory": 100_000, "max_request_size": 28_000, "max_block_ms": 20_000}
    async with producing(fake, **options) as producer:
        loop = asyncio.get_running_loop()
        caller = Caller(producer)
        first = asyncio.create_task(caller.make(Call("send", 0, 1, 20_000, 0)))
        await asyncio.sleep(0)
        kept = 0
        with contextlib.suppress(BufferFullError):
            while True:
                producer.send_nowait("t", b"%06d" % (kept + 1) + bytes(10_000), partition=0)
                kept += 1
        await first
        assert not caller.refused
        assert loop.time() < 1
    assert kept == 7
    assert assert_in_order(fake) == 8


@virtual_time
async def test_kept_records_do_not_hold_the_room_that_a_bulk_call_needs_more_of(
    producing: StartProducer,
) -> None:
    fake = one_topic(1, brokers=1)
    options = {"buffer_memory": 40_000, "max_request_size": 28_000, "max_block_ms": 20_000}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"warm")
        fake.round_trip_s = 0.01
        loop = asyncio.get_running_loop()
        began = loop.time()
        fake.stall_broker(0)
        bulk = asyncio.create_task(producer.send_many("t", [bytes(12_000)] * 12))
        for _ in range(20):
            await asyncio.sleep(0)
            with contextlib.suppress(BufferFullError):
                producer.send_nowait("t", bytes(3000))
        fake.resume_broker(0)
        assert (await (await bulk)).records == 12
        assert loop.time() < began + 5


@virtual_time
async def test_send_nowait_is_refused_behind_those_who_wait_for_room(
    producing: StartProducer,
) -> None:
    fake = one_topic(1, brokers=1, round_trip_s=0.01)
    async with producing(fake, buffer_memory=30_000, max_request_size=28_000) as producer:
        waiting = [asyncio.create_task(producer.send("t", bytes(20_000))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", b"small")
        await asyncio.gather(*waiting)
