"""Reassignments step by step on the fake cluster. Upstream: ReassignPartitionsCommandTest, and what
of ReassignPartitionsUnitTest needs a cluster."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from kafkaclient.admin import ConfigResource, MoveState
from kafkaclient.admin.reassign.outcome import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIRS_RATE,
    MARK,
)
from kafkaclient.errors import (
    AdminTimeoutError,
    AuthorizationError,
    BrokerError,
    ConfigError,
    PolicyViolationError,
    UnknownTopicError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, DROP
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time

DEAD_S = 120.0  # seconds after which nobody heeds what a dead process announced

FOO0, FOO1, BAR0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)
BAZ0, BAZ1, BAZ2 = (TopicPartition("baz", n) for n in range(3))


def rates(configured) -> dict[str, str]:
    """The leader's rate by broker; the follower's is the same."""
    found = {}
    for name, own in configured().items():
        if LEADER_RATE in own:
            assert own[FOLLOWER_RATE] == own[LEADER_RATE]
            found[name] = own[LEADER_RATE]
    return found


def shown_states(verification) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(str(s.partition), s.state.value, s.replicas) for s in verification.partitions]


async def test_reassignment(admin, fake, configured) -> None:
    """testReassignment."""
    plan = {FOO0: [0, 1, 3], BAR0: [3, 2, 0]}
    before = await admin.reassigner.verify(plan)
    assert shown_states(before) == [
        ("bar-0", "different", (3, 2, 1)),
        ("foo-0", "different", (0, 1, 2)),
    ]
    begun = await admin.reassigner.begin(plan)
    assert (begun.failed, begun.started) == ({}, {FOO0, BAR0})
    assert begun.before == {FOO0: (0, 1, 2), BAR0: (3, 2, 1)}
    assert configured() == {}
    underway = await admin.reassigner.verify(plan)
    assert (underway.in_progress, underway.idle) == (True, False)
    fake.finish_reassignments()
    after = await admin.reassigner.verify(plan)
    assert (after.completed, after.idle) == (True, True)


async def test_throttled_reassignment(admin, fake, configured) -> None:
    """testThrottledReassignment: rates stay with preserve_throttles, and go without."""
    plan = {FOO0: [0, 3, 2], BAZ2: [3, 2, 1]}
    await admin.reassigner.begin(plan, 300_000)
    assert rates(configured) == dict.fromkeys("0123", "300000")
    assert configured()["foo"] == {
        LEADER_REPLICAS: f"{MARK},0:0,0:1,0:2",
        FOLLOWER_REPLICAS: f"{MARK},0:3",
    }
    assert configured()["baz"] == {
        LEADER_REPLICAS: f"{MARK},2:0,2:1,2:2",
        FOLLOWER_REPLICAS: f"{MARK},2:3",
    }
    still = await admin.reassigner.verify(plan)
    assert still.lifted.needed_topics == ("baz", "foo")
    assert still.lifted.needed_brokers == (0, 1, 2, 3)
    fake.finish_reassignments()
    kept = await admin.reassigner.verify(plan, preserve_throttles=True)
    assert kept.completed
    assert kept.lifted is None
    assert rates(configured) == dict.fromkeys("0123", "300000")
    last = await admin.reassigner.verify(plan)
    assert (last.lifted.topics, last.lifted.brokers) == (("baz", "foo"), (0, 1, 2, 3))
    assert configured() == {}
    again = await admin.reassigner.verify(plan)
    assert (again.completed, again.lifted.topics, again.lifted.brokers) == (True, (), ())


async def test_another_quota_by_executing_again(admin, configured) -> None:
    """testAlterReassignmentThrottle: 1, then 300000."""
    plan = {FOO0: [0, 3, 2], BAZ2: [3, 2, 1]}
    await admin.reassigner.begin(plan, 1)
    assert rates(configured) == dict.fromkeys("0123", "1")
    await admin.reassigner.begin(plan, 300_000, additional=True)
    assert rates(configured) == dict.fromkeys("0123", "300000")
    assert sum("kafkaclient" in key for key in configured()["0"]) == 1
    await admin.reassigner.cancel()
    assert configured() == {}


async def test_rates_of_single_brokers(admin, configured) -> None:
    """testModifyBrokerInterBrokerThrottle: {0,1,2} get 1000, then {0,3} get 100."""
    assert await admin.replication_quotas.set_rate(1000, [0, 1, 2]) == dict.fromkeys([0, 1, 2])
    assert await admin.replication_quotas.set_rate(100, [0, 3]) == dict.fromkeys([0, 3])
    assert rates(configured) == {"0": "100", "1": "1000", "2": "1000", "3": "100"}
    assert await admin.replication_quotas.set_rate(5) == dict.fromkeys([0, 1, 2, 3])
    assert rates(configured) == dict.fromkeys("0123", "5")


async def test_cancellation(admin, configured) -> None:
    """testCancellation."""
    plan = {FOO0: [0, 1, 3], BAZ1: [0, 2, 3]}
    await admin.reassigner.begin(plan, 1)
    told = await admin.reassigner.verify(plan, preserve_throttles=True)
    assert shown_states(told) == [
        ("baz-1", "in progress", (0, 2, 3, 1)),
        ("foo-0", "in progress", (0, 1, 3, 2)),
    ]
    assert await admin.reassigner.cancel(plan) == {FOO0: None, BAZ1: None}
    assert configured() == {}
    assert (await admin.describe_topic("foo")).partitions[0].replicas == (0, 1, 2)
    assert await admin.reassigner.cancel(plan) == {}


async def test_cancelling_what_only_adds(admin, fake) -> None:
    """testCancellationWithAddingReplicaInIsr, and the filter that PR 20003 mended."""
    await admin.reassigner.begin({FOO0: [0, 1, 2, 3]}, 1)
    fake.set_isr("foo", 0, [0, 1, 2, 3])
    assert await admin.reassigner.cancel([FOO0]) == {FOO0: None}
    assert (await admin.describe_topic("foo")).partitions[0].replicas == (0, 1, 2)


async def test_cancelling_leaves_the_throttles_of_others(admin, configured) -> None:
    await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    await admin.reassigner.begin({BAZ1: [2, 0, 4]}, 100, additional=True)
    await admin.reassigner.cancel([FOO0])
    assert rates(configured) == dict.fromkeys("0124", "100")
    assert configured()["baz"][FOLLOWER_REPLICAS] == f"{MARK},1:4"
    assert "foo" not in configured()
    await admin.reassigner.cancel()
    assert configured() == {}


async def test_what_was_there_before_comes_back(admin, configured) -> None:
    """testModifyTopicThrottles overwrites; here it is remembered, in the cluster itself."""
    await admin.alter_configs(ConfigResource.topic("foo"), {LEADER_REPLICAS: "1:1,0:2"})
    await admin.alter_configs(ConfigResource.topic("baz"), {FOLLOWER_REPLICAS: "*"})
    await admin.alter_configs(ConfigResource.broker(0), {LEADER_RATE: "77"})
    before = configured()
    await admin.reassigner.begin({FOO0: [3, 1, 2], BAZ0: [3, 0, 2]}, 1000)
    assert configured()["foo"][LEADER_REPLICAS] == f"1:1,0:2,{MARK},0:0,0:1"
    assert configured()["baz"][FOLLOWER_REPLICAS] == "*"
    await admin.replication_quotas.set_rate(2000)
    await admin.reassigner.cancel()
    assert configured() == before


async def test_what_somebody_else_set_meanwhile_stays(admin, configured) -> None:
    await admin.reassigner.begin({FOO0: [3, 1, 2]}, 1000)
    await admin.alter_configs(ConfigResource.broker(0), {LEADER_RATE: "77"})
    await admin.reassigner.cancel()
    assert configured() == {"0": {LEADER_RATE: "77"}}


async def test_what_kafkas_tool_left_is_told_and_deleted_on_demand(admin, configured) -> None:
    await admin.alter_configs(ConfigResource.topic("foo"), {LEADER_REPLICAS: "0:0,0:1"})
    for node in (0, 1):
        await admin.alter_configs(
            ConfigResource.broker(node), {LEADER_RATE: "10", FOLLOWER_RATE: "10"}
        )
    told = await admin.reassigner.verify({FOO0: (0, 1, 2)})
    assert (told.lifted.topics, told.lifted.brokers) == ((), ())
    assert told.throttles.topics["foo"].any
    assert told.throttles.brokers[0].rates == {LEADER_RATE: 10, FOLLOWER_RATE: 10}
    lifted = await admin.replication_quotas.clear()
    assert (lifted.topics, lifted.brokers) == ((), ())
    wiped = await admin.replication_quotas.clear(everyone=True)
    assert (wiped.topics, wiped.brokers) == (("foo",), (0, 1))
    assert configured() == {}


@virtual_time
async def test_crashes_at_every_request(fake_virtual, configured, new_admin) -> None:
    """Whatever request is the last of a tool that dies, another one finds what it left."""
    fake, admin = fake_virtual
    plan = {FOO0: [0, 3, 2], BAZ2: [3, 2, 1]}
    reached = []
    async with admin:
        await admin.alter_configs(ConfigResource.topic("foo"), {LEADER_REPLICAS: "1:1"})
        before = configured()
        for survived in range(11):
            reached.append(await dies_after(fake, new_admin, plan, survived))
            if await admin.list_partition_reassignments():
                assert rates(configured) == dict.fromkeys("0123", "1000")
                await admin.replication_quotas.clear()
                assert rates(configured) == dict.fromkeys("0123", "1000")
                await asyncio.sleep(DEAD_S)
                await admin.alter_partition_reassignments(dict.fromkeys(plan))
            await asyncio.sleep(DEAD_S)
            told = await admin.reassigner.verify(plan)
            assert told.lifted.failures == {}
            assert configured() == before, survived
    # The announcement, two topics, four brokers, the moves: with the eighth they begin, and an
    # announcement that cannot be withdrawn expires.
    assert reached == [False] * 9 + [True] * 2


async def dies_after(fake, new_admin, plan, survived: int) -> bool:
    """Begin a plan, with none of the tool's changes heard after so many; whether it has begun."""
    made = 0

    def die(_request):
        nonlocal made
        made += 1
        return None if made <= survived else DROP

    changes = (ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    controls = [fake.control(key, die, keep=True) for key in changes]
    async with new_admin(default_api_timeout_ms=1000) as doomed:
        try:
            await doomed.reassigner.begin(plan, 1000)
        except AdminTimeoutError:
            return False
        else:
            return True
        finally:
            for control in controls:
                control.remove()
            fake.drop_connections()


# --- refusals ---------------------------------------------------------------------------------


async def test_one_at_a_time_unless_asked_for(admin) -> None:
    await admin.reassigner.begin({FOO0: [0, 1, 3]})
    with pytest.raises(BrokerError, match=r"REASSIGNMENT_IN_PROGRESS.*foo-0.*--additional"):
        await admin.reassigner.begin({BAR0: [3, 2, 0]})
    assert (await admin.reassigner.begin({BAR0: [3, 2, 0]}, additional=True)).failed == {}


async def test_unknown_brokers(admin, fake, configured) -> None:
    """testExecuteWithInvalidBrokerIdFails."""
    with pytest.raises(BrokerError, match="Unknown broker id 9"):
        await admin.reassigner.begin({FOO0: [0, 1, 9]}, 100)
    fake.stop_broker(3)
    with pytest.raises(BrokerError, match=r"foo-0: INVALID.*Unknown broker id 3.*--skip-dead"):
        await admin.reassigner.begin({FOO0: [0, 1, 3], BAZ0: [1, 0, 4]}, 100)
    assert configured() == {}
    begun = await admin.reassigner.begin({FOO0: [0, 1, 3], BAZ0: [1, 0, 4]}, 100, skip_dead=True)
    assert (begun.started, begun.failed.keys()) == ({BAZ0}, {FOO0})
    assert rates(configured) == dict.fromkeys("0124", "100")


async def test_what_is_not_there(admin) -> None:
    with pytest.raises(UnknownTopicError, match="foo-2"):
        await admin.reassigner.begin({TopicPartition("foo", 2): [0]})
    with pytest.raises(UnknownTopicError, match="nothing"):
        await admin.reassigner.generate(["nothing"])
    told = await admin.reassigner.verify({TopicPartition("foo", 2): [0]})
    assert told.partitions[0].state is MoveState.MISSING


async def test_plans_and_quotas_that_cannot_be(admin) -> None:
    with pytest.raises(ConfigError, match="cannot be empty"):
        await admin.reassigner.begin({})
    with pytest.raises(ConfigError, match="multiple entries for 0"):
        await admin.reassigner.begin({FOO0: [0, 0]})
    with pytest.raises(ConfigError, match="a quota of -1"):
        await admin.reassigner.begin({FOO0: [0]}, -1)


async def test_a_refusal_leaves_no_throttle(admin, fake, configured) -> None:
    await admin.set_limits({"max.broker.partitions": 4})
    before = configured()
    with pytest.raises(PolicyViolationError):
        await admin.reassigner.begin({FOO0: [0, 1, 3], BAR0: [0, 2, 1]}, 100)
    assert configured() == before
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 31)
    with pytest.raises(AuthorizationError):
        await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    assert configured() == before


