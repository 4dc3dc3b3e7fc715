"""``async with admin.throttled(...)`` on the fake cluster."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.admin import ConfigResource
from kafkaclient.admin.reassign.outcome import FOLLOWER_REPLICAS, LEADER_REPLICAS, MARK
from kafkaclient.errors import AdminStateError, BrokerError, ReassignmentError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import delay
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time

FOO1 = TopicPartition("foo", 1)
FOO0, BAZ0 = TopicPartition("foo", 0), TopicPartition("baz", 0)
PLAN = {FOO0: [0, 1, 3], BAZ0: [1, 0, 4]}


async def replicas(admin, partition: TopicPartition) -> tuple[int, ...]:
    described = await admin.describe_topic(partition.topic)
    return described.partitions[partition.partition].replicas


@in_virtual_time
async def test_to_its_end(fake, admin, configured) -> None:
    async with admin.throttled(PLAN, bytes_per_second=1000) as moves:
        assert moves.begun.before == {FOO0: (0, 1, 2), BAZ0: (1, 0, 2)}
        assert "0" in configured()
        assert await moves.set_quota(2000) == dict.fromkeys([0, 1, 2, 3, 4])
        asyncio.get_running_loop().call_later(5, fake.finish_reassignments)
    assert configured() == {}
    assert await replicas(admin, FOO0) == (0, 1, 3)


@virtual_time
async def test_progress_ends_with_the_moves(fake_virtual) -> None:
    fake, admin = fake_virtual
    async with admin, admin.throttled(PLAN, bytes_per_second=1000) as moves:
        asyncio.get_running_loop().call_later(5, fake.finish_reassignments)
        looks = [progress.done async for progress in moves.progress()]
    assert looks[0] == 0
    assert looks[-1] == 2
    assert 4 <= len(looks) <= 8


@in_virtual_time
async def test_an_exception_undoes_it(admin, configured) -> None:
    with pytest.raises(ZeroDivisionError):
        async with admin.throttled(PLAN, bytes_per_second=1000):
            raise ZeroDivisionError
    assert configured() == {}
    assert await admin.list_partition_reassignments() == {}
    assert await replicas(admin, FOO0) == (0, 1, 2)


@in_virtual_time
async def test_what_has_arrived_stays_when_the_rest_is_undone(fake, admin, configured) -> None:

    async def move() -> None:
        async with admin.throttled(PLAN, bytes_per_second=1000):
            inspect(fake).partition("foo", 0).finish_reassignment()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await move()
    assert configured() == {}
    assert await replicas(admin, FOO0) == (0, 1, 3)
    assert await replicas(admin, BAZ0) == (1, 0, 2)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 60.0])
def test_cancelled_at_any_time(fake_virtual, configured, after_s) -> None:
    """While throttles are set, while moves begin, while it waits for their end."""
    fake, admin = fake_virtual

    @virtual_time
    async def run() -> None:
        async with admin:
            for key in (
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ):
                fake.control(key, lambda _: delay(0.1), keep=True)

            async def move() -> None:
                async with admin.throttled(PLAN, bytes_per_second=1000):
                    pass

            task = asyncio.create_task(move())
            await asyncio.sleep(after_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert configured() == {}
            assert await admin.list_partition_reassignments() == {}

    run()


@in_virtual_time
async def test_what_somebody_else_cancelled_is_told_at_the_end(fake, admin, configured) -> None:

    async def move() -> None:
        async with admin.throttled(PLAN, bytes_per_second=1000):
            await admin.alter_partition_reassignments({FOO0: None})
            asyncio.get_running_loop().call_later(5, fake.finish_reassignments)

    with pytest.raises(ReassignmentError, match="1 partitions did not get") as caught:
        await move()
    assert caught.value.failures.keys() == {FOO0}
    assert "0,1,2 rather than 0,1,3" in str(caught.value)
    assert configured() == {}


@in_virtual_time
async def test_what_the_controller_refuses_is_told_at_the_end(fake, admin) -> None:
    fake.stop_broker(4)
    with pytest.raises(BrokerError, match="Unknown broker id 4"):
        async with admin.throttled(PLAN, bytes_per_second=1000):
            raise AssertionError("it has begun")

    async def move() -> None:
        async with admin.throttled(PLAN, bytes_per_second=1000, skip_dead=True) as moves:
            assert moves.begun.started == {FOO0}
            asyncio.get_running_loop().call_later(5, fake.finish_reassignments)

    with pytest.raises(ReassignmentError, match="broker 4 is down") as caught:
        await move()
    assert caught.value.failures.keys() == {BAZ0}


@in_virtual_time
async def test_a_broker_that_comes_back_gets_its_quota(fake, admin, configured) -> None:
    fake.stop_broker(2)
    async with admin.throttled(PLAN, bytes_per_second=1000) as moves:
        assert moves.begun.unthrottled.keys() == {2}
        fake.start_broker(2)
        asyncio.get_running_loop().call_later(10, fake.finish_reassignments)
        async for _ in moves.progress():
            if not moves.begun.unthrottled:
                break
        assert configured()["2"].keys() == configured()["0"].keys()
    assert configured() == {}


def throttled(configured, topic: str) -> tuple[str | None, str | None]:
    """The lists of a topic, leader's and follower's."""
    own = configured().get(topic, {})
    return own.get(LEADER_REPLICAS), own.get(FOLLOWER_REPLICAS)


def test_a_replica_that_is_about_to_arrive_is_let_go(
    fake_virtual, configured, write_records
) -> None:
    """On both sides, and nothing but what this package set."""
    fake, admin = fake_virtual
    plan = {FOO0: [0, 3, 4], FOO1: [1, 2, 4]}

    @virtual_time
    async def run() -> None:
        await write_records("foo", 0, 12, nbytes=100_000)  # more than a fetch brings
        await write_records("foo", 1, 12, nbytes=100_000)
        async with admin:
            await admin.alter_configs(
                ConfigResource.topic("foo"), {LEADER_REPLICAS: "0:0", FOLLOWER_REPLICAS: "0:4"}
            )
            async with admin.throttled(plan, bytes_per_second=10_000_000):
                await asyncio.sleep(2)
                assert throttled(configured, "foo") == (
                    f"0:0,{MARK},0:1,0:2,1:1,1:2,1:3",
                    f"0:4,{MARK},0:3,1:4",
                )
                fake.copy_replica("foo", 0, 3, 11)
                fake.copy_replica("foo", 1, 4, 1)
                await asyncio.sleep(2)
                assert throttled(configured, "foo") == (
                    f"0:0,{MARK},1:1,1:2,1:3",
                    f"0:4,{MARK},1:4",
                )
                fake.copy_replica("foo", 1, 4, 11)
                await asyncio.sleep(2)
                assert throttled(configured, "foo") == (f"0:0,{MARK}", f"0:4,{MARK}")
                asyncio.get_running_loop().call_later(5, fake.finish_reassignments)
            assert throttled(configured, "foo") == ("0:0", "0:4")
            assert configured().keys() == {"foo"}

    run()


@in_virtual_time
async def test_after_a_crash_what_was_let_go_is_found_as_well(fake, admin, configured) -> None:
    begun = await admin.reassigner.begin(PLAN, 1000)
    easing = asyncio.create_task(admin.reassigner.ease_arrivals(begun))
    await asyncio.sleep(2)
    easing.cancel()
    assert throttled(configured, "foo") == (MARK, MARK)
    assert configured()["0"]
    fake.finish_reassignments()
    assert (await admin.replication_quotas.clear()).failures == {}
    assert configured() == {}


@in_virtual_time
async def test_a_broker_that_has_nearly_caught_up_is_let_go(fake, admin, configured) -> None:
    fake.set_isr("bar", 0, [2, 1])
    quotas = admin.replication_quotas
    await quotas.bootstrap([3], 1000)
    easing = asyncio.create_task(quotas.ease_arrivals([3]))
    await asyncio.sleep(2)
    easing.cancel()
    assert throttled(configured, "bar") == (MARK, MARK)
    assert throttled(configured, "foo") == (f"{MARK},1:1,1:2", f"{MARK},1:3"), "it is in sync"
    assert (await quotas.clear()).failures == {}
    assert configured() == {}


@virtual_time
async def test_it_ends_with_the_admin_client(fake_virtual) -> None:
    _, admin = fake_virtual
    async with admin:
        easing = asyncio.create_task(admin.replication_quotas.ease_arrivals([0, 1, 2, 3]))
        await asyncio.sleep(2)
        assert not easing.done()
    await asyncio.sleep(2)
    assert easing.done()
    assert easing.exception() is None


@in_virtual_time
async def test_what_a_broker_refuses_to_let_go_is_tried_again(fake, admin, configured) -> None:
    begun = await admin.reassigner.begin(PLAN, 1000)
    for _ in range(3):
        fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, 44)  # POLICY_VIOLATION
    easing = asyncio.create_task(admin.reassigner.ease_arrivals(begun))
    await asyncio.sleep(5)
    easing.cancel()
    assert throttled(configured, "foo") == throttled(configured, "baz") == (MARK, MARK)
    assert await admin.reassigner.undo(begun) == {}
    assert configured() == {}


async def test_outside_of_the_block(admin) -> None:
    with pytest.raises(AdminStateError, match="has not started"):
        _ = admin.throttled(PLAN, bytes_per_second=None).begun


@in_virtual_time
async def test_without_quota(fake, admin, configured) -> None:
    async with admin.throttled(PLAN, bytes_per_second=None):
        assert configured() == {}
        asyncio.get_running_loop().call_later(5, fake.finish_reassignments)
    assert await replicas(admin, BAZ0) == (1, 0, 4)


@virtual_time
async def test_a_broker_that_died_with_its_rate_is_named(fake_virtual, configured) -> None:
    """By whatever ends the reassignment, also if the broker has no replica any more."""
    fake, admin = fake_virtual
    await admin.start()
    moves = admin.throttled(PLAN, bytes_per_second=1000)

    async def move() -> None:
        async with moves:
            fake.stop_broker(4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await move()
    assert moves.left.keys() == {"the throttle of broker 4"}
    fake.create_topic("on4", assignments=[(0, 4)])  # so that it is known after the plan
    quotas = admin.replication_quotas
    assert (await quotas.describe()).failures.keys() == {4}
    assert (await quotas.clear()).failures.keys() == {"broker 4"}
    assert (await quotas.clear(everyone=True)).failures.keys() == {"broker 4"}
    await admin.delete_topics(["on4"])
    verified = await admin.reassigner.verify(PLAN)
    assert verified.throttles.failures.keys() == {4}
    assert verified.lifted is not None
    assert verified.lifted.failures.keys() == {"broker 4"}
    fake.start_broker(4)
    assert (await quotas.clear()).brokers == (4,)
    assert configured() == {}
    await admin.close()


@in_virtual_time
async def test_cancel_and_set_name_a_moving_broker_that_is_down(fake, admin) -> None:
    await admin.reassigner.begin(PLAN, 1000)
    fake.stop_broker(4)
    changed = await admin.replication_quotas.set_rate(2000)
    assert [node for node, error in changed.items() if error] == [4]
    told = []
    await admin.reassigner.cancel(on_lifted=told.append)
    assert told[0].failures.keys() == {"broker 4"}


@in_virtual_time
async def test_a_dead_broker_without_a_part_in_the_plan_fails_nothing(fake, admin) -> None:
    fake.create_topic("on2", assignments=[(2, 3)])
    fake.stop_broker(2)
    async with admin.throttled({TopicPartition("on2", 0): [3, 4]}, bytes_per_second=9) as moves:
        assert moves.begun.unthrottled.keys() == {2}
        asyncio.get_running_loop().call_later(5, fake.finish_reassignments)
    assert moves.left == {}
