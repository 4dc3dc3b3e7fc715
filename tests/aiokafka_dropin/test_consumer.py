"""``AIOKafkaConsumer``: aiokafka's semantics on the fake cluster."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
from aiokafka import errors as theirs
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp

from kafkaclient import errors as ours
from kafkaclient.aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    TopicPartition,
    install,
    uninstall,
)
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def fake() -> FakeCluster:
    """Five records in each of two partitions."""
    made = FakeCluster()
    made.round_trip_s = 0.001
    made.create_topic("t", 2)
    for partition in (0, 1):
        fill(made, partition, 5)
    return made


def fill(fake: FakeCluster, partition: int, records: int) -> None:
    builder = BatchBuilder(2**20)
    for number in range(records):
        builder.append(1000 + number, b"k", b'"%d-%d"' % (partition, number), [("h", b"x")])
    builder.seal(0)
    fake.append("t", partition, bytes(builder.buffer()))


def new(fake: FakeCluster, *topics: str, **given: Any) -> AIOKafkaConsumer:
    given = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 300, **given}
    return AIOKafkaConsumer(
        *topics, bootstrap_servers=fake.bootstrap, dialer=fake, rng=Random(7), **given
    )


@asynccontextmanager
async def started(fake: FakeCluster, *topics: str, **given: Any) -> AsyncIterator[AIOKafkaConsumer]:
    async with new(fake, *topics, **given) as consumer:
        yield consumer


@virtual_time
async def test_a_group_consumes_a_topic(fake: FakeCluster) -> None:
    async with started(fake, "t", group_id="g") as consumer:
        assert consumer.assignment() == {P0, P1}
        assert consumer.subscription() == {"t"}
        assert consumer.partitions_for_topic("t") == {0, 1}
        assert await consumer.topics() == {"t"}
        first = await consumer.getone(P0)
        key, value = b"k", b'"0-0"'
        assert first == ConsumerRecord("t", 0, 0, 1000, 0, key, value, None, 1, 5, (("h", b"x"),))
        found = await consumer.getmany(P0, timeout_ms=1000, max_records=2)
        assert {where: [each.offset for each in some] for where, some in found.items()} == {
            P0: [1, 2]
        }
        assert all(isinstance(where, TopicPartition) for where in found)
        assert (consumer.highwater(P0), consumer.last_stable_offset(P0)) == (5, 5)
        assert isinstance(consumer.last_poll_timestamp(P0), int)
    # What was handed out is committed, also the last record.
    assert [fake.committed_offset("g", *where) for where in (P0, P1)] == [3, 0]


@virtual_time
async def test_iteration_ends_with_the_consumer(fake: FakeCluster) -> None:
    consumer = new(fake, "t")
    await consumer.start()
    seen: list[Any] = []

    async def loop() -> None:
        seen.extend([record.value async for record in consumer])

    task = asyncio.create_task(loop())
    one = asyncio.create_task(consumer.getone(P0))
    many = asyncio.create_task(consumer.getmany(timeout_ms=600_000))
    await asyncio.sleep(1)
    await consumer.stop()
    await consumer.stop()
    await task
    assert isinstance(await many, dict)
    await asyncio.gather(one, return_exceptions=True)
    for call in (consumer.getone(), consumer.getmany(), loop()):
        with pytest.raises(theirs.ConsumerStoppedError):
            await call


@virtual_time
async def test_what_is_known_after_the_end(fake: FakeCluster) -> None:
    """As in aiokafka, whose programs look after their consumers are stopped."""
    async with started(fake, "t", group_id="g") as consumer:
        await consumer.getone(P0)
        consumer.pause(P1)
        at = consumer.last_poll_timestamp(P0)
    assert (consumer.assignment(), consumer.paused()) == ({P0, P1}, {P1})
    assert all(isinstance(each, TopicPartition) for each in consumer.assignment())
    assert await consumer.position(P0) == 1
    assert (consumer.highwater(P0), consumer.last_stable_offset(P0)) == (5, 5)
    after = consumer.last_poll_timestamp(P0)  # a fetch can be answered while the consumer stops
    assert at is not None
    assert after is not None
    assert after >= at
    assert (consumer.subscription(), consumer.partitions_for_topic("t")) == ({"t"}, {0, 1})
    consumer.resume(P1)
    consumer.seek(P0, 3)
    other = TopicPartition("t", 7)
    for call in (consumer.pause, consumer.resume, lambda each: consumer.seek(each, 1)):
        with pytest.raises(theirs.IllegalStateError):
            call(other)
    with pytest.raises(theirs.IllegalStateError):
        await consumer.position(other)
    with pytest.raises(AssertionError):
        consumer.highwater(other)
    for request in (consumer.commit(), consumer.committed(P0), consumer.end_offsets([P0])):
        with pytest.raises(theirs.IllegalStateError):
            await request
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (set(), set())
    assert consumer.paused() == set()


@virtual_time
async def test_a_consumer_that_is_stopped_without_partitions(fake: FakeCluster) -> None:
    async with started(fake) as consumer:
        pass
    assert (consumer.assignment(), consumer.paused()) == (set(), set())


@virtual_time
async def test_a_pending_getone_is_stopped(fake: FakeCluster) -> None:
    consumer = new(fake)
    consumer.assign([P0])
    assert consumer.assignment() == {P0}
    await consumer.start()
    await consumer.seek_to_end()
    task = asyncio.create_task(consumer.getone())
    await asyncio.sleep(1)
    assert not task.done()
    await consumer.stop()
    with pytest.raises(theirs.ConsumerStoppedError):
        await task


@virtual_time
async def test_without_a_group_all_partitions_are_read_also_new_ones(fake: FakeCluster) -> None:
    async with started(fake, "t", auto_offset_reset="latest", metadata_max_age_ms=1000) as consumer:
        for where in (P0, P1):
            assert await consumer.position(where) == 5
        with pytest.raises(theirs.IllegalOperation):
            await consumer.commit()
        with pytest.raises(theirs.IllegalOperation):
            await consumer.committed(P0)
    async with started(fake, metadata_max_age_ms=1000) as consumer:
        consumer.subscribe(pattern="lat")
        task = asyncio.create_task(consumer.getone())
        await asyncio.sleep(2)
        assert consumer.subscription() == set()
        fake.create_topic("later", 1)
        await asyncio.sleep(2)
        assert consumer.subscription() == {"later"}
        assert not task.done()
        task.cancel()


@virtual_time
async def test_a_pattern_matches_a_prefix(fake: FakeCluster) -> None:
    fake.create_topic("top", 1)
    fake.create_topic("other", 1)
    consumer = new(fake, group_id="g")
    consumer.subscribe(pattern="(?i)T")
    async with consumer:
        assert consumer.subscription() == {"t", "top"}
        assert len(consumer.assignment()) == 3


@virtual_time
async def test_commits(fake: FakeCluster) -> None:
    async with started(fake, "t", group_id="g", enable_auto_commit=False) as consumer:
        assert await consumer.committed(P0) is None
        await consumer.getone(P0)
        await consumer.commit()
        assert await consumer.committed(P0) == 1
        await consumer.commit({P0: 2})
        await consumer.commit({P1: (3, "why"), P0: OffsetAndMetadata(4, "")})
        assert await consumer.seek_to_committed() == {P0: 4, P1: 3}
        assert (await consumer.getone(P0)).offset == 4
        for wrong, kind in (
            ({}, ValueError),
            ("x", ValueError),
            ({P0: (1, 2)}, TypeError),
            ({"t": 1}, TypeError),
            ({TopicPartition("t", 9): 1}, theirs.IllegalStateError),
        ):
            with pytest.raises(kind):
                await consumer.commit(wrong)  # type: ignore[arg-type]
        consumer.unsubscribe()
        with pytest.raises(theirs.IllegalStateError, match="Not subscribed"):
            await consumer.commit({P0: 1})
        consumer.subscribe(["t"])
        with pytest.raises(theirs.IllegalStateError, match="No partitions"):
            await consumer.commit({P0: 1})


@virtual_time
async def test_unsubscribe_then_assign(fake: FakeCluster) -> None:
    async with started(fake, "t", group_id="g") as consumer:
        with pytest.raises(theirs.IllegalStateError):
            consumer.assign([P0])
        with pytest.raises(theirs.IllegalStateError):
            consumer.subscribe(pattern="t")
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.assign([P1])
        consumer.seek(P1, 3)
        assert (await consumer.getone()).offset == 3
        with pytest.raises(theirs.IllegalStateError):
            consumer.subscribe(["t"])
        await consumer.commit()
        assert await consumer.committed(P1) == 4


@virtual_time
async def test_positions_and_offsets(fake: FakeCluster) -> None:
    async with started(fake, "t") as consumer:
        assert await consumer.position(P0) == 0
        assert await consumer.seek_to_end(P0) is True
        assert await consumer.position(P0) == 5
        assert await consumer.seek_to_beginning() is True
        assert await consumer.position(P0) == 0
        with pytest.raises(ValueError, match="positive integer"):
            consumer.seek(P0, -1)
        with pytest.raises(TypeError):
            await consumer.seek_to_end(1)  # type: ignore[arg-type]
        unassigned = TopicPartition("t", 7)
        with pytest.raises(theirs.IllegalStateError):
            await consumer.position(unassigned)
        with pytest.raises(theirs.IllegalStateError):
            await consumer.seek_to_beginning(unassigned)
        assert await consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
        assert await consumer.end_offsets([P0]) == {P0: 5}
        found = await consumer.offsets_for_times({P0: 1003, P1: 9999})
        assert found == {P0: OffsetAndTimestamp(3, 1003), P1: None}
        with pytest.raises(ValueError, match="negative"):
            await consumer.offsets_for_times({P0: -1})
        with pytest.raises(theirs.KafkaTimeoutError) as raised:
            await consumer.offsets_for_times({unassigned: 0})
        assert isinstance(raised.value, ours.PartitionOutOfRangeError)
        consumer.pause(P0)
        assert consumer.paused() == {P0}
        assert set(await consumer.getmany(timeout_ms=500)) == {P1}
        consumer.resume(P0)
        assert (await consumer.getone()).partition == 0


@virtual_time
async def test_no_offset_and_no_reset(fake: FakeCluster) -> None:
    async with started(fake, "t", group_id="g", auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(theirs.NoOffsetForPartitionError) as raised:
                await consumer.getone()
            assert isinstance(raised.value, ours.NoOffsetError)
        for where in (P0, P1):
            consumer.seek(where, 100)
        for _ in range(2):
            with pytest.raises(theirs.OffsetOutOfRangeError):
                await consumer.getmany(P0, timeout_ms=1000)
        for where in (P0, P1):
            consumer.seek(where, 4)
        assert (await consumer.getone()).offset == 4


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.told: list[tuple[str, set[TopicPartition]]] = []
        self.position: int | None = None

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.told.append(("revoked", revoked))
        raise LookupError("is logged")

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.told.append(("assigned", assigned))
        assert self.consumer.assignment() >= assigned
        for where in assigned:
            self.position = await self.consumer.position(where)
            await self.consumer.seek_to_end(where)


@virtual_time
async def test_a_rebalance_listener_is_told_as_aiokafka_does(fake: FakeCluster) -> None:
    first, second = new(fake, group_id="g"), new(fake, group_id="g")
    listeners = [Listener(first), Listener(second)]
    first.subscribe(["t"], listener=listeners[0])
    second.subscribe(["t"], listener=listeners[1])
    async with first:
        assert listeners[0].told == [("revoked", set()), ("assigned", {P0, P1})]
        assert listeners[0].position == 0
        assert await first.position(P0) == 5
        async with second:
            mine = first.assignment()
            assert (mine | second.assignment(), len(mine)) == ({P0, P1}, 1)
            assert listeners[0].told[2:] == [("revoked", {P0, P1}), ("assigned", mine)]
            assert listeners[1].told == [("revoked", set()), ("assigned", {P0, P1} - mine)]
    assert listeners[1].told[2:] == []  # not at the end of a consumer


@virtual_time
async def test_deserializers(fake: FakeCluster) -> None:
    def strict(value: bytes | None) -> Any:
        if value == b'"0-2"':
            raise KeyError(value)
        return json.loads(value or b"null")

    async with started(fake, value_deserializer=strict, key_deserializer=repr) as consumer:
        consumer.assign([P0])
        record = await consumer.getone()
        assert (record.key, record.value, record.serialized_value_size) == ("b'k'", "0-0", 5)
        for _ in range(2):
            with pytest.raises(KeyError):
                await consumer.getmany(timeout_ms=2000)
        assert await consumer.position(P0) == 1  # nothing was lost
        consumer.seek(P0, 3)
        assert (await consumer.getone()).value == "0-3"


async def test_the_constructor_checks() -> None:
    for given, text in (
        ({"security_protocol": "SOME"}, "should be SSL or PLAINTEXT"),
        ({"isolation_level": "x"}, "Incorrect isolation level x"),
        ({"max_poll_records": 0}, "positive Integer"),
        ({"group_id": "g", "partition_assignment_strategy": [object()]}, "not an assignor"),
    ):
        with pytest.raises(ValueError, match=text):
            AIOKafkaConsumer(**given)
    consumer = AIOKafkaConsumer()
    for call, kind in (
        (lambda: consumer.subscribe("name"), TypeError),
        (consumer.subscribe, TypeError),
        (lambda: consumer.subscribe(["t"], pattern="t"), TypeError),
        (lambda: consumer.subscribe(pattern="(("), ValueError),
        (lambda: consumer.subscribe(["t"], listener=object()), TypeError),  # type: ignore[arg-type]
    ):
        with pytest.raises(kind):
            call()
    await consumer.stop()
    with pytest.warns(UserWarning, match="rebalance_timeout_ms has no effect"):
        other = AIOKafkaConsumer(
            rebalance_timeout_ms=1, partition_assignment_strategy=(RangePartitionAssignor,)
        )
    assert other._consumer.config.partition_assignment_strategy == ("range",)
    await other.stop()


@virtual_time
async def test_a_dropped_consumer_warns(fake: FakeCluster) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    consumer = new(fake)
    await consumer.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del consumer
        gc.collect()
    assert any("Unclosed AIOKafkaConsumer" in str(each.message) for each in caught)
    assert [context["message"] for context in told] == ["Unclosed AIOKafkaConsumer"]
    await asyncio.sleep(5)


def test_install_with_the_consumer() -> None:
    original = aiokafka.AIOKafkaConsumer
    try:
        install()
        assert aiokafka.AIOKafkaConsumer is original
        install(consumer=True)
        assert aiokafka.AIOKafkaConsumer is AIOKafkaConsumer
        assert aiokafka.consumer.consumer.AIOKafkaConsumer is AIOKafkaConsumer
        assert aiokafka.AIOKafkaProducer is AIOKafkaProducer
    finally:
        uninstall()
    assert aiokafka.AIOKafkaConsumer is original


@virtual_time
async def test_unsubscribe_after_stop_does_nothing(fake: FakeCluster) -> None:
    async with started(fake, "t", group_id="g") as consumer:
        pass
    consumer.unsubscribe()
    assert consumer.subscription() == frozenset()


@pytest.mark.parametrize("group_id", ["g", None])
@virtual_time
async def test_subscribe_and_assign_after_stop_are_silent(
    fake: FakeCluster, group_id: str | None
) -> None:
    before = asyncio.all_tasks()
    async with started(fake, "t", group_id=group_id) as consumer:
        assert consumer.assignment() == {P0, P1}
    consumer.subscribe(["u", "t"])
    assert (consumer.subscription(), consumer.assignment()) == ({"u", "t"}, set())
    with pytest.raises(theirs.IllegalStateError):
        consumer.subscribe(pattern="t.*")
    with pytest.raises(theirs.IllegalStateError):
        consumer.assign([P0])
    consumer.unsubscribe()
    consumer.subscribe(pattern="t.*")
    assert (consumer.subscription(), consumer.assignment()) == (set(), set())
    consumer.unsubscribe()
    consumer.assign([P1])
    assert (consumer.subscription(), consumer.assignment()) == ({"t"}, {P1})
    await asyncio.sleep(1)
    assert asyncio.all_tasks() == before


async def forever(consumer: AIOKafkaConsumer) -> None:
    async for _ in consumer:
        pass


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_FETCH])
@virtual_time
async def test_each_call_raises_what_the_coordinator_refuses(fake: FakeCluster, api: int) -> None:
    async with started(fake, group_id="g", enable_auto_commit=False) as consumer:
        fake.control(api, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        consumer.subscribe(["t"])
        with pytest.raises(theirs.GroupAuthorizationFailedError):
            await forever(consumer)
        for _ in range(2):
            with pytest.raises(theirs.GroupAuthorizationFailedError):
                await consumer.getone()


@virtual_time
async def test_the_commit_of_an_evicted_member_fails(fake: FakeCluster) -> None:
    async with started(fake, "t", group_id="g") as consumer:
        await consumer.getone()
        fake.control(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(theirs.CommitFailedError) as failed:
            await consumer.commit()
        assert isinstance(failed.value, theirs.UnknownMemberIdError)
        assert isinstance(failed.value, ours.ConsumerStateError)


@virtual_time
async def test_a_consumer_without_a_group_pauses_between_two_looks_at_its_topics(
    fake: FakeCluster,
) -> None:
    async with started(fake, "t", metadata_max_age_ms=0):
        before = len(fake.requests_of(ApiKey.METADATA))
        await asyncio.sleep(3)
        assert len(fake.requests_of(ApiKey.METADATA)) - before < 120