async def test_no_move_begins_without_its_throttle(admin, fake, configured) -> None:
    def refuse_brokers(request):
        return 31 if request.message.resources[0].resource_name == "3" else None

    control = fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, refuse_brokers, keep=True)
    with pytest.raises(AuthorizationError, match="broker 3"):
        await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    control.remove()
    topic = 2

    def refuse_topics(request):
        return 29 if request.message.resources[0].resource_type == topic else None

    control = fake.control(ApiKey.DESCRIBE_CONFIGS, refuse_topics, keep=True)
    with pytest.raises(AuthorizationError, match="may not DescribeConfigs on the topic 'foo'"):
        await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    control.remove()
    assert await admin.list_partition_reassignments() == {}
    assert configured() == {}


# --- trouble ----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_broker_that_dies_does_not_stop_the_rest(fake, admin, configured, caplog) -> None:
    await admin.reassigner.begin({FOO0: [0, 1, 3], BAZ0: [1, 0, 4]}, 100)
    fake.stop_broker(3, elect=False)
    await admin.reassigner.cancel()
    # Its own rate cannot be taken away by others; it is told of, and found when it is back.
    assert configured().keys() == {"3"}
    assert "the throttle of broker 3 was not removed" in caplog.text
    fake.start_broker(3)
    lifted = await admin.replication_quotas.clear()
    assert lifted.brokers == (3,)
    assert configured() == {}


