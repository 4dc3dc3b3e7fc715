"""Random histories of a group on the fake coordinator: members join, leave, die, are evicted and
cut off, and requests and answers are lost or late. No partition ever has two owners that may
write, all are owned in the end, no commit is lost or repeated.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import BrokerError
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake.cluster import FakeCluster
from kafkaclient.testing.fake.interceptors import CLOSE, CLOSE_ANSWER, DROP_ANSWER, delay_answer
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.groups import assignment_in
from tests.group.range_protocol import RangeProtocol, RunningMember, member

if TYPE_CHECKING:
    from kafkaclient.group.member import Generation
    from kafkaclient.types import TopicPartition

COUNT = 5
FAULTS = {
    "lose answer": CLOSE_ANSWER,
    "lose request": CLOSE,
    "late": delay_answer(2.0),
    "silent": DROP_ANSWER,
}
APIS = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.LEAVE_GROUP,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_FETCH,
)


class Ledger:
    """What all members did."""

    def __init__(self) -> None:
        self.owners: dict[TopicPartition, Worker] = {}
        self.acknowledged: dict[TopicPartition, int] = {}
        self.unknown: set[TopicPartition] = set()
        """The last commit was cut off: it may have succeeded."""
        self.problems: list[str] = []


class Worker:
    """Counts in one partition: reads the committed count, and commits the next one, for ever."""

    def __init__(self, protocol: CountingProtocol, partition: TopicPartition) -> None:
        ledger = protocol.ledger
        if (before := ledger.owners.get(partition)) is not None:
            if before.is_in_session:
                ledger.problems.append(f"{partition} has two owners")
            if before._committing:
                ledger.unknown.add(partition)
        ledger.owners[partition] = self
        self._protocol = protocol
        self._partition = partition
        self._committing = False
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    @property
    def is_in_session(self) -> bool:
        """Whether its member believes that nobody else has its partitions: it may write."""
        return self._protocol.gate.is_in_session

    async def _run(self) -> None:
        ledger, partition, offsets = self._protocol.ledger, self._partition, self._protocol.offsets
        done = (await offsets.committed([partition]))[partition] or 0
        known = ledger.acknowledged.get(partition, 0)
        if done < known or (done > known and partition not in ledger.unknown):
            ledger.problems.append(f"{partition} begins at {done}, acknowledged were {known}")
        ledger.unknown.discard(partition)
        while not self._stopping:
            done += 1
            self._committing = True
            try:
                await offsets.commit({partition: done})
            except BrokerError as error:
                ledger.unknown.add(partition)  # an earlier attempt may have had no answer
                if ledger.owners.get(partition) is self and error.name != "UNKNOWN_MEMBER_ID":
                    ledger.problems.append(f"{partition}: {error}")
                return
            self._committing = False
            if ledger.owners.get(partition) is not self:
                ledger.problems.append(f"{partition}: a commit after a loss")
            ledger.acknowledged[partition] = done
            await asyncio.sleep(0.05)

    async def give_up(self) -> None:
        self._stopping = True
        await asyncio.wait({self._task})
        self._gone()

    def lose(self) -> None:
        if self._committing:
            self._protocol.ledger.unknown.add(self._partition)
        self._task.cancel()
        self._gone()

    def _gone(self) -> None:
        if self._protocol.ledger.owners.get(self._partition) is self:
            del self._protocol.ledger.owners[self._partition]


class CountingProtocol(RangeProtocol):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__("t", COUNT)
        self.ledger = ledger
        self.workers: dict[TopicPartition, Worker] = {}
        self.give_up = self._give_up

    def begin(self, running: RunningMember) -> None:
        self.offsets, self.gate = running.offsets, running.gate

    async def assigned(self, assignment: bytes, generation: Generation) -> bool:
        result = asyncio.ensure_future(super().assigned(assignment, generation))
        await asyncio.sleep(0)
        new = set(assignment_in(assignment).partitions) - self.workers.keys()
        for partition in new & self.owned:
            self.workers[partition] = Worker(self, partition)
        return await result

    async def _give_up(self, partition: TopicPartition) -> None:
        if worker := self.workers.pop(partition, None):
            await worker.give_up()

    def all_lost(self) -> None:
        super().all_lost()
        self.stop()

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.lose()
        self.workers.clear()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("join", "join static", "leave", "die", "evict", "rejoin", "move", "sync", "old"),
                *FAULTS,
            ]
        ),
        st.sampled_from([0.0, 0.001, 0.003, 0.02, 0.3, 2.0]),
        st.integers(0, 10),
    ),
    max_size=8,
)


class History:
    """The group, and its members that live."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.fake = FakeCluster(2)
        self.fake.create_topic("t", COUNT)
        self.fake.round_trip_s = 0.0013
        self.ledger = Ledger()
        self.alive: list[RunningMember] = []
        self._stack = stack
        self._names = count()

    async def join(self, instance_id: str | None = None) -> None:
        if len(self.alive) < 4:
            protocol = CountingProtocol(self.ledger)
            context = member(
                self.fake.bootstrap,
                protocol,
                dialer=self.fake,
                group_instance_id=instance_id,
                session_timeout_ms=3000,
            )
            running = await self._stack.enter_async_context(context)
            protocol.begin(running)
            self.alive.append(running)

    async def happen(self, event: str, choice: int) -> None:
        match event:
            case "join":
                await self.join()
            case "join static":
                await self.join(f"i{next(self._names)}")
            case "evict":
                self.fake.control(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
            case "old":
                self.fake.control(ApiKey.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION)
            case "sync":
                self.fake.control(ApiKey.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
            case _ if event in FAULTS:
                self.fake.control(APIS[choice % len(APIS)], FAULTS[event])
            case "move":
                self.fake.move_coordinator("g", choice % 2)
            case _ if self.alive:
                await self._concern(event, self.alive[choice % len(self.alive)])

    async def _concern(self, event: str, some: RunningMember) -> None:
        protocol = some.protocol
        assert isinstance(protocol, CountingProtocol)
        if event == "rejoin":
            some.member.request_rejoin("a test")
            return
        self.alive.remove(some)
        if event == "die":
            protocol.stop()
            await some.die()
            return
        for worker in list(protocol.workers.values()):  # as at the end of an instance
            await worker.give_up()
        some.task.cancel()
        await asyncio.wait({some.task})
        protocol.stop()  # it may have been assigned more meanwhile
        await some.member.leave("a test", 1.0)

    def is_settled(self) -> bool:
        for each in self.alive:
            if each.task.done():
                each.task.result()
        is_stable = not any(each.member.is_rebalancing for each in self.alive)
        return is_stable and len(self.ledger.owners) == COUNT

    async def _progresses(self) -> bool:
        """Whether there is a commit in each partition within a second."""
        before = dict(self.ledger.acknowledged)
        await asyncio.sleep(1)
        return all(self.ledger.acknowledged[p] > number for p, number in before.items())

    async def check_end(self) -> None:
        if not self.alive:
            await self.join()
        async with asyncio.timeout(120):
            while not self.is_settled() or not await self._progresses():
                await asyncio.sleep(0.1)
        assert not self.ledger.problems, self.ledger.problems
        for running in self.alive:
            assert isinstance(running.protocol, CountingProtocol)
            running.protocol.stop()


async def history(events: list[tuple[str, float, int]]) -> None:
    async with AsyncExitStack() as stack:
        group = History(stack)
        await group.join()
        for event, pause, choice in events:
            await group.happen(event, choice)
            await asyncio.sleep(pause)
        await group.check_end()


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(EVENTS)
def test_random_histories(events: list[tuple[str, float, int]]) -> None:
    run_virtual(history(events))
