"""A plain protocol over a group member: partitions of one topic, dealt out in order, cooperatively.

Used on the fake cluster and on real brokers, and together with aiokafka's and Java's members, whose
assignors may have the same name.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kafkaclient.config.reader import AdminConfig
from kafkaclient.group.commit_gate import CommitGate
from kafkaclient.group.connection import GroupConnection, GroupOffsets, group_connection
from kafkaclient.group.member import Generation, Member, MemberOptions
from kafkaclient.group.ownership import Claims, Ownership
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import (
    ConsumerAssignment,
    ConsumerSubscription,
    assignment_in,
    subscription_in,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


class RangeProtocol:
    """Records what happens to its partitions. ``give_up`` is awaited for each revoked partition."""

    def __init__(self, topic: str, count: int, name: str = "range") -> None:
        self.name = name
        self.topic = topic
        self.partitions = [TopicPartition(topic, number) for number in range(count)]
        self.claims = Claims()
        self.generations: list[Generation] = []
        self.log: list[tuple[str, list[int]]] = []
        """What was added, revoked or lost, in order."""
        self.give_up: Any = None

    @property
    def owned(self) -> set[TopicPartition]:
        return self.claims.owned

    def subscriptions(self) -> Mapping[str, bytes]:
        told = ConsumerSubscription(
            (self.topic,), None, self.claims.claim(), self.claims.generation_id
        )
        return {self.name: told.encode()}

    async def before_rejoin(self) -> None:
        """Partitions stay."""

    async def assign(self, _assignor: str, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        told = {member: subscription_in(data) for member, data in members.items()}
        names = sorted(members)
        share, rest = divmod(len(self.partitions), len(names))
        wanted, begin = {}, 0
        for number, name in enumerate(names):
            end = begin + share + (number < rest)
            wanted[name] = self.partitions[begin:end]
            begin = end
        ownership = Ownership.of(told)
        return {
            name: ConsumerAssignment(
                tuple(p for p in found if ownership.may_have(name, p)), None
            ).encode()
            for name, found in wanted.items()
        }

    async def assigned(self, assignment: bytes, generation: Generation) -> bool:
        new = set(assignment_in(assignment).partitions)
        self.generations.append(generation)
        self._note("added", new - self.owned)
        revoked = self.owned - new
        joins_again = bool(self.claims.take(new, generation.generation_id))
        if self.give_up is not None:
            for partition in sorted(revoked):
                await self.give_up(partition)
        self._note("revoked", revoked & self.owned)
        self.claims.keep(new)
        return joins_again

    def all_lost(self) -> None:
        self._note("lost", self.owned)
        self.claims.clear()

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        if partitions:
            self.log.append((what, sorted(p.partition for p in partitions)))

    def numbers(self) -> list[int]:
        return sorted(p.partition for p in self.owned)


class RunningMember:
    """A member that runs."""

    def __init__(
        self, connection: GroupConnection, protocol: RangeProtocol, options: MemberOptions
    ) -> None:
        self.connection = connection
        self.protocol = protocol
        clock = asyncio.get_running_loop().time
        shorter_ms = min(options.session_timeout_ms, options.rebalance_timeout_ms)
        self.gate = CommitGate(
            connection.group_id, options.group_instance_id, shorter_ms / 1000, clock
        )
        self.member = Member(connection, protocol, options, self.gate, clock)
        self.offsets = GroupOffsets(connection, self.gate, self.member.commit_refused, 30.0)
        self.task = asyncio.create_task(self.member.run())
        self.is_dead = False

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait, and raise the member's error if it ends."""
        async with asyncio.timeout(seconds):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.005)

    async def owns(self, *numbers: int) -> None:
        try:
            await self.until(
                lambda: self.protocol.numbers() == list(numbers) and not self.member.is_rebalancing
            )
        except TimeoutError:
            raise AssertionError(
                f"{self.protocol.numbers()} instead of {list(numbers)}; {self.protocol.log}"
            ) from None

    async def die(self) -> None:
        """End without leaving the group."""
        self.is_dead = True
        self.task.cancel()
        await asyncio.wait({self.task})


@asynccontextmanager
async def member(
    bootstrap: str,
    protocol: RangeProtocol,
    *,
    group: str = "g",
    dialer: Any = None,
    **options: Any,
) -> AsyncIterator[RunningMember]:
    """A member, which leaves at the end."""
    times: dict[str, Any] = {
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 20_000,
        "heartbeat_interval_ms": 300,
        **options,
    }
    async with group_connection(
        group,
        AdminConfig.build(bootstrap),
        rebalance_timeout_s=times["rebalance_timeout_ms"] / 1000,
        dialer=dialer,
    ) as connection:
        running = RunningMember(connection, protocol, MemberOptions(**times))
        try:
            yield running
        finally:
            running.task.cancel()
            await asyncio.wait({running.task})
            if not running.is_dead:
                await running.member.leave("the test is over", 5.0)