async def test_a_broker_that_was_down_gets_its_rate_when_it_is_back(
    admin, fake, configured
) -> None:
    fake.stop_broker(2)
    begun = await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    assert begun.unthrottled.keys() == {2}
    assert rates(configured) == dict.fromkeys("013", "100")
    await admin.reassigner.rethrottle(begun, 100)
    assert begun.unthrottled.keys() == {2}
    fake.start_broker(2)
    await admin.reassigner.rethrottle(begun, 100)
    assert begun.unthrottled == {}
    assert rates(configured) == dict.fromkeys("0123", "100")


@in_virtual_time
async def test_a_lost_answer(fake, admin, configured) -> None:
    fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, CLOSE_ANSWER)
    fake.control(ApiKey.ALTER_PARTITION_REASSIGNMENTS, CLOSE_ANSWER)
    begun = await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    assert begun.failed == {}
    fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, CLOSE_ANSWER)
    await admin.reassigner.cancel()
    assert configured() == {}


async def test_undoing_a_change_of_target(admin, fake) -> None:
    """[1,2] -> [1,3] -> [1,4]: a cancellation alone would leave [1,2,3]."""
    fake.create_topic("t", assignments=[(1, 2)])
    t0 = TopicPartition("t", 0)
    await admin.reassigner.begin({t0: [1, 3]}, 100)
    begun = await admin.reassigner.begin({t0: [1, 4]}, 100, additional=True)
    assert begun.before == {t0: (1, 2)}
    assert await admin.reassigner.undo(begun) == {}
    fake.finish_reassignments()
    assert (await admin.describe_topic("t")).partitions[0].replicas == (1, 2)


