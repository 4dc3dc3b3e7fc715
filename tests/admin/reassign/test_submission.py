"""What keeps a plan from beginning leaves nothing behind."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kafkaclient.admin.announcements import Announcement, Intent
from kafkaclient.errors import (
    AdminTimeoutError,
    AuthorizationError,
    BrokerError,
    PartitionLimitRaceError,
    PolicyViolationError,
    UnknownTopicError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, delay, delay_answer
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time
from tests.admin.reassign.test_operators import unthrottled

FOO0, FOO1, BAR0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)
SLOW = (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.INCREMENTAL_ALTER_CONFIGS)


async def replicas(admin, partition: TopicPartition) -> tuple[int, ...]:
    described = await admin.describe_topic(partition.topic)
    return described.partitions[partition.partition].replicas


@virtual_time
@pytest.mark.parametrize("quota", [1000, None])
async def test_a_limit_race_is_undone(fake, new_admin, configured, quota) -> None:
    """The later of two, or both, get an error, and their partitions keep their replicas. (Two with
    a quota begin one after the other.)"""
    async with new_admin() as one, new_admin() as two:
        await one.set_limits({"max.broker.partitions": 4})
        before = configured()
        fake.create_topic("full", assignments=[(4,)] * 3)
        fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: delay(0.2), keep=True)
        outcomes = await asyncio.gather(
            one.reassigner.begin({FOO0: [0, 1, 4]}, quota, additional=True),
            two.reassigner.begin({FOO1: [1, 2, 4]}, additional=True),
            return_exceptions=True,
        )
        errors = [each for each in outcomes if isinstance(each, Exception)]
        assert errors
        assert all(isinstance(each, PartitionLimitRaceError) for each in errors)
        assert "undone, because a concurrent change used the same capacity" in str(errors[0])
        assert len(await one.list_partition_reassignments()) == 2 - len(errors)
        for outcome, partition, was in zip(
            outcomes, (FOO0, FOO1), ((0, 1, 2), (1, 2, 3)), strict=True
        ):
            if isinstance(outcome, Exception):
                assert await replicas(one, partition) == was
        await one.reassigner.cancel()
        assert configured() == before


@virtual_time
async def test_a_limit_race_is_undone_also_for_moves_that_have_completed(fake, new_admin) -> None:
    """A small partition moves within milliseconds, before its move can be cancelled."""
    async with new_admin() as one, new_admin() as two:
        await one.set_limits({"max.broker.partitions": 4})
        fake.create_topic("full", assignments=[(4,)] * 3)
        fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: delay(0.2), keep=True)
        bad = []

        def arrive(_request) -> None:
            bad.extend(each for each in unthrottled(fake) if each.startswith("foo-0"))
            fake.finish_reassignments()

        fake.control(ApiKey.LIST_PARTITION_REASSIGNMENTS, arrive, keep=True)
        outcomes = await asyncio.gather(
            one.reassigner.begin({FOO0: [0, 1, 4]}, 1000, additional=True),
            two.reassigner.begin({FOO1: [1, 2, 4]}, additional=True),
            return_exceptions=True,
        )
        assert any(isinstance(each, PartitionLimitRaceError) for each in outcomes)
        fake.finish_reassignments()
        for outcome, partition, was, wanted in zip(
            outcomes, (FOO0, FOO1), ((0, 1, 2), (1, 2, 3)), ((0, 1, 4), (1, 2, 4)), strict=True
        ):
            there = await replicas(one, partition)
            assert there == (was if isinstance(outcome, Exception) else wanted)
        assert not bad  # the way back copies again, within the quota


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ],
    ids=lambda key: key.name,
)
@virtual_time
async def test_nothing_is_said_to_be_left_where_nothing_was_set(
    fake, new_admin, caplog, key
) -> None:
    async with new_admin() as admin:
        await admin.describe_topic("foo")
        fake.control(key, 31, keep=True)
        with pytest.raises(AuthorizationError):
            await admin.reassigner.begin({FOO0: [0, 1, 4]}, 1000)
    assert "was not removed" not in caplog.text


@pytest.mark.parametrize("quota", [1000, None])
@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65])
@in_virtual_time
async def test_cancelled_while_it_begins(fake, admin, configured, quota, after_s) -> None:
    for key in SLOW:
        fake.control(key, lambda _: delay(0.1), keep=True)
    beginning = asyncio.create_task(admin.reassigner.begin({FOO0: [3, 1, 4]}, quota))
    await asyncio.sleep(after_s)
    beginning.cancel()
    await asyncio.wait({beginning})
    if beginning.cancelled():
        assert await admin.list_partition_reassignments() == {}
        assert await replicas(admin, FOO0) == (0, 1, 2)
        assert configured() == {}


@pytest.mark.parametrize("after_s", [0.5, 2.5, 4.5, 6.5])
@in_virtual_time
async def test_cancelled_twice_while_it_begins(fake, admin, configured, after_s) -> None:
    for key in SLOW:
        fake.control(key, lambda _: delay(2), keep=True)
    beginning = asyncio.create_task(admin.reassigner.begin({FOO0: [3, 1, 4]}, 1000))
    await asyncio.sleep(after_s)
    beginning.cancel()
    await asyncio.sleep(0.1)
    beginning.cancel()
    await asyncio.wait({beginning})
    await asyncio.sleep(60)
    assert await admin.list_partition_reassignments() == {}
    assert await replicas(admin, FOO0) == (0, 1, 2)
    assert configured() == {}


@in_virtual_time
async def test_the_way_back_is_told_before_anything_is_changed(fake, admin, configured) -> None:
    told = []

    def tell(plan) -> None:
        assert {key: own for key, own in configured().items() if key} == {}  # but announced
        assert all(not topic.partitions[0].moving_to for topic in inspect(fake).topics.values())
        told.append(dict(plan.replicas))

    plan = {FOO0: [0, 1, 3], BAR0: [3, 2, 0]}
    await admin.reassigner.begin(plan, 1000, on_rollback=tell)
    assert told == [{FOO0: (0, 1, 2), BAR0: (3, 2, 1)}]
    await admin.reassigner.cancel()

    def cannot(_plan) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        await admin.reassigner.begin(plan, 1000, on_rollback=cannot)
    with pytest.raises(OSError, match="no space"):
        async with admin.throttled(plan, bytes_per_second=1000, on_rollback=cannot):
            raise AssertionError("it has begun")
    assert await admin.list_partition_reassignments() == {}
    assert configured() == {}


async def test_a_refusal_by_limits_is_told_before_the_way_back(admin, configured) -> None:
    await admin.set_limits({"max.broker.partitions": 1})
    before = configured()
    with pytest.raises(PolicyViolationError):
        await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000, on_rollback=pytest.fail)
    assert configured() == before


# --- operators who wait for each other -----------------------------------------------------------


def announcements(configured) -> list[Announcement]:
    return Announcement.all_of(configured().get("", {}))


@virtual_time
async def test_clearing_waits_for_a_plan_that_begins(fake, new_admin, configured) -> None:
    async with new_admin() as one, new_admin() as two:
        await one.reassigner.begin({BAR0: [3, 2, 0]}, 1000)
        fake.finish_reassignments()
        fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: delay(3))
        beginning = asyncio.create_task(two.reassigner.begin({FOO0: [0, 1, 3]}, 1000))
        await asyncio.sleep(1)
        assert [each.intent for each in announcements(configured)] == [Intent.SETTING]
        told = await one.reassigner.verify({BAR0: (3, 2, 0)})
        assert beginning.done()
        assert told.lifted.topics == ("bar",)
        assert told.lifted.needed_topics == ("foo",)
        assert unthrottled(fake) == []
        await one.reassigner.cancel()
        assert configured() == {}


@virtual_time
@pytest.mark.parametrize("additional", [True, False])
async def test_of_two_plans_the_later_reads_the_replicas_after_the_earlier_has_begun(
    fake, new_admin, additional
) -> None:
    """The later would move the partition and be done, while the earlier sets its throttles for the
    replicas from before."""
    async with new_admin() as one, new_admin(rng=Random(2)) as two:
        fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: delay(3))
        earlier = asyncio.create_task(one.reassigner.begin({FOO0: [1, 2, 3]}, 1000))
        await asyncio.sleep(1)
        plan = {FOO0: [3, 4, 0]}
        later = asyncio.create_task(two.reassigner.begin(plan, 1000, additional=additional))
        await asyncio.sleep(1)
        fake.finish_reassignments()
        await earlier
        assert unthrottled(fake) == []
        if additional:
            await later
            assert unthrottled(fake) == []
            assert inspect(fake).partition(*FOO0).moving_to == [3, 4, 0]
        else:
            with pytest.raises(BrokerError, match="already in progress"):
                await later


@in_virtual_time
async def test_the_move_whose_target_is_replaced_may_complete_before(
    fake, admin, configured
) -> None:
    before = configured()
    await admin.reassigner.begin({FOO0: [3, 4, 0]}, 1000)
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: delay(3))
    again = asyncio.create_task(admin.reassigner.begin({FOO0: [1, 2, 3]}, 1000, additional=True))
    await asyncio.sleep(1)
    fake.finish_reassignments()
    await again
    assert inspect(fake).partition(*FOO0).moving_from == [3, 4, 0]
    assert unthrottled(fake) == []
    fake.finish_reassignments()
    await admin.reassigner.verify({FOO0: [1, 2, 3]})
    assert configured() == before


@in_virtual_time
async def test_who_died_while_it_set_throttles_is_waited_for_once(fake, admin, configured) -> None:
    await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
    fake.finish_reassignments()
    inspect(fake).broker_configs[""] = {"kafkaclient.throttle.setting.300.00aa": "1"}
    told = await admin.reassigner.verify({FOO0: (0, 1, 3)})
    (why,) = told.lifted.failures.values()
    assert "expires at 1970-01-01 00:05:00 UTC" in str(why)
    assert configured()["foo"]
    await asyncio.sleep(300)
    told = await admin.reassigner.verify({FOO0: (0, 1, 3)})
    assert told.lifted.topics == ("foo",)
    assert configured() == {}


@in_virtual_time
async def test_a_plan_waits_for_who_died_while_it_set_throttles(fake, admin) -> None:
    inspect(fake).broker_configs[""] = {"kafkaclient.throttle.setting.100.00aa": "1"}
    with pytest.raises(AdminTimeoutError, match=r"is setting .* 00:01:40 UTC"):
        await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
    assert await admin.list_partition_reassignments() == {}
    begun = await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
    assert asyncio.get_running_loop().time() >= 100
    assert begun.started == {FOO0}


@in_virtual_time
async def test_what_is_only_an_announcement_of_the_dead_goes_too(fake, admin, configured) -> None:
    inspect(fake).broker_configs[""] = {"kafkaclient.throttle.clearing.5.00aa": "1"}
    await asyncio.sleep(6)
    await admin.replication_quotas.clear()
    assert configured() == {}


@in_virtual_time
async def test_a_look_that_finds_nothing_to_do_changes_nothing(fake, admin) -> None:
    """By cron, and by a principal that may only read."""
    await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
    fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, 31, keep=True)
    told = await admin.reassigner.verify({FOO0: (0, 1, 3)})
    assert told.lifted.failures == {}
    assert told.lifted.needed_topics == ("foo",)
    assert (await admin.replication_quotas.clear()).failures == {}


@in_virtual_time
async def test_all_throttles_are_not_deleted_while_something_moves(fake, admin, configured) -> None:
    await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
    inspect(fake).topics["bar"].configs["leader.replication.throttled.replicas"] = "0:3"
    told = await admin.replication_quotas.clear(everyone=True)
    assert "a reassignment is in progress" in str(told.failures["other operators"])
    assert unthrottled(fake) == []
    await admin.replication_quotas.clear(everyone=True, keep_needed=False)
    assert configured() == {}


@virtual_time
async def test_an_answer_that_does_not_come(fake, new_admin, configured) -> None:
    """The controller does not hear of the moves, and is asked whether it did."""
    async with new_admin(default_api_timeout_ms=2000) as admin:
        control = fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, DROP)
        with pytest.raises(TimeoutError):
            await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1000)
        control.remove()
        assert await admin.list_partition_reassignments() == {}
        assert configured() == {}


@in_virtual_time
async def test_a_plan_that_leaves_fewer_replicas_in_sync_is_refused(
    fake, admin, configured
) -> None:
    """foo-0 is on 0, 1 and 2, and broker 2 is down: to keep 2 and remove 1 leaves one in sync."""
    fake.stop_broker(2)
    weak = {FOO0: [0, 2]}
    seen = []
    with pytest.raises(BrokerError, match="--allow-fewer-in-sync") as refused:
        await admin.reassigner.begin(weak, 1000, on_rollback=seen.append)
    assert "foo-0" in str(refused.value)
    assert not seen
    assert configured() == {}
    assert not fake.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    # As many replicas are in sync at the end, or all that stay are.
    for nodes in ([0, 2, 3], [0, 1], [1], [0, 1, 2], [2, 1, 0]):
        begun = await admin.reassigner.begin({FOO0: nodes}, additional=True)
        assert begun.failed == {}
        await admin.reassigner.undo(begun)
        assert await replicas(admin, FOO0) == begun.before[FOO0] or len(nodes) == 3
    begun = await admin.reassigner.begin(weak, allow_fewer_in_sync=True)
    assert begun.started == {FOO0}


@in_virtual_time
async def test_a_lagging_replica_counts_as_a_dead_one(fake, admin) -> None:
    fake.set_isr("foo", 0, [0, 1])
    with pytest.raises(BrokerError, match="lag stay"):
        await admin.reassigner.begin({FOO0: [2, 1]})
    assert (await admin.reassigner.begin({FOO0: [2, 1, 3]})).started == {FOO0}
    # The new replica 3 need not be in sync for another change: it is so at the end.
    weaker = {FOO0: [1, 3]}
    assert (await admin.reassigner.begin(weaker, additional=True)).started == {FOO0}


@in_virtual_time
async def test_the_rest_is_undone_when_a_topic_was_deleted(fake, admin) -> None:
    begun = await admin.reassigner.begin({FOO0: [0, 1, 4], BAR0: [3, 2, 4]}, 1000)
    await admin.delete_topics(["bar"])
    assert await admin.reassigner.undo(begun) == {}
    assert await replicas(admin, FOO0) == (0, 1, 2)
    told = await admin.reassigner.verify(begun.plan)
    assert str(told.partitions[0]) == "Partition bar-0 does not exist."
    failures = await admin.reassigner.failures(begun)
    assert "bar-0 no longer exists: its topic was deleted" in str(failures[BAR0])
    with pytest.raises(UnknownTopicError, match="reassigning partition bar-0"):
        await admin.reassigner.begin({BAR0: [3, 2, 4]})


# --- partitions that have arrived when they are undone -------------------------------------------


async def began(fake) -> None:
    while not inspect(fake).partition(*FOO0).moving_to:
        await asyncio.sleep(0.01)


@virtual_time
@pytest.mark.parametrize("at", ["the end", "the answer", "the cancellation"])
@pytest.mark.parametrize("wanted", [[4, 0, 1], [0, 1]], ids=str)
async def test_what_had_arrived_moves_back_within_the_quota(
    fake, new_admin, configured, caplog, at, wanted
) -> None:
    """Interrupted while it begins: after its moves have begun; before it knows of that; and a
    partition that arrives while its move is being cancelled."""
    async with new_admin() as one, new_admin(rng=Random(2)) as two:
        await one.reassigner.begin({BAR0: [3, 2, 0]}, 1000)
        fake.finish_reassignments()  # the other operator has something to clear

        def on_alter(request) -> object:
            if request.message.topics[0].partitions[0].replicas is None:
                return fake.finish_reassignments() if at == "the cancellation" else None
            if at == "the answer":
                return delay_answer(4)
            fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda _: delay(1))  # it withdraws
            return None

        fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, on_alter, keep=True)
        beginning = asyncio.create_task(
            one.reassigner.begin({FOO0: wanted, FOO1: [4, 2, 3]}, 1000, additional=True)
        )
        await began(fake)
        verifying = asyncio.create_task(two.reassigner.verify({BAR0: (3, 2, 0)}))
        await asyncio.sleep(0.3)
        if at != "the cancellation":
            fake.finish_reassignments()
        beginning.cancel()
        await asyncio.wait({beginning, verifying})
        assert beginning.cancelled()
        assert inspect(fake).partition(*FOO0).moving_to == [0, 1, 2]
        assert unthrottled(fake) == []
        assert "foo-0, foo-1: moving back within the quota" in caplog.text
        fake.finish_reassignments()
        await two.replication_quotas.clear()
        assert configured() == {}
        assert await replicas(one, FOO0) == (0, 1, 2)


@in_virtual_time
async def test_what_cannot_be_throttled_does_not_move_back(fake, admin, configured, caplog) -> None:
    """Another operator died while it set throttles."""

    def on_alter(_request) -> None:
        fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda _: delay(1))  # it withdraws

    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, on_alter)
    beginning = asyncio.create_task(admin.reassigner.begin({FOO0: [4, 0, 1]}, 1000))
    await began(fake)
    fake.finish_reassignments()
    inspect(fake).broker_configs[""]["kafkaclient.throttle.setting.300.00aa"] = "1"
    beginning.cancel()
    await asyncio.wait({beginning})
    assert beginning.cancelled()
    assert "could not be undone" in caplog.text
    assert await replicas(admin, FOO0) == (4, 0, 1)
    assert unthrottled(fake) == []
    await asyncio.sleep(300)
    await admin.replication_quotas.clear()
    assert configured() == {}


@in_virtual_time
async def test_undoing_a_plan_whose_partition_had_first_arrived_elsewhere_is_throttled(
    fake, admin, configured
) -> None:
    """The first move was complete before its target was replaced: the way back copies."""
    await admin.reassigner.begin({FOO0: [3, 4, 0]}, 1000)
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: delay(3))
    again = asyncio.create_task(admin.reassigner.begin({FOO0: [3, 0, 1]}, 1000, additional=True))
    await asyncio.sleep(1)
    fake.finish_reassignments()
    assert await admin.reassigner.undo(await again) == {}
    assert sorted(inspect(fake).partition(*FOO0).moving_from) == [0, 3, 4]
    assert inspect(fake).partition(*FOO0).moving_to == [0, 1, 2]
    assert unthrottled(fake) == []
    fake.finish_reassignments()
    await admin.replication_quotas.clear()
    assert configured() == {}


@in_virtual_time
async def test_what_arrives_while_it_is_undone_stays(fake, admin, configured) -> None:
    begun = await admin.reassigner.begin({FOO0: [4, 0, 1]}, 1000)
    fake.control(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: fake.finish_reassignments(), keep=True
    )
    assert await admin.reassigner.undo(begun) == {}
    assert await replicas(admin, FOO0) == (4, 0, 1)
    assert await admin.list_partition_reassignments() == {}
    assert configured() == {}
