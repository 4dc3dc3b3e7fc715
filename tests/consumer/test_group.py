"""Consumers in a group, both protocols: shares, handovers, losses, listeners."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.consumer import RebalanceListener
from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    ConsumerStateError,
    UnknownTopicError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Set

    from kafkaclient.consumer import Consumer
    from kafkaclient.testing.fake import FakeCluster, Request
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}
COOPERATIVE: dict[str, Any] = {"group_protocol": "classic"}
INCREMENTAL = pytest.mark.parametrize("how", [KIP_848, COOPERATIVE], ids=["kip848", "classic"])
"""The two ways in which partitions that stay are consumed in a rebalance."""
EAGER = [
    {"group_protocol": "classic", "partition_assignment_strategy": each}
    for each in ("sticky", "range", "roundrobin", "cooperative-sticky,range")
]


class Log(RebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def _note(self, what: str, partitions: Set[TopicPartition]) -> None:
        assert type(partitions) is frozenset
        self.told.append((what, sorted(p.partition for p in partitions)))

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        self._note("revoked", partitions)

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        self._note("lost", partitions)


class Loop:
    """A loop that handles records for ``work_s`` seconds each."""

    def __init__(self, consumer: Consumer, work_s: float = 0.0) -> None:
        self.consumer = consumer
        self.work_s = work_s
        self.seen: list[tuple[int, int]] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for record in self.consumer:
            if self.work_s:
                await asyncio.sleep(self.work_s)
            self.seen.append((record.partition, record.offset))


def group(tools: Tools, fake: FakeCluster, **options: Any) -> Any:
    return tools.consumer(
        fake, **{"group_id": "g", "topics": ["t"], "group_protocol": "classic", **options}
    )


@pytest.mark.parametrize("how", [KIP_848, COOPERATIVE, *EAGER], ids=str)
@virtual_time
async def test_members_share_all_partitions(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    for number in range(4):
        tools.fill(fake, number, 6)
    async with group(tools, fake, **how) as a:
        first = Loop(a)
        await tools.until(lambda: len(first.seen) == 24)
        async with group(tools, fake, **how) as b:
            second = Loop(b)
            await tools.until(lambda: len(a.assignment) == len(b.assignment) == 2)
            assert a.assignment | b.assignment == set(P)
            for number in range(4):
                tools.fill(fake, number, 3)
            await tools.until(lambda: len(first.seen) + len(second.seen) >= 36)
            await asyncio.sleep(5)
        await tools.until(lambda: a.assignment == set(P))
        for number in range(4):
            tools.fill(fake, number, 1)
        await tools.until(lambda: len(first.seen) + len(second.seen) >= 40)
        assert sorted(first.seen + second.seen) == [(n, at) for n in range(4) for at in range(10)]
    assert [tools.committed(fake, where) for where in P] == [10] * 4


@INCREMENTAL
@virtual_time
async def test_a_member_without_a_partition_says_so(
    fake: FakeCluster, tools: Tools, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafkaclient.group")
    fake.create_topic("single", 1)
    async with group(tools, fake, topics=["single"], **how) as a:
        await tools.until(lambda: len(a.assignment) == 1)
        await asyncio.sleep(30)
        assert "is assigned no partition" not in caplog.text
        async with group(tools, fake, topics=["single"], **how) as b:
            await asyncio.sleep(60)
            idle = b.group_metadata.member_id
            assert caplog.text.count("is assigned no partition") == 1
            assert f"member {idle} is assigned no partition" in caplog.text


@INCREMENTAL
@virtual_time
async def test_what_stays_is_consumed_during_a_rebalance(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    log = Log()
    async with group(tools, fake, listener=log, **how) as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        async with group(tools, fake, **how):
            await tools.until(lambda: len(a.assignment) == 2)
            await asyncio.sleep(1)
            gone = sorted(p.partition for p in set(P) - a.assignment)
            assert log.told == [("assigned", [0, 1, 2, 3]), ("revoked", gone)]
        loop.task.cancel()


@virtual_time
async def test_an_eager_assignor_gives_up_all_before_it_joins(
    fake: FakeCluster, tools: Tools
) -> None:
    log = Log()
    async with group(tools, fake, listener=log, partition_assignment_strategy="range") as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        async with group(tools, fake, partition_assignment_strategy="range"):
            await tools.until(lambda: len(a.assignment) == 2)
            kept = sorted(p.partition for p in a.assignment)
            assert log.told == [
                ("assigned", [0, 1, 2, 3]),
                ("revoked", [0, 1, 2, 3]),
                ("assigned", kept),
            ]
        loop.task.cancel()


@INCREMENTAL
@virtual_time
async def test_a_revoked_partition_waits_for_what_is_in_hand(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    """The next owner begins behind the record that the first one was still handling."""
    for number in range(4):
        tools.fill(fake, number, 20)
    async with group(tools, fake, **how) as a:
        first = Loop(a, work_s=3.0)
        await tools.until(lambda: len(first.seen) == 2)
        async with group(tools, fake, **how) as b:
            second = Loop(b)
            await tools.until(lambda: len(b.assignment) == 2)
            await tools.until(lambda: len(first.seen) + len(second.seen) >= 60)
            seen = first.seen + second.seen
            assert len(seen) == len(set(seen)), "nothing was consumed twice"
            first.task.cancel()


@INCREMENTAL
@virtual_time
async def test_who_takes_too_long_leaves_and_returns(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    tools.fill(fake, 0, 3)
    log = Log()
    async with group(tools, fake, listener=log, max_poll_interval_ms=10_000, **how) as a:
        stream = aiter(a)
        record = await anext(stream)
        assert record.offset == 0
        await asyncio.sleep(12)
        assert log.told == [("assigned", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3])]
        assert not a.assignment
        with pytest.raises(ConsumerStateError, match=r"t-0 is not assigned.*max.poll.interval.ms"):
            await a.commit()
        record.done()  # too late, without effect
        assert (await anext(stream)).offset == 0, "it was not committed"
        assert len(a.assignment) == 4


@virtual_time
async def test_a_commit_that_waits_leaves_out_what_was_revoked_meanwhile(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 3)
    tools.fill(fake, 1, 3)
    async with group(tools, fake) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 6)
        runtime = a._runtime
        runtime.gate.shut()
        commits = [asyncio.create_task(each) for each in (a.commit(), a.commit({P[0]: 2}))]
        await asyncio.sleep(0.1)
        runtime.partitions.remove([P[0]])
        runtime.gate.open()
        await commits[0]
        with pytest.raises(ConsumerStateError, match="t-0 is not assigned"):
            await commits[1]
        assert (tools.committed(fake, P[0]), tools.committed(fake, P[1])) == (None, 3)
        loop.task.cancel()


@virtual_time
async def test_a_listener_may_seek_and_commit(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)

    class Seeks(RebalanceListener):
        async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
            await asyncio.sleep(1)
            if P[0] in partitions:
                consumer.seek(P[0], 7)

        async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
            await consumer.commit({P[0]: 5})

    async with group(tools, fake, listener=Seeks(), enable_auto_commit=False) as consumer:
        assert (await anext(aiter(consumer))).offset == 7
    assert tools.committed(fake, P[0]) == 5


@virtual_time
async def test_what_a_listener_raises_ends_the_loop(fake: FakeCluster, tools: Tools) -> None:
    class Raises(RebalanceListener):
        def on_assigned(self, partitions: Set[TopicPartition]) -> None:
            raise ZeroDivisionError

    async with group(tools, fake, listener=Raises()) as consumer:
        with pytest.raises(ZeroDivisionError):
            await anext(aiter(consumer))


class _NoException(BaseException):
    pass


@pytest.mark.parametrize("kind", [asyncio.CancelledError, StopAsyncIteration, _NoException])
@pytest.mark.parametrize("is_async", [False, True])
@virtual_time
async def test_what_a_listener_raises_cannot_look_like_the_end_of_the_loop(
    fake: FakeCluster, tools: Tools, kind: type[BaseException], is_async: bool
) -> None:
    """Such as the error of a task that it has awaited, and that was cancelled."""

    class Raises(RebalanceListener):
        async def later(self) -> None:
            raise kind

        def on_assigned(self, partitions: Set[TopicPartition]) -> Awaitable[None] | None:
            if is_async:
                return self.later()
            raise kind

    async with group(tools, fake, listener=Raises()) as consumer:
        for _ in range(2):
            with pytest.raises(ConsumerStateError, match="a rebalance listener raised") as raised:
                async for _ in consumer:
                    pass
            assert isinstance(raised.value.__cause__, kind)
        assert not await consumer.healthy()


@INCREMENTAL
@virtual_time
async def test_new_partitions_and_topics_are_found(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    async with tools.consumer(
        fake,
        group_id="g",
        pattern="t.*",
        **how,
        metadata_max_age_ms=5_000,
    ) as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        fake.create_topic("t2", 2)
        await tools.until(lambda: len(a.assignment) == 6)
        fake.add_partitions("t2", 3)
        await tools.until(lambda: len(a.assignment) == 7)
        fake.delete_topic("t2")
        await tools.until(lambda: len(a.assignment) == 4)
        a.subscribe(["t"])
        loop.task.cancel()


@INCREMENTAL
@virtual_time
async def test_what_is_created_meanwhile_is_consumed_from_its_beginning(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    """Also with ``latest``: all of its records are newer than the subscription."""
    tools.fill(fake, 0, 5)
    topics = ["t", "late"]
    async with group(
        tools, fake, auto_offset_reset="latest", metadata_max_age_ms=5_000, **how, topics=topics
    ) as a:
        loop = Loop(a)
        await tools.until(lambda: a.assignment == set(P) and a.position(P[0]) is not None)
        fake.add_partitions("t", 5)
        tools.fill(fake, 4, 3)
        fake.create_topic("late", 1)
        tools.fill(fake, 0, 2, "late")
        await tools.until(lambda: len(loop.seen) == 5)
        assert sorted(loop.seen) == [(0, 0), (0, 1), (4, 0), (4, 1), (4, 2)]
        loop.task.cancel()


@pytest.mark.parametrize("how", [COOPERATIVE, *EAGER], ids=str)
@virtual_time
async def test_a_topic_that_matches_the_pattern_is_one_rebalance(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    """Though each member looks for topics at times of its own."""
    options = {**how, "topics": (), "pattern": "t.*", "metadata_max_age_ms": 20_000}
    logs = Log(), Log()
    async with group(tools, fake, listener=logs[0], **options) as a:
        await asyncio.sleep(10)
        async with group(tools, fake, listener=logs[1], **options) as b:
            await tools.until(lambda: len(a.assignment) == len(b.assignment) == 2)
            await asyncio.sleep(60)
            joins = len(fake.requests_of(ApiKey.JOIN_GROUP))
            fake.create_topic("t2", 2)
            await asyncio.sleep(60)
            assert len(fake.requests_of(ApiKey.JOIN_GROUP)) == joins + 2
            assert len(a.assignment) == len(b.assignment) == 3


@INCREMENTAL
@virtual_time
async def test_another_subscription(fake: FakeCluster, tools: Tools, how: dict[str, Any]) -> None:
    fake.create_topic("other", 1)
    tools.fill(fake, 0, 5, "other")
    async with group(tools, fake, auto_offset_reset="latest", **how) as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        a.subscribe(pattern="o.*")
        other = TopicPartition("other", 0)
        await tools.until(lambda: a.assignment == {other} and a.position(other) == 5, 5)
        assert not loop.seen, "its records are older than the subscription"
        loop.task.cancel()


@virtual_time
async def test_a_leader_that_may_not_describe_the_topics_of_others(
    fake: FakeCluster, tools: Tools
) -> None:
    fake.create_topic("secret", 1)
    async with group(tools, fake, client_id="a") as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        numbers = [{"partition_index": number} for number in range(4)]
        answers = [
            {"name": "secret", "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED},
            {"name": "t", "error_code": 0, "partitions": numbers},
        ]

        def deny(request: Request) -> dict[str, Any] | None:
            names = {each.name for each in request.message.topics or ()}
            if "secret" not in names or request.client_id != "a":
                return None
            return {
                **cluster_fields(fake),
                "topics": [each for each in answers if each["name"] in names],
            }

        fake.control(ApiKey.METADATA, deny, keep=True)
        async with group(tools, fake, topics=["secret"], client_id="b") as b:
            await tools.until(lambda: len(fake.requests_of(ApiKey.JOIN_GROUP)) >= 4)
            await asyncio.sleep(2)
            assert (len(a.assignment), len(b.assignment)) == (4, 0)
            assert not loop.task.done()
        a.subscribe(["secret"])
        with pytest.raises(AuthorizationError, match="secret"):
            await loop.task


@virtual_time
async def test_a_subscription_that_was_denied_is_told_to_the_group_when_it_is_permitted(
    fake: FakeCluster, tools: Tools
) -> None:
    """The member is not the leader, which would look at the topics of the group all the time."""
    fake.create_topic("u", 1)
    denied = {"topics": [{"name": "u", "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}]}
    async with group(tools, fake) as a:
        await a.wait_assigned()
        async with group(tools, fake) as b:
            await tools.until(lambda: len(b.assignment) == 2)
            denial = fake.control(
                ApiKey.METADATA,
                lambda request: (
                    {**cluster_fields(fake), **denied} if request.message.topics else None
                ),
                keep=True,
            )
            b.subscribe(["u"])
            with pytest.raises(AuthorizationError, match="'u'"):
                await b.getone()
            denial.remove()
            await tools.until(lambda: b.assignment == {TopicPartition("u", 0)}, 10)


@INCREMENTAL
@virtual_time
async def test_a_topic_that_may_not_be_described_any_more_is_told_and_kept(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    """The leader of a classic group does not take it for one without partitions. With KIP-848 the
    coordinator checks the topics of each heartbeat, and the consumer asks for no metadata."""
    tools.fill(fake, 0, 1)
    is_denied = True

    def deny(request: Request) -> dict[str, Any] | None:
        if not is_denied or not request.message.topics:
            return None
        return {
            **cluster_fields(fake),
            "topics": [{"name": "t", "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}],
        }

    async with (
        group(tools, fake, metadata_max_age_ms=5_000, **how) as a,
        asyncio.timeout(60),
    ):
        assert (await a.getone()).offset == 0
        fake.control(ApiKey.METADATA, deny, keep=True)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        heartbeats = ApiKey.CONSUMER_GROUP_HEARTBEAT
        fake.control(heartbeats, lambda _: code if is_denied else None, keep=True)
        for _ in range(2):
            with pytest.raises(AuthorizationError, match="may not Describe on the topic 't'"):
                await a.getone()
        assert a.assignment == set(P)
        is_denied = False
        tools.fill(fake, 0, 1)
        found = None
        while found is None:
            with suppress(AuthorizationError):
                found = await a.getone()
        assert found.offset == 1


@INCREMENTAL
@virtual_time
async def test_a_static_member_keeps_its_partitions(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    log = Log()
    async with group(tools, fake, listener=log, group_instance_id="a", **how) as a:
        Loop(a)
        async with group(tools, fake, group_instance_id="b", **how) as b:
            Loop(b)
            await tools.until(lambda: len(a.assignment) == len(b.assignment) == 2)
            before = b.assignment
        told = list(log.told)
        await asyncio.sleep(5)
        assert log.told == told
        async with group(tools, fake, group_instance_id="b", **how) as b:
            Loop(b)
            await tools.until(lambda: b.assignment == before)


@virtual_time
async def test_a_fenced_member_says_so(fake: FakeCluster, tools: Tools) -> None:
    async with group(tools, fake, group_instance_id="a") as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        async with group(tools, fake, group_instance_id="a") as b:
            await tools.until(lambda: len(b.assignment) == 4)
            with pytest.raises(BrokerError, match=r"FENCED_INSTANCE_ID.*group_instance_id"):
                await loop.task


@virtual_time
async def test_what_is_refused(fake: FakeCluster, tools: Tools) -> None:
    with pytest.raises(ConfigError, match="give group_id"):
        async with tools.consumer(fake, topics=["t"]):
            pass
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        with pytest.raises(ConsumerStateError, match="assigned by hand"):
            consumer.subscribe(["t"])
        with pytest.raises(ConfigError, match="topics, or to a pattern"):
            consumer.subscribe(["t"], pattern="t")
    async with group(tools, fake) as consumer:
        with pytest.raises(ConsumerStateError, match="the group assigns"):
            consumer.assign([P[0]])


@virtual_time
async def test_auto_chooses_by_what_the_coordinator_has(fake: FakeCluster, tools: Tools) -> None:
    async with group(tools, fake, group_protocol="auto") as a:
        await tools.until(lambda: len(a.assignment) == 4)
        assert not fake.requests_of(ApiKey.JOIN_GROUP)
    async with group(tools, fake) as old:
        await tools.until(lambda: len(old.assignment) == 4)
        loop = Loop(old)
        async with group(tools, fake, group_protocol="auto") as a:
            await tools.until(lambda: len(a.assignment) == 2)
        async with group(tools, fake, **KIP_848) as refused:
            with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
                await anext(aiter(refused))
        loop.task.cancel()


@virtual_time
async def test_a_group_that_goes_back_to_classic_members(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 5)
    log = Log()
    async with group(tools, fake, listener=log, group_protocol="auto") as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 5)
        await a.commit()
        fake._state.consumer_groups.groups.clear()
        fake.control(ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.GROUP_ID_NOT_FOUND)
        await tools.until(lambda: len(log.told) == 3)
        assert [what for what, _ in log.told] == ["assigned", "lost", "assigned"]
        tools.fill(fake, 0, 1)
        await tools.until(lambda: len(loop.seen) == 6)
        loop.task.cancel()


@virtual_time
async def test_what_a_listener_raises_for_a_loss_ends_the_loop(
    fake: FakeCluster, tools: Tools
) -> None:
    class Raises(RebalanceListener):
        def on_lost(self, partitions: Set[TopicPartition]) -> None:
            raise ZeroDivisionError

    async with group(tools, fake, listener=Raises(), **KIP_848) as a:
        await tools.until(lambda: len(a.assignment) == 4)
        fake.control(ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH)
        with pytest.raises(ZeroDivisionError):
            await anext(aiter(a))


@virtual_time
async def test_an_epoch_that_is_over_is_no_end(fake: FakeCluster, tools: Tools) -> None:
    """A commit with an old epoch waits for the new one; a fenced member joins again."""
    tools.fill(fake, 0, 10)
    async with group(tools, fake, **KIP_848) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 10)
        fake.control(ApiKey.OFFSET_COMMIT, {"topics": _codes(ErrorCode.STALE_MEMBER_EPOCH)})
        await a.commit({P[0]: 9})
        assert tools.committed(fake, P[0]) == 9
        await a.commit({P[0]: 10})
        fake.control(ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH)
        await tools.until(lambda: not a.assignment)
        await tools.until(lambda: len(a.assignment) == 4)
        tools.fill(fake, 0, 1)
        await tools.until(lambda: len(loop.seen) == 11)
        loop.task.cancel()


@INCREMENTAL
@virtual_time
async def test_a_commit_for_a_topic_that_was_deleted_does_not_reach_the_new_one(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    tools.fill(fake, 0, 10)
    async with group(tools, fake, enable_auto_commit=False, **how) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 10)
        loop.task.cancel()
        fake.delete_topic("t")
        fake.create_topic("t", 4)
        with pytest.raises(UnknownTopicError, match="t-0 does not exist"):
            await a.commit({P[0]: 10})
        assert tools.committed(fake, P[0]) is None


@pytest.mark.parametrize("away_s", [0, 120])
@INCREMENTAL
@virtual_time
async def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    fake: FakeCluster, tools: Tools, how: dict[str, Any], away_s: float
) -> None:
    """Also with ``latest``, and whether or not the group has seen that it was away."""
    log, options = Log(), {"auto_offset_reset": "latest", "metadata_max_age_ms": 5_000, **how}
    tools.fill(fake, 0, 2)
    async with group(tools, fake, listener=log, **options) as a:
        loop = Loop(a)
        await tools.until(lambda: a.assignment == set(P))
        await asyncio.sleep(1)
        tools.fill(fake, 0, 1)
        await tools.until(lambda: loop.seen == [(0, 2)])
        fake.delete_topic("t")
        await asyncio.sleep(away_s)
        fake.create_topic("t", 4)
        tools.fill(fake, 0, 4)
        tools.fill(fake, 1, 1)
        await tools.until(lambda: len(loop.seen) == 6)
        assert sorted(loop.seen[1:]) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
        if how is KIP_848 or away_s:
            everything = [0, 1, 2, 3]
            told = [("assigned", everything), ("revoked", everything), ("assigned", everything)]
            # The records may come first: fetches find the new topic as well as the group.
            await tools.until(lambda: [each for each in log.told if each[1]] == told)
        loop.task.cancel()


@virtual_time
async def test_a_coordinator_that_does_not_know_the_topic_yet_is_asked_again(
    fake: FakeCluster, tools: Tools
) -> None:
    """It has read its log, in which the group's offsets are, and lags behind with the topics."""
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g", enable_auto_commit=False) as a:
        a.assign([P[0]])
        await a.commit({P[0]: 4})
    fake.control(ApiKey.OFFSET_FETCH, ErrorCode.UNKNOWN_TOPIC_ID)
    async with group(tools, fake) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 6)
        assert loop.seen[0] == (0, 4)
        assert len(fake.requests_of(ApiKey.OFFSET_FETCH)) >= 2
        loop.task.cancel()


def _codes(code: int) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code}]}]


def cluster_fields(fake: FakeCluster) -> dict[str, Any]:
    """The part of a Metadata answer that is not about topics."""
    brokers = [{"node_id": n, "host": f"fake-{n}", "port": 9092} for n in range(2)]
    return {"brokers": brokers, "cluster_id": fake._state.cluster_id}