async def test_undoing_brings_back_the_order(admin, fake) -> None:
    """A cancellation alone changes who is to lead: [2,1] -> [3,4] has the replicas [3,4,1,2]."""
    fake.create_topic("t", assignments=[(2, 1)])
    t0 = TopicPartition("t", 0)
    await admin.reassigner.begin({t0: [3, 4]})
    assert await admin.reassigner.cancel([t0]) == {t0: None}
    assert (await admin.describe_topic("t")).partitions[0].replicas == (1, 2)
    fake.create_topic("u", assignments=[(2, 1)])
    u0 = TopicPartition("u", 0)
    begun = await admin.reassigner.begin({u0: [3, 4]}, 100)
    assert await admin.reassigner.undo(begun) == {}
    assert (await admin.describe_topic("u")).partitions[0].replicas == (2, 1)
    assert await admin.list_partition_reassignments() == {}


# --- plans, estimates, progress ---------------------------------------------------------------


async def test_generated_plans(admin) -> None:
    present, proposed = await admin.reassigner.generate(["foo", "bar"], [0, 1, 3])
    assert present.replicas == {FOO0: (0, 1, 2), FOO1: (1, 2, 3), BAR0: (3, 2, 1)}
    assert proposed.replicas.keys() == present.replicas.keys()
    assert {node for nodes in proposed.replicas.values() for node in nodes} == {0, 1, 3}
    _, fewer = await admin.reassigner.generate(["foo"], replication_factor=2)
    assert {len(nodes) for nodes in fewer.replicas.values()} == {2}
    with pytest.raises(ConfigError, match="Unknown broker id 7"):
        await admin.reassigner.generate(["foo"], [0, 7])


