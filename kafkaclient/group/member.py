"""A member of a consumer group: joins, gets assignments, keeps its place, leaves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.group.ownership import (
    TRANSITIONS,
    Loss,
    MemberEvent,
    MemberState,
    error_event,
    join_event,
)
from kafkaclient.time_limit import cancel_and_wait
from kafkaclient.wire.membership import HeartbeatCall, JoinGroupCall, LeaveGroupCall, SyncGroupCall

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from kafkaclient.errors import BrokerError
    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.group.connection import GroupConnection
    from kafkaclient.types import ConsumerGroupMetadata
    from kafkaclient.wire.membership import JoinedGroup

_log = logging.getLogger(__name__)

# After an assignment, or a request to rebalance, another rebalance usually follows: for _EAGER_S
# seconds a heartbeat every _EAGER_HEARTBEAT_S seconds tells the member of it.
_EAGER_HEARTBEAT_S = 0.025
_EAGER_S = 3.0
_COMMIT_S = 1.0  # JoinGroup waits this long for commits under way
_PATIENCE_S = 0.5  # commits wait this long for other members to join, then go on


class Generation(NamedTuple):
    """A generation of the group, seen by this member."""

    generation_id: int
    member_id: str
    is_leader: bool


class GroupProtocol(Protocol):
    """What a member tells its group, and does with the answer."""

    def subscriptions(self) -> Mapping[str, bytes]:
        """What the member tells the leader: its topics, what it owns, ... By assignor, the
        preferred one first. All members of the group need a common assignor."""

    async def before_rejoin(self) -> None:
        """Give up what must be given up before the member joins again: everything, if the rebalance
        is eager. The member sends heartbeats meanwhile."""

    async def assign(self, assignor: str, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """On the leader: member id -> assignment, from the members' subscriptions. Must return in
        much less than the session timeout."""

    async def assigned(self, assignment: bytes, generation: Generation) -> bool:
        """Take up an assignment, and give up what is not part of it. Returns whether the leader
        waits for a partition that this member claimed: then the member joins again at once, so that
        the next owner gets it. The member sends heartbeats meanwhile, and joins no other
        generation."""

    def all_lost(self) -> None:
        """Everything is lost: another member may own it. Nothing may be committed."""


class GroupMember(Protocol):
    """What both kinds of members have."""

    @property
    def member_id(self) -> str: ...

    @property
    def is_rebalancing(self) -> bool: ...

    def request_rejoin(self, reason: str) -> None: ...

    def commit_refused(self, code: int, group: ConsumerGroupMetadata) -> None: ...

    async def run(self) -> None: ...

    async def leave(self, reason: str, timeout_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Times in milliseconds, under Kafka's names."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    group_instance_id: str | None = None
    """``group.instance.id`` of a static member (KIP-345)."""


class Member:
    """Runs until cancelled. Owns the member's state; the table in ``ownership`` has the rules.

    Rebalances are cooperative (KIP-429): only an assignment or a loss changes what the protocol
    has, unless it gives up partitions before it joins. Commits stop only for the first half second
    of a join (most joins are over by then), and until the new assignment is known.
    """

    def __init__(
        self,
        connection: GroupConnection,
        protocol: GroupProtocol,
        options: MemberOptions,
        gate: CommitGate,
        clock: Callable[[], float],
    ) -> None:
        self.state = MemberState.JOINING
        self._connection = connection
        self._group_id = connection.group_id
        self._protocol = protocol
        self._options = options
        self._gate = gate
        self._clock = clock
        self._member_id = ""
        self._generation_id = -1
        """The last one joined."""
        self._joined: JoinedGroup | None = None
        """While SYNCING."""
        self._reason: str | None = "the member has started"
        """Why to join again. None: there is no reason."""
        self._wake = asyncio.Event()
        self._applying: asyncio.Task[bool] | None = None
        self._eager_until = 0.0

    @property
    def member_id(self) -> str:
        """Empty before the first join, and after the group has removed this member."""
        return self._member_id

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance is under way here, or requested."""
        return self.state is not MemberState.STABLE or self._reason is not None

    def request_rejoin(self, reason: str) -> None:
        """Join again, soon. The group rebalances if this member is the leader, or its subscription
        has changed."""
        self._reason = self._reason or reason
        self._eager_until = self._clock() + _EAGER_S
        self._wake.set()

    def commit_refused(self, code: int, group: ConsumerGroupMetadata) -> None:
        """The coordinator has refused a commit of this member as ``group``. During a rebalance the
        error is ignored, because the answer to JoinGroup or SyncGroup is more precise."""
        event = error_event(code)
        if self.state is MemberState.JOINING:
            if event in (MemberEvent.REBALANCE, MemberEvent.GENERATION_OVER):
                self._gate.shut()  # the answer to JoinGroup is late: commits wait for it
        elif self.state is MemberState.STABLE and group == self._gate.group:
            if event is MemberEvent.REBALANCE:
                self.request_rejoin("a commit was refused")
            elif event in (MemberEvent.GENERATION_OVER, MemberEvent.EVICTED, MemberEvent.FENCED):
                self._advance(event, code)
                self._wake.set()

    async def run(self) -> None:
        """Be a member, until cancelled. Call :meth:`leave` afterwards.

        Raises:
            BrokerError: another member has the same group.instance.id (FENCED_INSTANCE_ID), or the
                group refuses the member.
            KafkaError: calls to the coordinator fail in a way that a retry cannot help. What the
                protocol raises is raised unchanged.
        """
        work = {
            MemberState.JOINING: self._join,
            MemberState.SYNCING: self._sync,
            MemberState.STABLE: self._stay,
        }
        try:
            while self.state in work:
                await work[self.state]()
            if self.state is not MemberState.LEFT:
                raise self._refused()
        finally:
            if self._applying is not None:
                await cancel_and_wait(self._applying)

    async def leave(self, reason: str, timeout_s: float) -> None:
        """Leave the group at once. A static member stays: it may return within the session
        timeout without a rebalance (KIP-345). Never raises, except when cancelled."""
        member_id, self._member_id = self._member_id, ""
        self._advance(MemberEvent.LEFT)
        self._gate.shut()
        if not member_id or self._options.group_instance_id is not None:
            return
        call = LeaveGroupCall(self._group_id, member_id, reason)
        await self._connection.leave(call, timeout_s, "session.timeout.ms")

    # --- states ---------------------------------------------------------------------------------

    async def _join(self) -> None:
        if self._applying is not None:
            await self._applied()
        await self._gate.shut_and_clear(_COMMIT_S)
        options = self._options
        reason, self._reason = self._reason or "the group rebalances", None
        call = JoinGroupCall(
            self._group_id,
            self._member_id,
            options.group_instance_id,
            options.session_timeout_ms,
            options.rebalance_timeout_ms,
            self._protocol.subscriptions(),
            reason,
        )
        # The coordinator waits for all members. If one is slow, the others must not be.
        opening = asyncio.get_running_loop().call_later(_PATIENCE_S, self._gate.open)
        try:
            answer = await self._connection.wait(call)
        finally:
            opening.cancel()
        self._gate.shut()
        event = join_event(answer.error_code, answer.generation_id, self._generation_id)
        self._advance(event, answer.error_code)
        if event is MemberEvent.ID_GIVEN:
            self._member_id = answer.member_id
        elif self.state is MemberState.SYNCING:
            self._member_id, self._generation_id = answer.member_id, answer.generation_id
            self._joined = answer
            self._gate.begin_generation(answer.generation_id, answer.member_id)
            _log.debug(
                "member %s of group %s is in generation %d: %s",
                *(answer.member_id, self._group_id, answer.generation_id, reason),
            )

    async def _sync(self) -> None:
        joined, self._joined = self._joined, None
        assert joined is not None
        assignments: Mapping[str, bytes] = {}
        is_leader = joined.leader == self._member_id
        if is_leader and not joined.skip_assignment:
            assignments = await self._protocol.assign(joined.protocol, joined.members)
        call = SyncGroupCall(self._gate.group, joined.protocol, assignments)
        asked_at = self._clock()
        answer = await self._connection.wait(call)
        code = answer.error_code
        self._advance(error_event(code) if code else MemberEvent.SYNCED, code)
        if self.state is MemberState.STABLE:
            generation = Generation(joined.generation_id, joined.member_id, is_leader)
            self._eager_until = self._clock() + _EAGER_S
            self._apply(self._protocol.assigned(answer.assignment, generation))
            # The protocol begins to apply the assignment before a waiting commit goes on.
            await asyncio.sleep(0)
            self._gate.open()
            self._gate.answered(asked_at)

    async def _stay(self) -> None:
        """Send heartbeats until there is a reason to join again, the assignment is applied, and the
        protocol has given up what it must."""
        is_prepared = False
        while self.state is MemberState.STABLE:
            if self._applying is not None and self._applying.done():
                await self._applied()
            if self._reason is not None and self._applying is None:
                if is_prepared:
                    self._advance(MemberEvent.REBALANCE)
                    return
                self._apply(self._prepare())
                is_prepared = True
                await asyncio.sleep(0)  # most protocols have nothing to give up
                continue
            interval_s = self._options.heartbeat_interval_ms / 1000
            if self._clock() < self._eager_until:
                interval_s = min(interval_s, _EAGER_HEARTBEAT_S)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
                continue
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        asked_at = self._clock()
        sending = asyncio.create_task(self._connection.call(HeartbeatCall(self._gate.group)))
        try:
            # A heartbeat waits for a coordinator, however long that is away.
            if self._applying is not None:
                await asyncio.wait({sending, self._applying}, return_when=asyncio.FIRST_COMPLETED)
                if self._applying.done():
                    await self._applied()
            answer = await sending
        finally:
            await cancel_and_wait(sending)
        if self.state is not MemberState.STABLE:
            return
        if answer.error_code == 0:
            self._gate.answered(asked_at)
            return
        event = error_event(answer.error_code)
        if event is MemberEvent.REBALANCE:
            self._reason = self._reason or "the group rebalances"
        else:
            self._advance(event, answer.error_code)

    def _apply(self, work: Coroutine[Any, Any, bool]) -> None:
        """Have the protocol do its work while the member sends heartbeats."""
        self._applying = asyncio.create_task(work, name=f"kafkaclient-group-{self._group_id}")
        self._applying.add_done_callback(lambda _: self._wake.set())

    async def _prepare(self) -> bool:
        await self._protocol.before_rejoin()
        return False

    async def _applied(self) -> None:
        """Wait until the protocol's work is done. Raises what the protocol has raised."""
        applying = self._applying
        assert applying is not None
        await asyncio.wait({applying})
        self._applying = None
        if applying.result():
            self.request_rejoin("this member gave up partitions that it had claimed")

    # --- transitions ----------------------------------------------------------------------------

    def _advance(self, event: MemberEvent, code: int = 0) -> None:
        """Enter the next state, and lose what is lost."""
        self.state, loss = TRANSITIONS[self.state, event]
        if loss is not Loss.NOTHING:
            _log.info(
                "member %s of group %s %s: it loses %s",
                *(self._member_id, self._group_id, event.value, loss.value),
            )
            self._gate.refuse_waiting()
            self._protocol.all_lost()
        if loss is Loss.IDENTITY:
            self._member_id, self._generation_id = "", -1
        if self.state in (MemberState.FENCED, MemberState.REFUSED):
            self._refusal = code

    def _refused(self) -> BrokerError:
        """Why the group does not have this member any more."""
        group, code = self._group_id, self._refusal
        advice = denied(code, "Read", group)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            advice = (
                "the group has a newer member with group.instance.id "
                f"{self._options.group_instance_id!r}, so this one ends: give each instance its "
                "own group_instance_id"
            )
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            names = ", ".join(self._protocol.subscriptions())
            advice = (
                f"the group has members that know none of this member's assignors ({names}): "
                "either another application uses the group id, then give each application a group "
                "id (application.id) of its own; or give this member an assignor of the others "
                "(partition.assignment.strategy). kafka-consumer-groups.sh --describe --members "
                f"--group {group} shows the members"
            )
        return broker_error(code, f"joining group {group!r}", advice=advice)
