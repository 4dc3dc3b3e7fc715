"""A member of a KIP-848 group, whose coordinator assigns the partitions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.group.classic import NO_PARTITION
from kafkaclient.group.ownership import MemberState
from kafkaclient.time_limit import cancel_and_wait
from kafkaclient.types import TopicPartition
from kafkaclient.wire.membership import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatCall,
    RegexHeartbeatCall,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from uuid import UUID

    from kafkaclient.errors import BrokerError
    from kafkaclient.group.classic import Assignee
    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.group.connection import GroupConnection
    from kafkaclient.types import ConsumerGroupMetadata
    from kafkaclient.wire.membership import HeartbeatAnswer

_log = logging.getLogger(__name__)

_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_DENIED_RETRY_S = 1.0  # the right to read a topic may be granted
_UNKNOWN_TOPIC_RETRY_S = 0.5  # a topic of the assignment is not in this client's metadata yet

# Members give up partitions for a new member at their next heartbeats. For _EAGER_S seconds after
# it has joined or changed its partitions, a member asks every _EAGER_HEARTBEAT_S seconds.
_EAGER_HEARTBEAT_S = 0.25
_EAGER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatOptions:
    """``rebalance_timeout_ms``: how long the coordinator waits until this member has given up a
    partition."""

    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    rack: str | None = None
    assignor: str | None = None


class HeartbeatMember:
    """Runs until cancelled; the same interface as :class:`~kafkaclient.group.member.Member`.

    Its states::

        JOINING --answered--> STABLE --fenced: all partitions are lost--> JOINING
        JOINING, STABLE --refused--> REFUSED;   any --leave--> LEFT

    Each heartbeat tells what the member has, and each answer what it should have. The difference is
    applied in a task of its own, one at a time; heartbeats go on meanwhile. The member's epoch is
    the generation of the :class:`.CommitGate`.

    ``subscription`` returns the topics, and a regular expression or None. ``topic_names`` finds the
    names of topics by their ids.
    """

    def __init__(
        self,
        connection: GroupConnection,
        options: HeartbeatOptions,
        gate: CommitGate,
        clock: Callable[[], float],
        subscription: Callable[[], tuple[Collection[str], str | None]],
        topic_names: Callable[[Collection[UUID]], Awaitable[Mapping[UUID, str]]],
        assignee: Assignee,
    ) -> None:
        self.state = MemberState.JOINING
        self.member_id = str(uuid4())
        self._connection = connection
        self._group_id = connection.group_id
        self._options = options
        self._gate = gate
        self._clock = clock
        self._subscription = subscription
        self._topic_names = topic_names
        self._assignee = assignee
        self._epoch = JOIN_EPOCH
        self._has_joined = False
        """Whether a heartbeat was sent: the coordinator may know the member (KIP-1082)."""
        self._had_regex = False
        self._owned: dict[TopicPartition, UUID] = {}
        """Assigned, and not given up or lost yet. A topic that is created again has another id."""
        self._applying: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._eager_until = 0.0  # 0: the member asks no more often than usual

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member joins, or gives up or takes partitions."""
        return self.state is not MemberState.STABLE or self._applying is not None

    def request_rejoin(self, reason: str) -> None:
        """Send a heartbeat at once: the subscription has changed."""
        _log.debug("group %s: a heartbeat at once: %s", self._group_id, reason)
        self._wake.set()

    def commit_refused(self, code: int, group: ConsumerGroupMetadata) -> None:
        """The coordinator has refused a commit of this member as ``group``."""
        if self.state is not MemberState.STABLE or group != self._gate.group:
            return
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            self._gate.shut()  # the answer to the next heartbeat has the epoch, and opens it
            self._wake.set()
        elif code in _FENCED:
            self._fenced(code)
            self._wake.set()

    async def run(self) -> None:
        """Be a member, until cancelled. Call :meth:`leave` afterwards.

        Raises BrokerError if the group refuses the member, UnsupportedVersionError if the
        coordinator does not have KIP-848, and KafkaError if calls fail in a way that a retry cannot
        help. What the assignee raises is raised unchanged.
        """
        try:
            while self.state in (MemberState.JOINING, MemberState.STABLE):
                pause_s = await self._beat()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
        finally:
            if self._applying is not None:
                await cancel_and_wait(self._applying)

    async def leave(self, reason: str, timeout_s: float) -> None:
        """Leave the group at once. A static member keeps its partitions for the session timeout.
        Never raises, except when cancelled."""
        is_member = self._has_joined and self.state is not MemberState.REFUSED
        self.state = MemberState.LEFT
        self._gate.shut()
        if not is_member:
            return
        is_static = self._options.group_instance_id is not None
        self._epoch = LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH
        _log.debug("member %s leaves group %s: %s", self.member_id, self._group_id, reason)
        await self._connection.leave(self._call(), timeout_s, "the session timeout")

    # --- heartbeats -----------------------------------------------------------------------------

    async def _beat(self) -> float:
        """Send a heartbeat, and begin to apply its answer. Returns the pause until the next."""
        if self._applying is not None and self._applying.done():
            applied, self._applying = self._applying, None
            applied.result()
        self._wake.clear()
        asked_at = self._clock()
        epoch, self._has_joined = self._epoch, True
        answer = await self._connection.call(self._call())
        if epoch != self._epoch:
            return 0.0  # a commit has told meanwhile that the member is fenced
        if answer.error_code in _FENCED:
            self._fenced(answer.error_code)
            return 0.0
        if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # as in Java
            self._assignee.denied(self._refused(answer))
            return _DENIED_RETRY_S
        if answer.error_code:
            self.state = MemberState.REFUSED
            raise self._refused(answer)
        if self.state is MemberState.JOINING:
            self._eager_until = self._clock() + _EAGER_S
            _log.info(
                "member %s has joined group %s, epoch %d",
                *(self.member_id, self._group_id, answer.member_epoch),
            )
        self.state = MemberState.STABLE
        self._epoch = answer.member_epoch
        self._gate.begin_generation(answer.member_epoch, self.member_id)
        self._gate.open()
        self._gate.answered(asked_at)
        pause_s = self._pause_s(answer.heartbeat_interval_ms / 1000)
        if answer.assignment is not None and self._applying is None:
            pause_s = min(pause_s, await self._compare(answer.assignment))
        return pause_s

    def _pause_s(self, interval_s: float) -> float:
        """The pause until the next heartbeat. Logs a member that still has no partition when it
        stops asking often."""
        if self._clock() < self._eager_until:
            return min(interval_s, _EAGER_HEARTBEAT_S)
        if self._eager_until and not self._owned:
            _log.info(NO_PARTITION, self.member_id)
        self._eager_until = 0.0
        return interval_s

    async def _compare(self, assignment: Mapping[UUID, Collection[int]]) -> float:
        """Begin to apply the assignment, if it differs from what the member has."""
        # The metadata may have only the new id already of a topic that was created again.
        names = {topic_id: where.topic for where, topic_id in self._owned.items()}
        if others := assignment.keys() - names.keys():
            names |= await self._topic_names(others)
        target = {
            TopicPartition(names[topic_id], number): topic_id
            for topic_id, numbers in assignment.items()
            if topic_id in names
            for number in numbers
        }
        if self.state is MemberState.STABLE and target != self._owned:
            self._applying = asyncio.create_task(
                self._apply(target), name=f"kafkaclient-group-{self._group_id}"
            )
            self._applying.add_done_callback(lambda _: self._wake.set())
        elif target == self._owned:
            self._assignee.rebalance_ended()
        return float("inf") if names.keys() >= assignment.keys() else _UNKNOWN_TOPIC_RETRY_S

    async def _apply(self, target: dict[TopicPartition, UUID]) -> None:
        times_lost = self._gate.times_lost
        self._assignee.rebalance_began()
        self._eager_until = self._clock() + _EAGER_S
        replaced = {tp for tp, topic in self._owned.items() if target.get(tp, topic) != topic}
        if replaced:
            await self._assignee.revoked(replaced)
            if times_lost != self._gate.times_lost:
                return
        before = self._owned.keys() - replaced
        self._owned |= target
        if added := target.keys() - before:
            await self._assignee.added(added)
        if leaving := before - target.keys():
            await self._assignee.revoked(leaving)
        if times_lost == self._gate.times_lost:
            self._owned = target
            self._assignee.rebalance_ended()

    def _fenced(self, code: int) -> None:
        """The coordinator knows this member no more: its partitions may have other owners."""
        error = broker_error(code, f"a heartbeat in group {self._group_id!r}")
        _log.info("member %s loses its partitions and joins again: %s", self.member_id, error)
        self.state = MemberState.JOINING
        self._epoch = JOIN_EPOCH
        self._gate.shut()
        self._gate.refuse_waiting()
        lost = frozenset(self._owned)
        self._owned.clear()
        self._assignee.lost(lost)

    def _call(self) -> ConsumerGroupHeartbeatCall:
        topics, regex = self._subscription()
        if regex is None and self._had_regex:
            regex = ""  # null would leave the old one in place
        self._had_regex = regex is not None
        owned: dict[UUID, list[int]] = {}
        for where, topic_id in sorted(self._owned.items()):
            owned.setdefault(topic_id, []).append(where.partition)
        options = self._options
        kind = ConsumerGroupHeartbeatCall if regex is None else RegexHeartbeatCall
        return kind(
            self._group_id,
            self.member_id,
            self._epoch,
            options.group_instance_id,
            options.rack,
            options.rebalance_timeout_ms,
            tuple(sorted(topics)),
            options.assignor,
            owned,
            regex,
        )

    def _refused(self, answer: HeartbeatAnswer) -> BrokerError:
        code, group = answer.error_code, self._group_id
        advice = denied(code, "Read", group)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topics = " or ".join(sorted(self._subscription()[0]))
            advice = denied(code, "Describe", topics, grant="Read")
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            advice = (
                "another member of the group has group.instance.id "
                f"{self._options.group_instance_id!r}: give each instance its own, or wait until "
                "the other one has left or its session has ended"
            )
        return broker_error(code, f"joining group {group!r}", answer.error_message, advice=advice)