async def test_plans_without_a_list_of_brokers_avoid_cordoned_ones(admin, fake) -> None:
    fake.cordon(4)
    fake.cordon(0)
    for _ in range(5):
        _, proposed = await admin.reassigner.generate(["foo", "bar"])
        assert {node for nodes in proposed.replicas.values() for node in nodes} == {1, 2, 3}
    _, more = await admin.reassigner.generate(["bar"], replication_factor=3)
    assert more.replicas == {BAR0: (3, 2, 1)}
    with pytest.raises(BrokerError, match="larger than available brokers"):
        await admin.reassigner.generate(["bar"], replication_factor=4)
    _, chosen = await admin.reassigner.generate(["bar"], [0, 4, 1])
    assert set(chosen.replicas[BAR0]) == {0, 1, 4}


async def test_progress_by_lag_and_bytes(admin, fake, write_records) -> None:
    await write_records("foo", 0, 10)
    await admin.reassigner.begin({FOO0: [0, 1, 3]}, 1_000_000)
    async with aclosing(admin.reassigner.progress(every_s=0.0)) as looks:
        first = await anext(looks)
        assert (first.sum_replica_lag, first.bytes_done, first.done) == (10, 0, 0)
        assert first.brokers[0].quota == 1_000_000
        fake.copy_replica("foo", 0, 3, 5)
        half = await anext(looks)
        assert half.sum_replica_lag == 5
        assert half.bytes_done * 2 == half.bytes_total > 0
        fake.finish_reassignments()
        last = await anext(looks)
        assert last.finished
        assert last.bytes_done == last.bytes_total
        with pytest.raises(StopAsyncIteration):
            await anext(looks)


async def test_an_estimate(admin, write_records) -> None:
    await write_records("foo", 0, 10)
    found = await admin.reassigner.estimate({FOO0: [0, 1, 3], BAZ0: [1, 0, 2]})
    assert (found.partitions, found.total_partitions, found.brokers) == (1, 6, 5)
    assert found.bytes_to_move == found.bytes_in[3] == found.bytes_out[0] > 0
    assert found.inbound == 0.0
    assert found.waiting == ()
    assert found.leader_changes == 0
    assert (await admin.reassigner.estimate({FOO0: [3, 1], BAZ0: [2, 0, 3]})).leader_changes == 2
    await admin.alter_configs(ConfigResource.topic("foo"), {"min.insync.replicas": "4"})
    assert (await admin.reassigner.estimate({FOO0: [0, 1, 3]})).waiting == ("foo",)


async def test_nothing_moves(admin) -> None:
    looks = [progress async for progress in admin.reassigner.progress()]
    assert [look.finished for look in looks] == [True]


# --- bootstrapping brokers --------------------------------------------------------------------


async def test_a_bootstrapping_broker(admin, fake, configured, write_records) -> None:
    """KIP-73, question 2: what it has to catch up with, and from whom."""
    await write_records("foo", 1, 10)
    fake.copy_replica("foo", 1, 3, 4)
    fake.set_isr("foo", 1, [1, 2])
    fake.set_isr("bar", 0, [2, 1])
    assert await admin.replication_quotas.bootstrap([3], 500) == {}
    assert rates(configured) == dict.fromkeys("123", "500")
    assert configured()["foo"] == {
        LEADER_REPLICAS: f"{MARK},1:1,1:2",
        FOLLOWER_REPLICAS: f"{MARK},1:3",
    }
    assert configured()["bar"][FOLLOWER_REPLICAS] == f"{MARK},0:3"
    assert await admin.replication_quotas.behind([3]) == {FOO1: 6, BAR0: 0}
    fake.set_isr("bar", 0, [2, 1, 3])
    lifted = await admin.replication_quotas.clear()
    assert (lifted.topics, lifted.needed_topics) == (("bar",), ("foo",))
    fake.set_isr("foo", 1, [1, 2, 3])
    await admin.replication_quotas.clear()
    assert configured() == {}
    with pytest.raises(ConfigError, match="no replicas to throttle"):
        await admin.replication_quotas.bootstrap([4], 500)


