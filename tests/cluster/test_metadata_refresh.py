"""When metadata is refreshed, which brokers are asked, and what happens after failures."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient.wire.metadata as wire_metadata
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.api import TopicInfo
from tests.cluster.memory_cluster import Bench, benched, now

if TYPE_CHECKING:
    from kafkaclient.cluster.view import ClusterView


@benched(started=True)
async def test_a_crowd_asking_for_a_refresh_causes_one_request(b: Bench) -> None:
    await asyncio.sleep(5)
    for _ in range(100):
        b.metadata.request_refresh("leader moved")
    await asyncio.sleep(5)
    assert len(b.net.asked()) == 2


@benched(started=True)
async def test_those_who_ask_during_a_request_cause_one_more(b: Bench) -> None:
    await asyncio.sleep(5)
    b.metadata.request_refresh("first")
    await asyncio.sleep(0.0005)
    for _ in range(100):
        b.metadata.request_refresh("meanwhile")
    await asyncio.sleep(5)
    assert len(b.net.asked()) == 3


@benched(started=True)
async def test_fruitless_refreshes_slow_down_and_quiet_restores_the_pace(b: Bench) -> None:
    await asyncio.sleep(5)
    b.net.seen.clear()
    for _ in range(2000):
        b.metadata.request_refresh("again")
        await asyncio.sleep(0.005)
    times = [seen.at for seen in b.net.asked()]
    assert 8 <= len(times) <= 18
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] < 0.3
    assert gaps[-1] > 0.7
    await asyncio.sleep(5)
    b.net.seen.clear()
    b.metadata.request_refresh("now")
    await asyncio.sleep(0.01)
    b.metadata.request_refresh("and again")
    await asyncio.sleep(0.35)
    assert len(b.net.asked()) == 2


@benched()
async def test_a_refresh_reads_only_the_topics_that_have_changed(
    b: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"t{n}" for n in range(50)]
    for name in names:
        b.net.topic(name, 0, 1, 2)
    await b.metadata.start()
    await asyncio.gather(*(b.metadata.wait_topic(name, 10) for name in names))
    before, read, heard = dict(b.metadata.view.topics), [], []
    monkeypatch.setattr(
        wire_metadata,
        "TopicInfo",
        lambda name, *told: read.append(name) or TopicInfo(name, *told),
    )
    b.metadata.subscribe(lambda old, new: heard.append((old, new)))
    for _ in range(3):
        b.metadata.request_refresh("is anything new?")
        await asyncio.sleep(2)
    assert len(b.net.asked_topics()[-1]) == 50
    assert (read, heard) == ([], [])
    b.net.topic("t7", 0, 2, 2, epoch=1)
    b.metadata.request_refresh("is anything new?")
    await asyncio.sleep(2)
    assert (read, len(heard)) == (["t7"], 1)
    after = b.metadata.view.topics
    assert [name for name in names if after[name] is not before[name]] == ["t7"]


@benched()
async def test_a_refresh_of_many_topics_takes_several_requests(b: Bench) -> None:
    """No response keeps the event loop busy for long. A failure repeats the whole refresh."""
    names = sorted([f"t{n}" for n in range(50)])
    for name in names:
        b.net.topic(name, *[n % 3 for n in range(100)])
    b.net.topic("large", *[n % 3 for n in range(2100)])
    await b.metadata.start()
    await asyncio.gather(*(b.metadata.wait_topic(name, 10) for name in [*names, "large"]))
    await asyncio.sleep(5)
    b.net.seen.clear()
    await b.metadata.refresh()
    asked = b.net.asked_topics()
    assert sorted(name for names in asked for name in names) == ["large", *names]
    assert ["large"] in asked
    assert max(len(names) for names in asked) == 20
    assert b.metadata.refreshed_at > b.net.asked()[-1].at

    for name in [*names, "large"]:
        leaders = [(n + 1) % 3 for n in range(100 if name != "large" else 2100)]
        b.net.topic(name, *leaders, epoch=1)
    b.net.seen.clear()
    heard: list[int] = []

    def listener(old: ClusterView, new: ClusterView) -> None:
        heard.append(sum(old.topics[name] is not view for name, view in new.topics.items()))
        if len(heard) == 3:
            b.net.metadata_error = 41
            loop = asyncio.get_running_loop()
            loop.call_later(0.01, setattr, b.net, "metadata_error", 0)

    b.metadata.subscribe(listener)
    before = b.metadata.refreshed_at
    await b.metadata.refresh()
    assert sum(heard) == 51
    assert max(heard) == 2
    assert len(b.net.asked()) == 2 + len(asked), "the second response is an error"
    assert b.metadata.refreshed_at > before
    epochs = {p.leader_epoch for view in b.metadata.view.topics.values() for p in view.partitions}
    assert epochs == {1}


@benched()
async def test_a_refresh_that_fails_half_way_backs_off_as_any_other(
    b: Bench,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("large", "other"):
        b.net.topic(name, *[n % 3 for n in range(2100)])
    await b.metadata.start()
    await asyncio.gather(*(b.metadata.wait_topic(name, 10) for name in ("large", "other")))
    await asyncio.sleep(5)
    b.net.seen.clear()
    caplog.set_level("INFO")
    b.metadata.subscribe(lambda _old, _new: setattr(b.net, "metadata_error", 41))
    b.net.topic("large", *[n % 3 for n in range(2100)], epoch=1)
    began = now()
    b.metadata.request_refresh("test")
    for epoch in range(2, 12):  # the first request succeeds each time, the second never
        while b.net.metadata_error == 0:
            await asyncio.sleep(0.001)
        while len(b.net.asked()) % 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.002)
        b.net.metadata_error = 0
        b.net.topic("large", *[n % 3 for n in range(2100)], epoch=epoch)
    assert now() - began > 5, "the pause grows to a second"
    told = [r.levelname for r in caplog.records if "could not be fetched" in r.message]
    assert told == ["WARNING"]


@benched(metadata_max_age_ms=60_000, metadata_max_idle_ms=100_000)
async def test_a_topic_that_is_used_while_a_response_is_taken_up_is_kept(b: Bench) -> None:
    b.net.topic("t", 0)
    await b.metadata.start()
    await b.metadata.wait_topic("t", 10)
    released: list[bool] = []

    def release(name: str) -> bool:
        asyncio.get_running_loop().call_soon(
            lambda: released.append(name not in b.metadata.view.topics)
        )
        return True

    b.metadata._release = release
    await asyncio.sleep(200)
    assert released == [True], "its view is gone before anything else runs"


@benched(metadata_max_age_ms=60_000, metadata_max_idle_ms=100_000)
async def test_release_is_called_for_idle_topics_only(b: Bench) -> None:
    asked: list[tuple[str, float]] = []

    def release(name: str) -> bool:
        asked.append((name, now()))
        return name != "held"

    b.metadata._release = release
    for name in ("used", "held", "left"):
        b.net.topic(name, 0)
    await b.metadata.start()
    for name in ("used", "held", "left"):
        await b.metadata.wait_topic(name, 10)
    for _ in range(300):
        b.metadata.add_topic("used")
        await asyncio.sleep(1)
    assert set(b.metadata.view.topics) == {"used", "held"}
    assert [name for name, _ in asked].count("left") == 1
    assert [name for name, _ in asked].count("held") <= 3
    assert all(at > 100 for _, at in asked)
    assert "used" not in dict(asked)


@benched(metadata_max_age_ms=60_000, metadata_max_idle_ms=100_000)
async def test_only_topics_in_use_are_refreshed(b: Bench) -> None:
    for name in ("used", "left"):
        b.net.topic(name, 0)
    await b.metadata.start()
    await b.metadata.wait_topic("used", 10)
    await b.metadata.wait_topic("left", 10)
    b.net.seen.clear()
    for _ in range(300):
        b.metadata.add_topic("used")
        await asyncio.sleep(1)
    asked = b.net.asked_topics()
    assert 5 <= len(asked) <= 6
    assert asked[0] == ["left", "used"]
    assert asked[-1] == ["used"]
    assert set(b.metadata.view.topics) == {"used"}
    assert b.metadata.topic_error("left") is None


@benched()
async def test_a_leaderless_partition_is_looked_after(b: Bench) -> None:
    b.net.topic("t", 0, -1)
    await b.metadata.start()
    assert (await b.metadata.wait_topic("t", 10)).available == (0,)
    asyncio.get_running_loop().call_later(3, lambda: b.net.topic("t", 0, 1, epoch=1))
    await asyncio.sleep(4.5)
    assert b.metadata.view.topics["t"].available == (0, 1)
    requests = len(b.net.asked())
    assert requests < 12
    await asyncio.sleep(60)
    assert len(b.net.asked()) == requests


@benched(started=True)
async def test_failures_back_off_and_end(b: Bench, caplog: pytest.LogCaptureFixture) -> None:
    b.net.refusing.update(b.net.brokers.values())
    b.net.lose_all()
    await asyncio.sleep(0)
    b.metadata.request_refresh("test")
    await asyncio.sleep(30)
    assert sum("could not be fetched" in r.message for r in caplog.records if r.levelno >= 30) == 1
    assert b.metadata._schedule.failures > 5
    b.net.refusing.clear()
    b.net.topic("t", 0)
    before = now()
    await b.metadata.wait_topic("t", 10)
    assert now() - before < 2.5
    assert b.metadata._schedule.failures == 0


@benched(bootstrap="seed:9092")
async def test_a_cluster_that_moved_is_found_through_the_bootstrap_servers(b: Bench) -> None:
    b.net.brokers[9] = "seed:9092"
    await b.metadata.start()
    assert await b.produce_connection(0)
    b.net.brokers = {n: f"new{n}:9092" for n in range(3)} | {9: "seed:9092"}
    b.net.lose_all()
    b.metadata.request_refresh("connection lost")
    await asyncio.sleep(5)
    assert b.metadata.view.brokers[0].host == "new0"
    assert "new0" in (await b.produce_connection(0)).node


@benched(bootstrap="seed:9092")
async def test_a_broker_may_ask_for_a_new_bootstrap(b: Bench) -> None:
    b.net.brokers[9] = "seed:9092"
    await b.metadata.start()
    await asyncio.sleep(2)
    b.metadata.request_refresh("test")
    await asyncio.sleep(1)
    b.net.seen.clear()
    b.net.metadata_error = 129
    b.metadata.request_refresh("test")
    asyncio.get_running_loop().call_later(0.05, setattr, b.net, "metadata_error", 0)
    await asyncio.sleep(3)
    assert b.net.asked()[-1].address == "seed:9092"
    assert b.metadata._schedule.failures == 0


@pytest.mark.parametrize(("trigger_s", "strategy"), [(20, "rebootstrap"), (20, "none")])
@virtual_time
async def test_brokers_that_answer_nothing_any_more_are_given_up(
    trigger_s: int, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-1102: metadata.recovery.rebootstrap.trigger.ms; not with metadata.recovery.strategy=none,
    and the brokers that are known are asked as well: they may come back."""
    options = {
        "metadata.recovery.rebootstrap.trigger.ms": trigger_s * 1000,
        "metadata.recovery.strategy": strategy,
    }
    async with Bench(bootstrap="seed:9092", **options) as b:
        b.net.brokers[9] = "seed:9092"
        await b.metadata.start()
        del b.net.brokers[9]
        b.metadata.request_refresh("the seed is no broker of the cluster")
        await asyncio.sleep(5)
        b.net.seen.clear()
        b.net.mute = {f"b{n}:9092" for n in range(3)}
        b.net.brokers |= {9: "seed:9092", 10: "new0:9092"}
        b.metadata.request_refresh("test")
        first = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        asked = [seen.at - first for seen in b.net.asked() if seen.address == "seed:9092"]
        if strategy == "none":
            assert not asked
            assert 10 not in b.metadata.view.brokers
        else:
            assert trigger_s <= asked[0] < trigger_s + 65
            assert b.metadata.view.brokers[10].host == "new0"
            assert "asking the bootstrap servers again" in caplog.text
        b.net.mute.clear()
        await asyncio.sleep(70)
        assert b.metadata._schedule.failures == 0


