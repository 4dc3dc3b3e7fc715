"""The inputs of tasks, read from the fake cluster in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import AuthorizationError, UnreadableBatchError
from kafkaclient.reader import Reader
from kafkaclient.streams.runtime.inputs import Inputs, OffsetReset
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class World:
    """A topic with three partitions. Each value is the record's offset."""

    def __init__(self) -> None:
        self.fake = FakeCluster(brokers=2)
        self.fake.round_trip_s = 0.001
        self.fake.create_topic("t", 3, 2)
        self.inputs: Inputs
        self.seen: dict[TopicPartition, list[Any]] = {P0: [], P1: [], P2: []}

    def fill(self, partition: int, batches: int, size: int = 3) -> None:
        for _ in range(batches):
            builder = BatchBuilder(2**26)
            for n in range(size):
                offset = self.fake.end_offset("t", partition) + n
                builder.append(1000 + offset, b"k", b"%d" % offset, [("h", b"%d" % offset)])
            builder.seal()
            self.fake.append("t", partition, bytes(builder.buffer()))

    async def take(self, *wanted: TopicPartition, seconds: float = 1.0) -> None:
        """Take until nothing has come for some time."""
        while found := await self.inputs.take(wanted, seconds):
            for partition, rows in found.items():
                self.seen[partition] += rows

    def offsets(self, partition: TopicPartition) -> list[int]:
        return [row.offset for row in self.seen[partition]]


@asynccontextmanager
async def world(
    reset: str = "earliest", internal: Collection[str] = (), **options: Any
) -> AsyncIterator[World]:
    made = World()
    options = {"isolation_level": "read_committed", "fetch_max_wait_ms": 100, **options}
    async with Reader(made.fake.bootstrap, dialer=made.fake, rng=Random(1), **options) as reader:
        made.inputs = Inputs(reader, reset, asyncio.get_running_loop().time, internal)
        yield made