async def test_a_bootstrapping_broker_that_is_down_yet(admin, fake, configured) -> None:
    fake.stop_broker(3)
    assert (await admin.replication_quotas.bootstrap([3], 500)).keys() == {3}
    assert set((await admin.replication_quotas.behind([3])).values()) == {None}
    assert rates(configured) == dict.fromkeys("12", "500")
    fake.start_broker(3)
    assert await admin.replication_quotas.bootstrap([3], 500) == {}
    assert rates(configured) == dict.fromkeys("123", "500")


async def test_throttles_told_and_removed_all_the_same(admin, configured) -> None:
    await admin.reassigner.begin({FOO0: [0, 1, 3]}, 100)
    told = await admin.replication_quotas.describe()
    assert told.topics.keys() == {"foo"}
    assert [node for node, now in told.brokers.items() if now.mark] == [0, 1, 2, 3]
    kept = await admin.replication_quotas.clear()
    assert (kept.topics, kept.needed_topics) == ((), ("foo",))
    await admin.replication_quotas.clear(keep_needed=False)
    assert configured() == {}


async def test_generating_during_a_move(admin, caplog) -> None:
    """A partition has its old and its new replicas then, and still keeps its factor."""
    await admin.reassigner.begin({BAR0: [0, 4]})
    present, proposed = await admin.reassigner.generate(["bar"])
    assert present.replicas == {BAR0: (0, 4)}
    assert len(proposed.replicas[BAR0]) == 2
    assert "bar-0 is being reassigned" in caplog.text


async def test_generating_with_a_dead_replica(admin, fake) -> None:
    fake.stop_broker(2)
    _, proposed = await admin.reassigner.generate(["foo", "bar", "baz"], replication_factor=2)
    assert all(2 not in nodes for nodes in proposed.replicas.values())
    assert proposed.replicas[BAZ1] == (0, 1)


@in_virtual_time
async def test_measuring_does_not_count_against_the_time_limit(admin) -> None:
    await admin.reassigner.estimate({FOO0: [0, 1, 3]}, measure_s=20, timeout_s=1)


async def test_what_is_left_out_is_not_estimated(admin, fake, write_records) -> None:
    await write_records("foo", 0, 3)
    await write_records("bar", 0, 1)
    plan = {FOO0: [0, 1, 4], BAR0: [3, 2, 0]}
    both = await admin.reassigner.estimate(plan)
    fake.stop_broker(4)
    rest = await admin.reassigner.estimate(plan, skip_dead=True)
    assert (both.skipped, rest.skipped) == ((), (FOO0,))
    assert 0 < rest.bytes_to_move < both.bytes_to_move
    assert (both.partitions, rest.partitions) == (2, 1)


async def test_the_quota_of_a_move_of_another_tool(admin, configured) -> None:
    """Kafka's tool sets lists and rates without a mark; its --verify deletes all but our mark."""
    await admin.reassigner.begin({FOO0: [0, 1, 3]})
    assert await admin.replication_quotas.set_rate(2000) == {}  # nothing throttles the move
    await admin.alter_configs(
        ConfigResource.topic("foo"), {LEADER_REPLICAS: "0:0,0:1,0:2", FOLLOWER_REPLICAS: "0:3"}
    )
    for node in range(4):
        await admin.alter_configs(
            ConfigResource.broker(node), {LEADER_RATE: "10", FOLLOWER_RATE: "10"}
        )
    assert await admin.replication_quotas.set_rate(2000) == dict.fromkeys(range(4))
    assert rates(configured) == dict.fromkeys("0123", "2000")
    assert (await admin.replication_quotas.clear()).brokers == ()  # the move needs them
    await admin.reassigner.cancel()
    assert rates(configured) == dict.fromkeys("0123", "10")


async def test_rates_at_the_defaults_of_all_brokers(admin, configured) -> None:
    defaults = {LEADER_RATE: "7", FOLLOWER_RATE: "8", LOG_DIRS_RATE: "9"}
    await admin.alter_configs(ConfigResource.broker_defaults(), defaults)
    await admin.alter_configs(ConfigResource.broker(1), {LOG_DIRS_RATE: "5"})
    told = await admin.replication_quotas.describe()
    assert told.defaults == {LEADER_RATE: 7, FOLLOWER_RATE: 8, LOG_DIRS_RATE: 9}
    assert {n: dict(b.rates) for n, b in told.brokers.items() if b.rates} == {1: {LOG_DIRS_RATE: 5}}
    assert (await admin.replication_quotas.clear()).defaults == ()
    wiped = await admin.replication_quotas.clear(everyone=True)
    assert set(wiped.defaults) == set(defaults)
    assert wiped.brokers == (1,)
    assert configured() == {}
