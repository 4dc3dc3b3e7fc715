"""What hooks are told of a consumer, and whether a consumer is healthy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Consumer
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import AuthorizationError, BrokerError, ConfigError, NoOffsetError
from kafkaclient.hooks import ConsumedBatch, Hooks
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.consumer.test_group import COOPERATIVE, KIP_848, Loop, cluster_fields, group

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster, Request
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]


class Seen(Hooks):
    def __init__(self) -> None:
        self.all: list[tuple[str, Any]] = []

    def of(self, name: str) -> list[Any]:
        return [what for each, what in self.all if each == name]


def _noting(name: str) -> Any:
    def note(self: Seen, what: Any) -> None:
        assert name in ("start", "consume", "commit") or type(what) is frozenset
        self.all.append((name, what))

    return note


for _name in ("start", "consume", "commit", "assigned", "revoked", "lost"):
    setattr(Seen, f"on_{_name}", _noting(_name))


class Failing(Hooks):
    def on_consume(self, _batch: ConsumedBatch) -> None:
        raise KeyError("consume")

    def on_commit(self, _commit: object) -> None:
        raise KeyError("commit")

    def on_assigned(self, _partitions: object) -> None:
        raise KeyError("assigned")


@pytest.mark.parametrize("how", [KIP_848, COOPERATIVE], ids=["kip848", "classic"])
@virtual_time
async def test_hooks_see_all_and_can_break_nothing(
    fake: FakeCluster, tools: Tools, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tools.fill(fake, 0, 3)
    seen = Seen()
    async with group(tools, fake, hooks=[Failing(), seen], **how) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 3)
        await a.commit()
        assert seen.of("start") == [a]
        assert frozenset().union(*seen.of("assigned")) == set(P)
        (batch,) = seen.of("consume")
        *numbers, waited_s, contents = batch
        assert numbers == ["t", 0, 3, 9, 0, 3, 0]
        assert 0 < waited_s < 10
        assert [record.value for record in contents] == [b"0", b"1", b"2"]
        commits = seen.of("commit")
        assert commits[-1].error is None
        assert commits[-1].offsets[P[0]] == 3
        assert commits[-1].latency_s > 0
        fake.control(ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError) as refused:
            await a.commit({P[1]: 0})
        assert seen.of("commit")[-1].error is refused.value
        async with group(tools, fake, **how):
            await tools.until(lambda: bool(seen.of("revoked")))
        loop.task.cancel()
    assert {what for what in ("consume", "commit", "assigned") if f"'{what}'" in caplog.text} == {
        *("consume", "commit", "assigned")
    }
    assert frozenset().union(*seen.of("revoked")) == set(P), "at the end all are given up"
    assert not seen.of("lost")


def test_hooks_are_no_coroutines() -> None:
    class Slow(Hooks):
        async def on_commit(self, commit: Any) -> None: ...  # type: ignore[override]

    with pytest.raises(ConfigError, match="hooks"):
        Consumer("localhost:9092", hooks=Slow())


@virtual_time
async def test_health(fake: FakeCluster, tools: Tools) -> None:
    consumer = Consumer(fake.bootstrap, dialer=fake)
    assert str(await consumer.healthy()) == "the consumer is not started"
    seen = Seen()
    async with group(tools, fake, max_poll_interval_ms=5000, hooks=seen) as a:
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        health = await a.healthy()
        assert health
        assert str(health) == "healthy"
        loop.task.cancel()
        await asyncio.sleep(7)
        health = await a.healthy()
        assert not health
        assert "no record was asked for within max.poll.interval.ms" in str(health)
        assert frozenset().union(*seen.of("lost")) == set(P)
        loop = Loop(a)
        await tools.until(lambda: len(a.assignment) == 4)
        fake.stop_broker(0)
        fake.stop_broker(1)
        await asyncio.sleep(1)
        assert "no leader of the topics in use answers" in str(await a.healthy(1.0))
        fake.start_broker(0)
        fake.start_broker(1)
        await asyncio.sleep(10)
        assert await a.healthy()
        fake.control(ApiKey.HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        await tools.until(loop.task.done)
        assert "cannot consume any more" in str(await a.healthy())
        with pytest.raises(BrokerError):
            await loop.task
    assert str(await a.healthy()) == "the consumer is closed"


@virtual_time
async def test_a_topic_that_may_not_be_read_is_no_health(fake: FakeCluster, tools: Tools) -> None:
    """While its records are fetched, and while positions are looked for; not of other topics."""
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fake.create_topic("u", 1)
    t, u = TopicPartition("t", 0), TopicPartition("u", 0)
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([t, u])
        denial = fake.control(ApiKey.OFFSET_FETCH, denied, keep=True)
        with pytest.raises(AuthorizationError):
            await consumer.getone()
        health = await consumer.healthy()
        assert not health
        assert str(health).count("may not Read on the topic") == 1
        denial.remove()
        with pytest.raises(AuthorizationError):  # of the last answer
            await consumer.getone()
        assert not await consumer.getmany(timeout_ms=1000)
        assert await consumer.healthy()
        for _ in range(2):
            fake.fail_fetch("t", 0, denied)
            tools.fill(fake, 0, 1, "u")
            with pytest.raises(AuthorizationError):
                await consumer.getone(t)
            assert "may not Read on the topic 't'" in str(await consumer.healthy())
        assert (await consumer.getone(u)).offset == 0
        assert not await consumer.getmany(t, timeout_ms=2000)
        assert str(await consumer.healthy()) == "healthy"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@virtual_time
async def test_a_topic_that_may_not_be_described_is_no_health(
    fake: FakeCluster, tools: Tools, protocol: str
) -> None:
    fake.create_topic("u", 1)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = {**cluster_fields(fake), "topics": [{"name": "u", "error_code": denied}]}

    def deny(request: Request) -> dict[str, Any] | None:
        return answer if "u" in {each.name for each in request.message.topics or ()} else None

    async with tools.consumer(
        fake, group_id="g", topics=["t"], group_protocol=protocol
    ) as consumer:
        await consumer.wait_assigned()
        denials = [
            fake.control(ApiKey.METADATA, deny, keep=True),
            fake.control(ApiKey.CONSUMER_GROUP_HEARTBEAT, denied, keep=True),
        ]
        consumer.subscribe(["u"])
        await asyncio.sleep(10)
        health = await consumer.healthy()
        assert not health
        assert "the topic 'u'" in str(health)
        for each in denials:
            each.remove()
        await tools.until(lambda: consumer.assignment == {TopicPartition("u", 0)}, 10)
        assert await consumer.healthy()


@pytest.mark.parametrize("loop", ["__aiter__", "tracked", "batches"])
@virtual_time
async def test_a_loop_that_has_ended_with_an_error_is_no_health(
    fake: FakeCluster, tools: Tools, loop: str
) -> None:
    """Until another one takes records, or waits for them."""
    tools.fill(fake, 0, 3)
    async with tools.consumer(fake, auto_offset_reset="none") as consumer:
        consumer.assign([P[0]])
        for _ in range(2):
            with pytest.raises(NoOffsetError) as ended:
                await anext(getattr(consumer, loop)())
            health = await consumer.healthy()
            assert not health
            assert str(ended.value) in str(health)
        consumer.seek(P[0], 3)
        waits = asyncio.ensure_future(anext(getattr(consumer, loop)()))
        await asyncio.sleep(1)
        assert await consumer.healthy()
        tools.fill(fake, 0, 3)
        await waits
        assert await consumer.healthy()