@virtual_time
async def test_the_time_without_an_answer_counts_from_the_question() -> None:
    """KIP-1102: a broker that is waited for in vain is part of it."""
    options = {"metadata.recovery.rebootstrap.trigger.ms": 2000}
    async with Bench(bootstrap="seed:9092", **options) as b:
        b.net.brokers[9] = "seed:9092"
        await b.metadata.start()
        del b.net.brokers[9]
        b.metadata.request_refresh("the seed is no broker of the cluster")
        await asyncio.sleep(5)
        b.net.seen.clear()
        b.net.mute = {f"b{n}:9092" for n in range(3)}
        b.net.brokers |= {9: "seed:9092", 10: "new0:9092"}
        b.metadata.request_refresh("test")
        await asyncio.sleep(4)
        assert [seen.address for seen in b.net.asked()][-1] == "seed:9092"
        assert b.metadata.view.brokers[10].host == "new0"


@benched(bootstrap="seed:9092", metadata_recovery_strategy="none")
async def test_without_recovery_only_known_brokers_are_asked(b: Bench) -> None:
    b.net.brokers[9] = "seed:9092"
    await b.metadata.start()
    del b.net.brokers[9]
    b.metadata.request_refresh("the seed is no broker of the cluster")
    await asyncio.sleep(5)
    b.net.brokers = {9: "seed:9092"}
    b.net.lose_all()
    b.net.dials.clear()
    b.metadata.request_refresh("connection lost")
    await asyncio.sleep(30)
    assert b.metadata._schedule.failures > 5
    assert not [address for _, address in b.net.dials if address == "seed:9092"]


