"""Group members on the fake cluster: joins, handovers, losses, commits during rebalances."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import BrokerError
from kafkaclient.group.ownership import MemberState
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake.cluster import FakeCluster
from kafkaclient.testing.fake.interceptors import (
    CLOSE,
    CLOSE_ANSWER,
    DROP_ANSWER,
    Answer,
    Request,
    delay_answer,
)
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.group.range_protocol import RangeProtocol, RunningMember, member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

P = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def fake() -> FakeCluster:
    made = FakeCluster(2)
    made.create_topic("t", 4)
    return made


def protocol() -> RangeProtocol:
    return RangeProtocol("t", 4)


def joined(
    fake: FakeCluster, own: RangeProtocol | None = None, **options: Any
) -> AbstractAsyncContextManager[RunningMember]:
    """A member, which leaves at the end."""
    return member(fake.bootstrap, own or protocol(), dialer=fake, **options)


@asynccontextmanager
async def owner(
    fake: FakeCluster, own: RangeProtocol | None = None, **options: Any
) -> AsyncIterator[RunningMember]:
    """A member that owns all partitions."""
    async with joined(fake, own, **options) as made:
        await made.owns(0, 1, 2, 3)
        yield made


@virtual_time
async def test_one_member_owns_everything_and_leaves_at_once(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        await a.offsets.commit({P[0]: 5})
        assert await a.offsets.committed(P[:2]) == {P[0]: 5, P[1]: None}
    async with joined(fake) as b:
        began = asyncio.get_running_loop().time()
        await b.owns(0, 1, 2, 3)
        assert asyncio.get_running_loop().time() - began < 0.1
    last = [request.message for request in fake.requests if request.api_key == ApiKey.LEAVE_GROUP]
    assert [each.members[0].reason for each in last] == ["the test is over"] * 2


@virtual_time
async def test_what_stays_goes_on_and_what_moves_is_given_up_first(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        given_up_at = 0.0
        other = protocol()

        async def give_up(partition: TopicPartition) -> None:
            nonlocal given_up_at
            assert partition not in other.owned
            await a.offsets.commit({partition: 7})
            await asyncio.sleep(0.5)
            assert partition not in other.owned
            given_up_at = asyncio.get_running_loop().time()

        a.protocol.give_up = give_up
        async with joined(fake, other) as b:
            moved, stays = ([2, 3], [0, 1])
            await b.until(lambda: len(other.owned) == 2)
            if other.numbers() == [0, 1]:
                moved, stays = stays, moved
            assert asyncio.get_running_loop().time() - given_up_at < 0.1
            await a.owns(*stays)
            assert a.protocol.log == [("added", [0, 1, 2, 3]), ("revoked", moved)]
            assert b.protocol.log == [("added", moved)]
            assert len(b.protocol.generations) == 2, "a follow-up rebalance, and no more"
            committed = await b.offsets.committed([P[number] for number in moved])
            assert set(committed.values()) == {7}


@virtual_time
async def test_no_rebalance_follows_if_nobody_gave_anything_up(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        a.member.request_rejoin("a test")
        await a.until(lambda: len(a.protocol.generations) == 2)
        await asyncio.sleep(10)
        assert len(a.protocol.generations) == 2
        assert a.protocol.log == [("added", [0, 1, 2, 3])]


@virtual_time
async def test_commits_of_what_stays_never_fail_in_a_rebalance(fake: FakeCluster) -> None:
    fake.round_trip_s = 0.002
    async with owner(fake) as a:
        committed = 0

        async def commit_for_ever() -> None:
            nonlocal committed
            while True:
                await a.offsets.commit({P[0]: committed})
                committed += 1

        committing = asyncio.create_task(commit_for_ever())
        for _ in range(20):
            a.member.request_rejoin("a test")
            await asyncio.sleep(0.1)
        async with joined(fake) as b:
            await b.until(lambda: len(b.protocol.owned) == 2)
        await asyncio.sleep(1)
        assert not committing.done()
        assert committed > 100
        assert len(a.protocol.generations) > 20
        committing.cancel()


@virtual_time
async def test_commits_go_on_while_another_member_is_slow_to_join(fake: FakeCluster) -> None:
    async with (
        joined(fake) as a,
        joined(fake) as b,
    ):
        await b.until(lambda: len(b.protocol.owned) == 2)
        stop = asyncio.Event()

        async def slowly(_: TopicPartition) -> None:
            await stop.wait()

        b.protocol.give_up = a.protocol.give_up = slowly
        async with joined(fake):
            await asyncio.sleep(1)  # one of the two gives up a partition, the other waits for it
            began = asyncio.get_running_loop().time()
            await a.offsets.commit({min(a.protocol.owned): 5})
            await b.offsets.commit({min(b.protocol.owned): 6})
            assert asyncio.get_running_loop().time() - began < 1.1
            stop.set()


@pytest.mark.parametrize("api_key", [ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT])
@virtual_time
async def test_an_evicted_member_loses_everything_and_comes_back(
    fake: FakeCluster, api_key: ApiKey
) -> None:
    async with owner(fake) as a:
        old = a.gate.group
        await asyncio.sleep(5)
        fake.control(api_key, ErrorCode.UNKNOWN_MEMBER_ID)
        if api_key is ApiKey.OFFSET_COMMIT:
            with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
                await a.offsets.commit({P[0]: 1})
        await a.until(lambda: len(a.protocol.generations) == 2)
        log = [("added", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3])]
        assert a.protocol.log[:2] == log
        assert a.gate.group.member_id != old.member_id
        assert await a.offsets.committed(P[:1]) == {P[0]: None}


@virtual_time
async def test_a_generation_that_was_missed_loses_the_partitions(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        await asyncio.sleep(5)
        fake.control(ApiKey.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION)
        await a.until(lambda: len(a.protocol.generations) == 2)
        assert a.protocol.log[1:] == [("lost", [0, 1, 2, 3]), ("added", [0, 1, 2, 3])]
        first, second = a.protocol.generations
        assert first.member_id == second.member_id


@virtual_time
async def test_a_generation_that_passed_before_the_next_join_loses_the_partitions(
    fake: FakeCluster,
) -> None:
    """A static member stays in the group while others have generations without it."""
    async with owner(fake) as a:
        fake._state.groups.groups["g"].generation += 1
        a.member.request_rejoin("a test")
        await a.until(lambda: len(a.protocol.generations) == 2)
        assert a.protocol.log[1:] == [("lost", [0, 1, 2, 3]), ("added", [0, 1, 2, 3])]
        await a.offsets.commit({P[0]: 1})


@virtual_time
async def test_a_commit_that_waits_is_refused_after_a_loss(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        a.gate.shut()
        waiting = asyncio.create_task(a.offsets.commit({P[0]: 1}))
        await asyncio.sleep(0.1)
        fake.control(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(BrokerError, match="has lost its partitions before the commit"):
            await waiting
        assert fake.committed_offset("g", "t", 0) is None


@virtual_time
async def test_a_rebalance_during_the_sync_costs_nothing(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        for code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            fake.control(ApiKey.SYNC_GROUP, code)
            known = len(a.protocol.generations)
            a.member.request_rejoin("a test")
            await a.until(lambda known=known: len(a.protocol.generations) > known)
        assert a.protocol.log == [("added", [0, 1, 2, 3])]


@virtual_time
async def test_a_static_member_that_restarts_gets_its_partitions_back(fake: FakeCluster) -> None:
    """The fake coordinator rebalances then; integration/test_membership.py shows that brokers do
    not."""
    async with owner(fake, group_instance_id="i"):
        pass
    assert not [r for r in fake.requests if r.api_key == ApiKey.LEAVE_GROUP]
    async with owner(fake, group_instance_id="i"):
        pass


@virtual_time
async def test_a_second_member_with_the_same_instance_id_ends_the_first(
    fake: FakeCluster,
) -> None:
    async with (
        owner(fake, group_instance_id="i") as a,
        joined(fake, group_instance_id="i") as b,
    ):
        with pytest.raises(BrokerError, match=r"FENCED_INSTANCE_ID.*group.instance.id 'i'"):
            await a.task
        assert a.protocol.log[-1] == ("lost", [0, 1, 2, 3])
        await b.owns(0, 1, 2, 3)
        assert a.member.state is MemberState.FENCED


@virtual_time
async def test_a_refused_member_ends_with_the_reason(fake: FakeCluster) -> None:
    async with owner(fake, RangeProtocol("t", 4, "other")), joined(fake) as b:
        told = r"INCONSISTENT_GROUP_PROTOCOL.*this member's assignors \(range\).*--group g shows"
        with pytest.raises(BrokerError, match=told):
            await b.task
    fake.control(ApiKey.JOIN_GROUP, 30)  # GROUP_AUTHORIZATION_FAILED
    async with joined(fake) as b:
        with pytest.raises(BrokerError, match="--operation Read --group g"):
            await b.task


@virtual_time
async def test_a_dead_member_is_replaced_after_its_session(fake: FakeCluster) -> None:
    async with (
        joined(fake) as a,
        joined(fake) as b,
    ):
        await b.until(lambda: len(b.protocol.owned) == len(a.protocol.owned) == 2)
        began = asyncio.get_running_loop().time()
        await a.die()
        await b.owns(0, 1, 2, 3)
        assert asyncio.get_running_loop().time() - began < 6.1


@virtual_time
async def test_heartbeats_are_frequent_after_an_assignment_and_rare_later(
    fake: FakeCluster,
) -> None:
    async with owner(fake):
        begin = len(fake.requests)
        await asyncio.sleep(2)
        assert 70 <= len(fake.requests) - begin <= 81
        await asyncio.sleep(2)
        begin = len(fake.requests)
        await asyncio.sleep(3)
        assert 9 <= len(fake.requests) - begin <= 11


@virtual_time
async def test_a_coordinator_that_moves_or_dies_costs_nothing(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        first = fake.coordinator("g")
        fake.move_coordinator("g", 1 - first)
        await asyncio.sleep(1)
        await a.offsets.commit({P[0]: 1})
        fake.move_coordinator("g", first)
        fake.stop_broker(1 - first)
        await asyncio.sleep(5)
        await a.offsets.commit({P[0]: 2})
        assert a.protocol.log == [("added", [0, 1, 2, 3])]


@pytest.mark.parametrize("when", [0.0, 0.0005, 0.001, 0.002, 0.01, 0.5])
@virtual_time
async def test_a_member_ends_cleanly_at_any_moment(fake: FakeCluster, when: float) -> None:
    fake.round_trip_s = 0.0007
    before = asyncio.all_tasks()
    async with joined(fake):
        await asyncio.sleep(when)
    assert asyncio.all_tasks() == before
    async with owner(fake):
        assert asyncio.get_running_loop().time() < 2, "the first one has not left"


@virtual_time
async def test_errors_of_the_protocol_end_the_member(fake: FakeCluster) -> None:
    broken = protocol()

    async def failing(partition: TopicPartition) -> None:
        raise ZeroDivisionError

    broken.give_up = failing
    async with owner(fake, broken) as a, joined(fake):
        with pytest.raises(ZeroDivisionError):
            await a.task


@virtual_time
async def test_errors_of_the_protocol_end_the_member_while_there_is_no_coordinator(
    fake: FakeCluster,
) -> None:
    broken, stopped = protocol(), asyncio.Event()

    async def failing(partition: TopicPartition) -> None:
        await stopped.wait()
        await asyncio.sleep(1)
        raise ZeroDivisionError

    broken.give_up = failing
    async with owner(fake, broken) as a, joined(fake):
        await a.until(lambda: len(broken.generations) == 2)
        await asyncio.sleep(0.1)
        fake.stop_broker(0)
        fake.stop_broker(1)
        stopped.set()
        async with asyncio.timeout(5):
            with pytest.raises(ZeroDivisionError):
                await a.task


@virtual_time
async def test_a_coordinator_that_stalls_during_a_join_is_left_for_the_next_one(
    fake: FakeCluster,
) -> None:
    async with owner(fake) as a:
        group = a.connection.group_id
        first = fake.coordinator(group)
        fake.stall_broker(first)
        a.member.request_rejoin("the test asks")
        await asyncio.sleep(2)
        fake.move_coordinator(group, 1 - first)
        began = asyncio.get_running_loop().time()
        await a.offsets.commit({P[0]: 5})
        await a.until(lambda: a.member.state is MemberState.STABLE)
        assert asyncio.get_running_loop().time() - began < 10  # rebalance_timeout_ms is 60 s


@pytest.mark.parametrize("losing", [CLOSE_ANSWER, delay_answer(3.0)])
@virtual_time
async def test_a_lost_answer_to_a_join_leaves_no_partition_without_owner(
    fake: FakeCluster, losing: Answer
) -> None:
    """The group has another generation before the member joins again: it loses its partitions, and
    the leader withholds them from the others because of its claims."""
    async with (
        joined(fake) as a,
        joined(fake) as b,
    ):
        await b.until(lambda: len(a.protocol.owned) == len(b.protocol.owned) == 2)
        mine = b.member.member_id
        answers = iter([losing, CLOSE, CLOSE, CLOSE])

        def decide(request: Request) -> Answer:
            return next(answers, None) if request.message.member_id == mine else None

        fake.control(ApiKey.JOIN_GROUP, decide, keep=True)
        b.member.request_rejoin("a test")
        await asyncio.sleep(0.3)
        async with joined(fake) as c:
            members = (a, b, c)

            def is_settled() -> bool:
                owned = [number for each in members for number in each.protocol.numbers()]
                return sorted(owned) == [0, 1, 2, 3] and not any(
                    each.member.is_rebalancing for each in members
                )

            await c.until(is_settled, seconds=20)


@virtual_time
async def test_a_commit_during_a_join_waits_for_a_late_answer(fake: FakeCluster) -> None:
    """Its generation is over, and the member does not know the next one yet."""
    async with owner(fake) as a:
        fake.control(ApiKey.JOIN_GROUP, delay_answer(2.0))
        a.member.request_rejoin("a test")
        await asyncio.sleep(0.1)
        await a.offsets.commit({P[0]: 7})
        assert fake.committed_offset("g", "t", 0) == 7
        assert len(a.protocol.generations) == 2


@virtual_time
async def test_a_member_is_in_session_while_the_coordinator_answers(fake: FakeCluster) -> None:
    async with owner(fake) as a:
        await asyncio.sleep(20)
        assert a.gate.is_in_session
        fake.control(ApiKey.HEARTBEAT, DROP_ANSWER, keep=True)
        await asyncio.sleep(5)
        assert a.gate.is_in_session
        await asyncio.sleep(1.5)
        assert not a.gate.is_in_session
