"""Bootstrap, coalescing, pace, topics that do not exist, hints, the end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from kafkaclient.cluster.view import LeaderHint
from kafkaclient.errors import (
    AuthorizationError,
    BootstrapError,
    BrokerError,
    InvalidTopicError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.api import BrokerInfo
from tests.cluster.memory_cluster import Bench, benched, now

BOTH = pytest.mark.parametrize("auto_create", [True, False])


# --- start ------------------------------------------------------------------------------------


@benched(started=True, bootstrap="dead:1,b1:9092")
async def test_start_fetches_the_brokers(b: Bench) -> None:
    await b.metadata.start()
    assert set(b.metadata.view.brokers) == {0, 1, 2}
    assert b.metadata.view.cluster_id == "mem"
    assert b.net.asked_topics() == [[]]
    assert await b.produce_connection(2)


@benched(bootstrap="dead:1,gone:2", max_block_ms=5000)
async def test_start_ends_by_max_block_and_says_why(b: Bench) -> None:
    with pytest.raises(BootstrapError, match=r"dead:1, gone:2.*within 5 s.*refused") as caught:
        await b.metadata.start()
    assert now() == 5.0
    assert caught.value.retriable
    assert b.metadata._task is None


@benched()
async def test_start_waits_for_a_cluster_that_comes_up_late(b: Bench) -> None:
    b.net.refusing.add("b0:9092")
    asyncio.get_running_loop().call_later(7, b.net.refusing.clear)
    await b.metadata.start()
    assert 7 < now() < 8.5


@benched()
async def test_start_fails_at_once_when_no_retry_can_help(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedVersionError("no common version of METADATA")

    monkeypatch.setattr(b.router, "metadata", refuse)
    with pytest.raises(UnsupportedVersionError):
        await b.metadata.start()
    assert now() < 1


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.0015, 0.0025])
@benched()
async def test_a_cancelled_start_leaves_nothing(b: Bench, after: float) -> None:
    start = asyncio.create_task(b.metadata.start())
    await asyncio.sleep(after)
    start.cancel()
    await asyncio.wait({start})
    assert start.cancelled()
    assert b.metadata._task is None


# --- topics -----------------------------------------------------------------------------------


@benched()
async def test_a_new_topic_is_fetched_at_once_and_alone(b: Bench) -> None:
    b.net.topic("a", 0, 1)
    b.net.topic("b", 2)
    await b.metadata.start()
    before = now()
    topic = await b.metadata.wait_topic("a", 10)
    assert topic.partition_count == 2
    await b.metadata.wait_topic("b", 10)
    assert now() - before < 0.02
    assert b.net.asked_topics() == [[], ["a"], ["b"]]
    assert await b.metadata.wait_topic("a", 0) is topic
    assert len(b.net.asked()) == 3


@benched()
async def test_many_new_topics_share_a_request(b: Bench) -> None:
    names = [f"t{n:02}" for n in range(50)]
    for name in names:
        b.net.topic(name, 0)
    await b.metadata.start()
    await asyncio.gather(*(b.metadata.wait_topic(name, 10) for name in names for _ in "12"))
    assert b.net.asked_topics() == [[], names]


@benched()
async def test_a_topic_added_before_start_is_in_the_first_request(b: Bench) -> None:
    b.net.topic("a", 0)
    b.metadata.add_topic("a")
    await b.metadata.start()
    assert b.net.asked_topics() == [["a"]]
    assert "a" in b.metadata.view.topics


@BOTH
@virtual_time
async def test_an_unknown_topic_is_awaited_with_backoff_until_the_limit(auto_create: bool) -> None:
    async with Bench(allow_auto_create_topics=auto_create, max_block_ms=10_000) as b:
        b.net.topic("good", 0)
        await b.metadata.start()
        before = now()
        with pytest.raises(MetadataTimeoutError) as caught:
            await b.metadata.wait_topic("nope", 10)
        assert now() - before == pytest.approx(10)
        text = str(caught.value)
        assert "'nope'" in text
        assert "within 10 s (max.block.ms)" in text
        assert "UNKNOWN_TOPIC_OR_PARTITION" in text
        assert ("auto.create.topics.enable" in text) == auto_create
        assert isinstance(b.metadata.topic_error("nope"), UnknownTopicError)
        asked = [seen for seen in b.net.asked() if seen.message.topics]
        assert all(seen.message.allow_auto_topic_creation == auto_create for seen in asked)
        gaps = [later.at - earlier.at for earlier, later in pairwise(asked)]
        assert gaps[0] < 0.15
        assert all(0.75 <= gap <= 1.1 for gap in gaps[5:])
        assert await b.metadata.wait_topic("good", 10)


@benched(started=True)
async def test_a_topic_that_the_brokers_create_arrives(b: Bench) -> None:
    b.net.topics["new"] = 5
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, b.net.topic, "new", 0, 1)
    topic = await b.metadata.wait_topic("new", 10)
    assert topic.partition_count == 2
    assert 1.0 < now() < 2.2
    assert b.metadata.topic_error("new") is None


@benched()
async def test_a_cluster_that_starts_is_awaited(b: Bench) -> None:
    """INVALID_REPLICATION_FACTOR: too few brokers are there to create the topic."""
    b.net.topics["new"] = 38
    await b.metadata.start()
    waiting = asyncio.create_task(b.metadata.wait_topic("new", 10))
    await asyncio.sleep(5)
    b.net.topic("new", 0)
    assert (await waiting).name == "new"


@pytest.mark.parametrize(("code", "kind"), [(29, AuthorizationError), (17, BrokerError)])
@benched()
async def test_what_waiting_cannot_mend_fails_at_once_for_its_own_waiters(
    b: Bench, code: int, kind: type[BrokerError]
) -> None:
    b.net.topics["bad"] = code
    b.net.topics["slow"] = 5
    await b.metadata.start()
    slow = asyncio.create_task(b.metadata.wait_topic("slow", 10))
    with pytest.raises(kind, match="'bad'") as caught:
        await b.metadata.wait_topic("bad", 10)
    assert caught.value.code == code
    assert now() < 0.1
    requests = len(b.net.asked())
    with pytest.raises(kind):  # a recent answer: no request
        await b.metadata.wait_topic("bad", 10)
    assert len(b.net.asked()) == requests
    b.net.topic("slow", 0)
    assert (await slow).name == "slow"
    await asyncio.sleep(30)
    assert sum("bad" in names for names in b.net.asked_topics()) == 1
    b.net.topic("bad", 0)
    assert (await b.metadata.wait_topic("bad", 10)).name == "bad"
    assert b.metadata.topic_error("bad") is None


@benched()
async def test_a_known_topic_survives_a_broker_that_does_not_know_it(b: Bench) -> None:
    b.net.topic("t", 0)
    await b.metadata.start()
    known = await b.metadata.wait_topic("t", 10)
    del b.net.topics["t"]
    b.metadata.request_refresh("test")
    await asyncio.sleep(1)
    assert b.metadata.view.topics["t"] is known
    assert isinstance(b.metadata.topic_error("t"), UnknownTopicError)


@benched()
async def test_a_known_topic_can_be_asked_for_afresh(b: Bench) -> None:
    b.net.topic("t", 0)
    await b.metadata.start()
    assert (await b.metadata.wait_topic("t", 10)).partition_count == 1
    b.net.topic("t", 0, 0, 0)
    assert (await b.metadata.wait_topic("t", 10)).partition_count == 1
    assert (await b.metadata.wait_topic("t", 10, fresh=True)).partition_count == 3


@benched()
async def test_a_known_topic_can_be_fetched_again(b: Bench) -> None:
    with pytest.raises(ProducerStateError):
        await b.metadata.refresh()
    await b.metadata.start()
    b.net.topic("t", 0)
    await b.metadata.wait_topic("t", 10)
    b.net.topic("t", 0, 0, 0)
    await asyncio.sleep(5)
    await b.metadata.refresh(max_age_s=5.5)
    assert b.metadata.view.topics["t"].partition_count == 1
    b.net.topic("new", 0)
    await b.metadata.wait_topic("new", 10)  # which tells of this topic only
    await b.metadata.refresh(max_age_s=4.5)
    assert b.metadata.view.topics["t"].partition_count == 3
    b.net.topic("t", 0, 0, 0, 0)
    await asyncio.gather(*(b.metadata.refresh() for _ in range(3)))
    assert b.metadata.view.topics["t"].partition_count == 4
    assert sorted(b.net.asked_topics()[-1]) == ["new", "t"]


@benched(started=True, max_block_ms=3000)
async def test_a_fresh_request_does_not_wait_forever(b: Bench) -> None:
    b.net.silent = set(b.net.brokers.values())
    began = now()
    with pytest.raises(MetadataTimeoutError, match=r"within 3 s \(max.block.ms\)"):
        await b.metadata.refresh()
    assert now() == began + 3


@benched(started=True)
async def test_a_stop_ends_a_fresh_request(b: Bench) -> None:
    b.net.silent = set(b.net.brokers.values())
    refreshing = asyncio.create_task(b.metadata.refresh())
    await asyncio.sleep(1)
    began = now()
    await b.metadata.stop()
    with pytest.raises(ProducerClosedError, match="closed while it fetched metadata"):
        await refreshing
    assert now() == began


@benched(started=True)
async def test_a_wait_for_a_topic_may_be_cancelled(b: Bench) -> None:
    waits = [asyncio.create_task(b.metadata.wait_topic("t", 10)) for _ in range(3)]
    await asyncio.sleep(0.05)
    waits[1].cancel()
    b.net.topic("t", 0)
    await asyncio.wait(waits)
    assert waits[1].cancelled()
    assert waits[0].result() == waits[2].result()


@benched()
async def test_waiting_needs_a_started_metadata(b: Bench) -> None:
    with pytest.raises(ProducerStateError):
        await b.metadata.wait_topic("t", 10)
    await b.metadata.start()
    wait = asyncio.create_task(b.metadata.wait_topic("t", 10))
    await asyncio.sleep(0.05)
    await b.metadata.stop()
    with pytest.raises(ProducerClosedError, match="'t'"):
        await wait
    with pytest.raises(ProducerStateError):
        await b.metadata.wait_topic("t", 10)


@benched(started=True)
async def test_a_timeout_while_no_broker_answers_names_that_cause(b: Bench) -> None:
    b.net.refusing.update(b.net.brokers.values())
    b.net.lose_all()
    with pytest.raises(MetadataTimeoutError, match=r"refused.*can be reached"):
        await b.metadata.wait_topic("t", 5)


# --- hints and listeners ----------------------------------------------------------------------


@benched()
async def test_hints_change_the_view_without_a_request(b: Bench) -> None:
    b.net.topic("t", 0, 1)
    await b.metadata.start()
    await b.metadata.wait_topic("t", 10)
    news: list[Any] = []
    b.metadata.subscribe(lambda old, new: news.append((old, new)))
    requests = len(b.net.asked())
    old = b.metadata.view
    b.metadata.apply_leaders([LeaderHint("t", 0, 7, 3)], [BrokerInfo(7, "b7", 9092, None)])
    assert news == [(old, b.metadata.view)]
    assert b.metadata.view.topics["t"].partitions[0].leader == 7
    assert b.router.produce_connection(7) is None  # known, and being dialed
    b.metadata.apply_leaders([LeaderHint("t", 0, 7, 3)])
    assert len(news) == 1
    assert len(b.net.asked()) == requests


@benched()
async def test_listeners_hear_of_changes_and_topic_errors_only(
    b: Bench,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[tuple[Any, Any]] = []

    def broken(*_: Any) -> None:
        raise RuntimeError("listener broke")

    b.metadata.subscribe(broken)
    b.metadata.subscribe(lambda old, new: heard.append((old, new)))
    await b.metadata.start()
    assert len(heard) == 1
    b.net.topic("t", 0)
    await b.metadata.wait_topic("t", 10)
    assert len(heard) == 2
    await asyncio.sleep(2)
    b.metadata.request_refresh("nothing new")
    await asyncio.sleep(2)
    assert len(heard) == 2
    b.net.topics["bad"] = 29
    b.metadata.add_topic("bad")
    await asyncio.sleep(0.1)
    assert len(heard) == 3
    assert "listener broke" in caplog.text


@benched()
async def test_a_topic_that_was_created_again_is_taken_over(b: Bench) -> None:
    b.net.topic("t", 0, 1, epoch=9)
    await b.metadata.start()
    await b.metadata.wait_topic("t", 10)
    b.net.topic("t", 2, epoch=0, topic_id=2)
    b.metadata.request_refresh("test")
    await asyncio.sleep(1)
    (partition,) = b.metadata.view.topics["t"].partitions
    assert (partition.leader, partition.leader_epoch) == (2, 0)


@benched()
async def test_a_waiter_gets_what_is_known_when_it_goes_on(b: Bench) -> None:
    """A hint between the answer and the waiter's turn is newer than the answer."""
    b.net.topic("t", 0)
    await b.metadata.start()
    waiting = asyncio.create_task(b.metadata.wait_topic("t", 10))
    b.metadata.subscribe(
        lambda _old, _new: asyncio.get_running_loop().call_soon(
            b.metadata.apply_leaders, [LeaderHint("t", 0, 1, 5)]
        )
    )
    assert (await waiting).partitions[0].leader == 1