@benched(started=True)
async def test_an_answer_without_brokers_is_not_believed(b: Bench) -> None:
    b.net.forgets_brokers = True
    b.metadata.request_refresh("test")
    await asyncio.sleep(3)
    assert set(b.metadata.view.brokers) == {0, 1, 2}
    assert b.metadata._schedule.failures > 0


@benched()
async def test_a_paused_broker_does_not_hold_up_the_news(b: Bench) -> None:
    b.net.topic("t", 0)
    await b.metadata.start()
    await b.metadata.wait_topic("t", 10)
    (stuck,) = {pipe.address for pipe in b.net.pipes}
    b.net.silent.add(stuck)
    b.net.topic("t", 1, epoch=1)
    b.metadata.request_refresh("overdue")
    await asyncio.sleep(4)
    assert b.metadata.view.topics["t"].partitions[0].leader == 1


@benched(started=True)
async def test_an_unexpected_error_is_logged_and_survived(
    b: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(b.router, "metadata", broken)
        b.metadata.request_refresh("test")
        await asyncio.sleep(1)
    assert "unexpected" in caplog.text
    b.net.topic("t", 0)
    assert await b.metadata.wait_topic("t", 10)


@benched(started=True)
async def test_a_task_that_ends_by_itself_fails_its_waiters(
    b: Bench,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wait = asyncio.create_task(b.metadata.wait_topic("t", 10))
    await asyncio.sleep(0.01)
    b.metadata._task.cancel()
    with pytest.raises(Exception, match="ended unexpectedly"):
        await wait
    assert not caplog.records, "asyncio.run cancels all tasks at its end"