def story(
    reset: str = "earliest", **options: Any
) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """A test in virtual time."""

    def decorate(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def run() -> None:
            async def main() -> None:
                async with world(reset, **options) as made:
                    await test(made)

            run_virtual(main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def begin(world: World, partitions: Iterable[TopicPartition], offset: int = 0) -> None:
    for partition in partitions:
        world.inputs.add(partition, offset)


def restart(world: World, partition: TopicPartition, offset: int) -> None:
    """Read it for a task that was restarted."""
    world.inputs.remove(partition)
    world.inputs.add(partition, offset)


@story()
async def test_records_come_with_all_their_fields(world: World) -> None:
    world.fill(0, 1, 2)
    begin(world, [P0], 1)
    await world.take(P0)
    (record,) = world.seen[P0]
    assert record == ("t", 0, 1, 1001, 0, b"k", b"1", (("h", b"1"),))


@story()
async def test_only_wanted_partitions_are_fetched(world: World) -> None:
    for number in range(3):
        world.fill(number, 1)
    begin(world, [P0, P1, P2])
    await world.take(P1)
    assert [len(world.seen[p]) for p in (P0, P1, P2)] == [0, 3, 0]
    world.fill(1, 1)
    await world.take(P0)
    assert [len(world.seen[p]) for p in (P0, P1, P2)] == [3, 3, 0]


@story()
async def test_large_batches_are_given_in_portions_and_partitions_take_turns(
    world: World,
) -> None:
    for number in range(3):
        world.fill(number, 1, 2_500)
    begin(world, [P0, P1, P2])
    sizes = []
    while found := await world.inputs.take([P0, P1, P2], 1):
        sizes.append({p.partition: len(rows) for p, rows in found.items()})
        for partition, rows in found.items():
            world.seen[partition] += rows
    assert all(world.offsets(p) == list(range(2_500)) for p in (P0, P1, P2))
    assert max(max(each.values()) for each in sizes) == 1_000


@story()
async def test_the_records_of_a_removed_partition_are_dropped(world: World) -> None:
    """Also those of a response that is in flight, and those of which a part was taken."""
    world.fill(0, 1, 2_500)
    world.fill(1, 2)
    begin(world, [P0, P1])
    taking = asyncio.ensure_future(world.inputs.take([P0, P1], 1))
    await asyncio.sleep(0.0005)  # the request has left
    world.inputs.remove(P0)
    restart(world, P1, 4)
    await taking
    await world.take(P0, P1)
    assert [r.offset for r in taking.result().get(P1, [])] + world.offsets(P1) == [4, 5]
    assert world.seen[P0] == []
    begin(world, [P0], 7)
    assert len((await world.inputs.take([P0], 1))[P0]) == 1_000
    restart(world, P0, 2_498)
    await world.take(P0)
    assert world.offsets(P0) == [2_498, 2_499]


@story()
async def test_a_take_ends_when_other_partitions_may_be_wanted(world: World) -> None:
    loop = asyncio.get_running_loop()
    begin(world, [P0])
    loop.call_later(0.03, world.inputs.wake)
    assert await world.inputs.take([], 10) == {}
    assert loop.time() == pytest.approx(0.03, abs=0.02)
    assert await world.inputs.take([], 0.5) == {}
    assert loop.time() == pytest.approx(0.53, abs=0.05)


@story(fetch_max_bytes=4_000, max_partition_fetch_bytes=2_000)
async def test_partitions_that_nobody_takes_do_not_starve_the_others(world: World) -> None:
    """Their fetched bytes would fill the whole of fetch.max.bytes."""
    for number in range(3):
        world.fill(number, 300, 20)
    begin(world, [P0, P1, P2])
    for wanted in ([P0, P1], [P2], [P0], [P1, P2], [P0, P2]):
        for _ in range(3):
            for partition, rows in (await world.inputs.take(wanted, 1)).items():
                world.seen[partition] += rows
    for wanted in ([P0], [P1], [P2]):
        await world.take(*wanted)
    assert all(world.offsets(p) == list(range(6_000)) for p in (P0, P1, P2))


@pytest.mark.parametrize(
    ("reset", "internal", "first"),
    [("earliest", (), 12), ("latest", (), 18), ("latest", ("t",), 12), ("latest", ("u",), 18)],
)
def test_an_offset_that_is_gone_is_reset(
    reset: str, internal: tuple[str, ...], first: int, caplog: pytest.LogCaptureFixture
) -> None:
    @story(reset, internal=internal)
    async def gone(world: World) -> None:
        world.fill(0, 6)
        world.fill(1, 1)
        world.fake.delete_records("t", 0, 12)
        assert world.inputs.begins_at_end(P0) is (first == 18)
        begin(world, [P0, P1])
        await world.take(P0, P1)
        world.fill(0, 1)
        await world.take(P0, P1)
        assert world.seen[P0][0] == OffsetReset("t", first)
        assert world.offsets(P0) == [first, *range(first, 21)]
        assert world.offsets(P1) == [0, 1, 2]

    gone()
    (warning,) = caplog.messages
    assert "t-0: offset 0 is not in the log, which has the offsets from 12 to 17" in warning
    assert f"continues at offset {first}" in warning


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("batches", [0, 1, 5])
def test_a_topic_that_was_created_again_is_read_from_its_beginning(
    reset: str, batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the new one has less records than were read, or more."""

    @story(reset)
    async def again(world: World) -> None:
        world.fill(0, 2)
        begin(world, [P0, P1])
        await world.take(P0, P1)
        world.fake.delete_topic("t")
        await world.take(P0, P1)
        world.fake.create_topic("t", 3, 2)
        world.fill(0, batches)
        await world.take(P0, P1, seconds=20)
        world.fill(0, 1)
        world.fill(1, 1)
        await world.take(P0, P1, seconds=20)
        end = 3 * batches + 3
        assert world.offsets(P0) == [*range(6), 0, *range(end)]
        assert world.seen[P0][6] == OffsetReset("t", 0, world.fake.topic_id("t"))
        assert world.offsets(P1)[-3:] == [0, 1, 2]

    again()
    assert "t-0: the topic was deleted and created again while it was read" in caplog.text


@story()
async def test_a_broker_that_dies_costs_no_record(world: World) -> None:
    for number in range(3):
        world.fill(number, 3)
    begin(world, [P0, P1, P2])
    await world.inputs.take([P0, P1, P2], 1)
    for partition, rows in (await world.inputs.take([P0, P1, P2], 0)).items():
        world.seen[partition] += rows
    for partition in (P0, P1, P2):
        restart(world, partition, 0)
        world.seen[partition] = []
    world.fake.stop_broker(0)
    for number in range(3):
        world.fill(number, 3)
    await world.take(P0, P1, P2, seconds=5)
    assert all(world.offsets(p) == list(range(18)) for p in (P0, P1, P2))


def test_a_partition_without_leader_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    @story()
    async def without_leader(world: World) -> None:
        world.fill(0, 1)
        begin(world, [P0])
        await world.take(P0)
        world.fake.stop_broker(0)
        world.fake.stop_broker(1)
        await world.take(P0, seconds=150)
        world.fake.start_broker(0)
        world.fake.start_broker(1)
        world.fill(0, 1)
        await world.take(P0, seconds=10)
        assert world.offsets(P0) == list(range(6))

    without_leader()
    assert "It is tried again" in caplog.text


@story()
async def test_a_topic_that_must_not_be_read_is_an_error(world: World) -> None:
    world.fake.control(ApiKey.FETCH, 29)
    begin(world, [P0])
    with pytest.raises(AuthorizationError, match="Read"):
        await world.take(P0)


@story()
async def test_a_damaged_batch_is_an_error_after_the_records_before_it(world: World) -> None:
    world.fill(0, 2)
    _, (_, good) = inspect(world.fake).partition("t", 0).log.batches
    world.fake.damage("t", 0, 1, bytes(good[:-1]) + b"?")
    begin(world, [P0])
    with pytest.raises(UnreadableBatchError, match="offset 3"):
        await world.take(P0)
    assert world.offsets(P0) == [0, 1, 2]


@story()
async def test_large_records_are_taken_in_smaller_numbers(world: World) -> None:
    """A task holds about as many bytes of large records as of small ones."""
    builder = BatchBuilder(2**26)
    for _ in range(16):
        builder.append(1000, b"k", bytes(256 * 1024), [])
    builder.seal()
    world.fake.configure_topic("t", max_message_bytes=2**26)
    world.fake.append("t", 0, bytes(builder.buffer()))
    begin(world, [P0])
    assert world.inputs.most_rows(P0) == 1_000
    found = await world.inputs.take([P0], 1.0)
    assert len(found[P0]) == world.inputs.most_rows(P0) == 3
    await world.take(P0)
    assert len(world.seen[P0]) == 13