@benched()
async def test_afresh_means_asked_for_after_the_call(b: Bench) -> None:
    """A request that is under way may have been answered before the topic grew."""
    b.net.topic("t", 0)
    await b.metadata.start()
    await b.metadata.wait_topic("t", 10)
    await asyncio.sleep(5)
    b.metadata.request_refresh("any")
    await asyncio.sleep(0.0005)
    assert len(b.net.asked()) == 3
    b.net.topic("t", 0, 0, 0)
    assert (await b.metadata.wait_topic("t", 10, fresh=True)).partition_count == 3


@pytest.mark.parametrize("number", [-1, 200_000_000])
@benched()
async def test_partitions_that_cannot_be_concern_their_topic_only(b: Bench, number: int) -> None:
    """Callers that wait get the reason; another broker, or the same one later, may answer."""
    b.net.topic("odd", 0)
    b.net.topics["odd"]["partitions"][0]["partition_index"] = number
    b.net.topic("t", 0, 1)
    await b.metadata.start()
    waiting = asyncio.create_task(b.metadata.wait_topic("odd", 30))
    assert (await b.metadata.wait_topic("t", 5)).partition_count == 2
    with pytest.raises(MetadataTimeoutError, match=f"numbered {number}"):
        await b.metadata.wait_topic("odd", 3)
    assert len(b.net.asked()) < 20, "asked again after pauses"
    b.net.topic("odd", 0)
    assert (await waiting).partition_count == 1


@benched(started=True)
async def test_a_name_that_cannot_be_is_never_asked_for(b: Bench) -> None:
    for name in ("\ud800", "a b", ""):
        with pytest.raises(InvalidTopicError):
            b.metadata.add_topic(name)
        with pytest.raises(InvalidTopicError):
            await b.metadata.wait_topic(name, 5)
    b.metadata.request_refresh("now")
    await asyncio.sleep(1)
    assert b.net.asked_topics() == [[], []]
