"""What consumers do in the corners: two loops, stop() at odd times, commits of listeners."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import SyncConsumer
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.consumer import Consumer, RebalanceListener
from kafkaclient.errors import (
    AuthorizationError,
    ConsumerStateError,
    InvalidTopicError,
    UnknownTopicError,
)
from kafkaclient.testing import MockConsumer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.consumer.test_group import COOPERATIVE, INCREMENTAL, KIP_848, Log, Loop, group

if TYPE_CHECKING:
    from collections.abc import Set

    from kafkaclient.testing.fake import FakeCluster
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]


@virtual_time
async def test_a_second_loop_ends_the_first(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 30)
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        first = aiter(consumer)
        assert (await anext(first)).offset == 0
        second = aiter(consumer)
        assert (await anext(second)).offset == 0, "it was in hand"
        with pytest.raises(ConsumerStateError, match="another loop"):
            await anext(first)
        batches = consumer.batches()
        assert (await anext(batches)).base_offset == 0
        with pytest.raises(ConsumerStateError, match="another loop"):
            await anext(second)
        assert (await anext(aiter(consumer))).offset == 0
        with pytest.raises(ConsumerStateError, match="another loop"):
            await anext(batches)


@virtual_time
async def test_what_is_never_awaited_takes_no_record(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 30)
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        stream = aiter(consumer)
        assert (await anext(stream)).offset == 0
        for _ in range(3):
            with suppress(TimeoutError):
                await asyncio.wait_for(anext(stream), 0)
            task = asyncio.ensure_future(anext(stream))
            task.cancel()
            await asyncio.wait({task})
        assert (await anext(stream)).offset == 1


@virtual_time
async def test_records_come_to_a_traced_loop_and_while_an_exception_is_handled(
    fake: FakeCluster, tools: Tools
) -> None:
    """A record is returned by an exception, which tracers see and which Python chains."""
    tools.fill(fake, 0, 30)
    traced: list[str] = []
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        stream = aiter(consumer)
        taken = [await anext(stream)]
        before = sys.gettrace()
        sys.settrace(lambda _, event, __: traced.append(event))
        try:
            taken += [await anext(stream), await anext(stream, None)]
        finally:
            sys.settrace(before)
        try:
            {}["nothing"]
        except LookupError:
            taken += [await anext(stream), await asyncio.ensure_future(anext(stream))]
        assert [record.offset for record in taken if record is not None] == [0, 1, 2, 3, 4]
    assert sys.getrefcount(taken[1]) <= 3, "nothing keeps it"


@virtual_time
async def test_what_is_in_work_outlasts_a_partition_that_cannot_be_fetched(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 6)
    async with tools.consumer(fake, group_id="g", max_block_ms=2_000) as consumer:
        consumer.assign([P[0]])
        stream = consumer.tracked()
        records = [await anext(stream) for _ in range(6)]
        waits = asyncio.ensure_future(anext(stream))
        fake.control(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, keep=True)
        await asyncio.sleep(10)
        await consumer.commit()
        assert tools.committed(fake, P[0]) == 0, "all of them are in work"
        for record in records[:3]:
            record.done()
        await consumer.commit()
        assert tools.committed(fake, P[0]) == 3
        waits.cancel()


@INCREMENTAL
@virtual_time
async def test_who_left_joins_when_a_record_is_asked_for(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    tools.fill(fake, 0, 9)
    log = Log()
    async with group(tools, fake, listener=log, max_poll_interval_ms=10_000, **how) as a:
        stream = aiter(a)
        for _ in range(9):
            await anext(stream)
        waits = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        tools.fill(fake, 0, 1)
        await waits
        await asyncio.sleep(30)
        assert [what for what, _ in log.told] == ["assigned", "lost"]
        waits = asyncio.ensure_future(anext(stream))
        await tools.until(lambda: len(a.assignment) == 4)
        waits.cancel()


@INCREMENTAL
@virtual_time
async def test_a_listener_may_stop_the_consumer(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    class Stops(RebalanceListener):
        async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
            await consumer.stop()

    consumer: Consumer
    async with group(tools, fake, listener=Stops(), **how) as consumer:
        assert [record async for record in consumer] == []
    assert not consumer.is_running


@virtual_time
async def test_a_stop_that_is_canceled_goes_on(fake: FakeCluster, tools: Tools) -> None:
    async with group(tools, fake) as consumer:
        await tools.until(lambda: len(consumer.assignment) == 4)
        for _ in range(2):
            stops = asyncio.create_task(consumer.stop())
            await asyncio.sleep(0)
            stops.cancel()
            await asyncio.wait({stops})
        await consumer.stop()
        assert "closed" in repr(consumer)


@virtual_time
async def test_stop_of_another_task_ends_the_loop(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 30)
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        loop = Loop(consumer, work_s=1.0)
        await asyncio.sleep(5)
        await consumer.stop()
        await asyncio.wait_for(loop.task, 2)
        assert len(loop.seen) < 8


@INCREMENTAL
@virtual_time
async def test_a_commit_of_the_listener_leaves_out_what_is_in_hand(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    for number in range(4):
        tools.fill(fake, number, 2)

    class Commits(RebalanceListener):
        async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
            await a.commit()

    async with group(tools, fake, listener=Commits(), enable_auto_commit=False, **how) as a:
        record = await anext(aiter(a))
        async with group(tools, fake, **how):
            await asyncio.sleep(5)
            if record.topic_partition in a.assignment:
                assert tools.committed(fake, record.topic_partition) in (None, 0)
            record.done()
            await tools.until(lambda: len(a.assignment) == 2)


@virtual_time
async def test_a_slow_on_lost_while_the_partitions_are_lost_again(
    fake: FakeCluster, tools: Tools
) -> None:
    class Slow(Log):
        async def on_lost(self, partitions: Set[TopicPartition]) -> None:
            await asyncio.sleep(3)
            await super().on_lost(partitions)

    log = Slow()
    async with group(tools, fake, listener=log, **KIP_848) as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        for _ in range(2):
            fake.control(ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
            await asyncio.sleep(1.5)
        await asyncio.sleep(15)
        assert len(a.assignment) == 4
        assert not loop.task.done()
        assert log.told[-1][0] == "assigned"
        loop.task.cancel()


@virtual_time
async def test_a_negative_offset_is_not_committed(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        with pytest.raises(ValueError, match="t-0: offset -1"):
            await consumer.commit({P[0]: -1})
        with pytest.raises(TypeError, match="t-0: '1' is no offset"):
            await consumer.commit({P[0]: "1"})  # type: ignore[dict-item]


@virtual_time
async def test_names_in_place_of_a_pattern(fake: FakeCluster, tools: Tools) -> None:
    fake.create_topic("other", 1)
    async with tools.consumer(fake, group_id="g", pattern="t.*", **KIP_848) as a:
        await tools.until(lambda: len(a.assignment) == 4)
        a.subscribe(["other"])
        await tools.until(lambda: a.assignment == {TopicPartition("other", 0)})


@virtual_time
async def test_a_cluster_that_is_away_for_long_is_no_end(fake: FakeCluster, tools: Tools) -> None:
    fake.control(ApiKey.METADATA, lambda r: 7 if r.message.topics else None, keep=True)
    control = fake._state.interceptors[-1]
    async with group(tools, fake, max_block_ms=5_000, **COOPERATIVE) as a:
        loop = Loop(a)
        await asyncio.sleep(30)
        fake._state.interceptors.remove(control)
        await tools.until(lambda: len(a.assignment) == 4)
        loop.task.cancel()


@virtual_time
async def test_a_partition_that_is_away_holds_up_no_other_one(
    fake: FakeCluster, tools: Tools
) -> None:
    for number in range(4):
        tools.fill(fake, number, 1)
    fake.move_leader("t", 1, -1)
    async with group(tools, fake, max_block_ms=2_000) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 3)
        fake.move_leader("t", 1, 0)
        await tools.until(lambda: len(loop.seen) == 4)
        loop.task.cancel()


@virtual_time
async def test_what_is_no_partition_or_offset_is_refused_at_once(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 1)
    async with tools.consumer(fake, group_id="g") as consumer:
        wrong: list[Any] = [("t", "0"), ("t", -1), ("", 0), ("t", 1.5)]
        for each in wrong:
            with pytest.raises((TypeError, ValueError, InvalidTopicError)):
                consumer.assign([each])
        consumer.assign([P[0]])
        offsets: list[Any] = [1.5, "1", -1, 2**63]
        for offset in offsets:
            with pytest.raises((TypeError, ValueError)):
                consumer.seek(P[0], offset)
        with pytest.raises(ConsumerStateError):
            consumer.subscribe(["t"])
        assert consumer.subscription == frozenset()
        assert (await anext(aiter(consumer))).offset == 0


@virtual_time
async def test_a_deleted_topic_holds_up_no_commit(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 9)
    fake.create_topic("u", 1)
    async with tools.consumer(fake, group_id="g", auto_commit_interval_ms=10**6) as consumer:
        consumer.assign([P[0], TopicPartition("u", 0)])
        stream = aiter(consumer)
        for _ in range(5):
            await anext(stream)
        await tools.until(lambda: consumer.position(("u", 0)) == 0)
        fake.delete_topic("u")
        async with asyncio.timeout(3):
            with pytest.raises(UnknownTopicError, match="u-0 does not exist"):
                await consumer.commit()
        assert tools.committed(fake, P[0]) == 5


@virtual_time
async def test_a_commit_that_is_repeated_does_not_put_a_later_one_back(
    fake: FakeCluster, tools: Tools
) -> None:
    """The next owner would consume records again though they are committed."""
    tools.fill(fake, 0, 9)
    slow = {"auto_commit_interval_ms": 1000, "retry_backoff_ms": 500, "retry_backoff_max_ms": 500}
    async with tools.consumer(fake, group_id="g", **slow) as consumer:
        consumer.assign([P[0]])
        await consumer.getmany(P[0], timeout_ms=100, max_records=3)
        await consumer.getmany(P[0], timeout_ms=100, max_records=3)
        fake.control(ApiKey.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR)
        await tools.until(lambda: bool(fake.requests_of(ApiKey.OFFSET_COMMIT)))
        await consumer.commit({("t", 0): 6})  # type: ignore[dict-item]
        assert tools.committed(fake, P[0]) == 6
        await asyncio.sleep(0.7)
        assert tools.committed(fake, P[0]) == 6


@virtual_time
async def test_a_missing_right_is_told_once_by_each_call_and_is_no_end(
    fake: FakeCluster, tools: Tools
) -> None:
    """It may be granted: while records are fetched, positions are looked for, or offsets committed.
    The error names the topic, also where the request is one of the group."""
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    expected = "may not .* on the topic 't'; kafka-acls .* --operation Read --topic t"
    for number in (0, 1):
        tools.fill(fake, number, 3)
    for api in (ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS):
        fake.control(api, denied)
    async with tools.consumer(fake, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign(P[:2])
        for _ in range(2):
            with pytest.raises(AuthorizationError, match=expected):
                await consumer.getone()
        assert (await consumer.getone(P[0])).offset == 0
        await asyncio.sleep(1)  # no fetch is in flight
        for number in (0, 1):
            fake.fail_fetch("t", number, denied)
            consumer.seek(P[number], 1)
        with pytest.raises(AuthorizationError, match=expected):
            await consumer.getone()
        seen = [await consumer.getone() for _ in range(4)]
        assert sorted((r.partition, r.offset) for r in seen) == [(0, 1), (0, 2), (1, 1), (1, 2)]
        fake.control(ApiKey.OFFSET_COMMIT, denied)
        with pytest.raises(AuthorizationError, match=expected):
            await consumer.commit()
        await consumer.commit()
        assert tools.committed(fake, P[0]) == 3


@virtual_time
async def test_a_member_whose_topic_may_not_be_described_stays(
    fake: FakeCluster, tools: Tools
) -> None:
    """As in Java, KIP-848: the coordinator checks the topics of each heartbeat."""
    async with group(tools, fake, **KIP_848) as consumer:
        await consumer.wait_assigned()
        fake.control(ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(AuthorizationError, match="may not Describe on the topic 't'"):
            await consumer.getone()
        tools.fill(fake, 0, 1)
        assert (await consumer.getone()).offset == 0


@virtual_time
async def test_a_topic_whose_id_is_not_known_leaves_the_others_their_ids(
    fake: FakeCluster, tools: Tools
) -> None:
    """Else the offset of a deleted topic would become one of the new topic."""
    tools.fill(fake, 0, 9)
    fake.create_topic("v", 1)
    async with tools.consumer(fake, group_id="g", enable_auto_commit=False) as consumer:
        where = [P[0], TopicPartition("u", 0), TopicPartition("v", 0)]
        consumer.assign(where)
        await anext(aiter(consumer))
        await tools.until(lambda: consumer.position(("v", 0)) == 0)
        fake.delete_topic("t")
        fake.create_topic("t", 4)
        with pytest.raises(UnknownTopicError, match="t-0, u-0 does not exist"):
            await consumer.commit(dict.fromkeys(where, 5))
        assert [tools.committed(fake, each) for each in where] == [None, None, 5]


@INCREMENTAL
@virtual_time
async def test_stop_while_the_listener_is_told(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    """It is told of each partition once."""

    class Slow(Log):
        async def on_revoked(self, partitions: Set[TopicPartition]) -> None:  # type: ignore[override]
            self._note("revoked", partitions)
            await asyncio.sleep(3)

    log = Slow()
    async with group(tools, fake, listener=log, **how) as first:
        await tools.until(lambda: len(first.assignment) == 4)
        async with group(tools, fake, **how):
            await tools.until(lambda: log.told[-1][0] == "revoked")
            await first.stop()
    revoked = [number for what, numbers in log.told for number in numbers if what == "revoked"]
    assert sorted(revoked) == [0, 1, 2, 3]


@virtual_time
async def test_another_event_loop_can_neither_use_nor_stop_a_consumer(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 30)
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        stream = aiter(consumer)
        assert (await anext(stream)).offset == 0
        for call in (consumer.healthy, consumer.getone, consumer.list_topics, consumer.stop):
            with pytest.raises(
                ConsumerStateError, match=r"loop it was started in; each asyncio\.run"
            ):
                await asyncio.to_thread(asyncio.run, call())
        assert (await anext(stream)).offset == 1


@virtual_time
async def test_a_consumer_of_nothing_says_so(fake: FakeCluster, tools: Tools) -> None:
    """Otherwise its loop would wait forever."""
    tools.fill(fake, 0, 1)
    async with tools.consumer(fake) as consumer:
        for _ in range(2):
            message = "neither topics nor partitions: give topics"
            for take in (consumer.getone, consumer.getmany, aiter(consumer.batches()).__anext__):
                with pytest.raises(ConsumerStateError, match=message):
                    await take()
            for begin in (consumer.__aiter__, consumer.tracked):
                with pytest.raises(ConsumerStateError, match=message):
                    begin()
            assert message in str(await consumer.healthy())
            consumer.assign([P[0]])
            assert (await anext(aiter(consumer))).offset == 0
            consumer.unsubscribe()


@virtual_time
async def test_a_wrong_partition_is_named(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        calls: tuple[Any, ...] = (
            lambda: consumer.seek("t", 0),  # type: ignore[arg-type]
            lambda: consumer.pause("t", 0),  # type: ignore[arg-type]
            lambda: consumer.position("t"),  # type: ignore[arg-type]
            lambda: consumer.assign(("t", 0)),  # type: ignore[arg-type]
            lambda: consumer.assign([("t", "0")]),  # type: ignore[list-item]
        )
        for call in calls:
            with pytest.raises(TypeError, match="a partition is a pair of topic and number"):
                call()


@INCREMENTAL
@virtual_time
async def test_a_commit_of_a_member_that_was_evicted_tells_of_the_loss(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    """The process was stopped, and commits before it hears of it."""
    tools.fill(fake, 0, 30)
    async with group(tools, fake, **how) as consumer:
        record = await anext(aiter(consumer))
        fake.control(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
        for offsets in (None, {record.topic_partition: 1}):
            with pytest.raises(ConsumerStateError, match="not assigned to this consumer any more"):
                await consumer.commit(offsets)


@INCREMENTAL
@virtual_time
async def test_a_member_pauses_between_two_looks_at_its_topics(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    async with group(tools, fake, metadata_max_age_ms=0, **how) as consumer:
        await consumer.wait_assigned()
        before = len(fake.requests_of(ApiKey.METADATA))
        await asyncio.sleep(3)
        assert len(fake.requests_of(ApiKey.METADATA)) - before < 120


@INCREMENTAL
@virtual_time
async def test_what_is_not_done_at_the_end_is_told(
    fake: FakeCluster, tools: Tools, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tools.fill(fake, 0, 6)
    async with group(tools, fake, **how) as consumer:
        taken = []
        async for record in consumer.tracked():
            taken.append(record)
            if len(taken) == 5:
                break
        for index in (0, 2):
            taken[index].done()
    assert tools.committed(fake, P[0]) == 1
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == (
        "the consumer is closed: 3 records were handed out and are not done(), so they will be "
        "consumed again: t-0 from offset 1"
    )


@INCREMENTAL
@virtual_time
async def test_the_end_without_brokers_is_bounded_and_names_the_broker(
    fake: FakeCluster, tools: Tools, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tools.fill(fake, 0, 6)
    loop = asyncio.get_running_loop()
    async with group(tools, fake, **how) as consumer:
        await consumer.getmany(timeout_ms=5000)
        fake.stop_broker(0)
        fake.stop_broker(1)
        await asyncio.sleep(1)
        await consumer.getmany()
        began = loop.time()
        await consumer.stop()
        assert loop.time() - began < 15.5
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    for begins, seconds in (("the consumer is closed: no commit", 10), ("group g could not", 5)):
        (message,) = [each for each in told if each.startswith(begins)]
        assert f"no coordinator has answered within {seconds} s; the last error was: " in message
        assert "broker 0 (fake-0:9092)" in message


@pytest.mark.parametrize("kind", [Consumer, SyncConsumer, MockConsumer])
def test_topics_that_are_given_without_their_name(kind: Any) -> None:
    """As aiokafka and kafka-python take them."""
    with pytest.raises(TypeError, match=rf"{kind.__name__} .*topics=\['orders'\].*subscribe\("):
        kind("localhost:9092", "orders", group_id="g")
    with pytest.raises(TypeError, match=r"topics=\['a', 'b'\]"):
        kind("localhost:9092", ["a", "b"], group_id="g")
    with pytest.raises(TypeError, match=r"topics=\['orders'\]"):
        kind("orders", bootstrap_servers="localhost:9092", group_id="g")
