"""A group without clock and sockets: Kafka's coordinator, members with the tables and claims of
this package, its leader, and a network that loses, delays and repeats requests and loses answers.

Coordinator: Java's ``GroupMetadataManager`` for classic groups. A static member that restarts gets
the assignment of its predecessor without a rebalance, and static members that miss a rebalance stay
in the group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkaclient.group.ownership import (
    TRANSITIONS,
    Claims,
    Loss,
    MemberEvent,
    MemberState,
    error_event,
    join_event,
)
from kafkaclient.streams import AssignmentConfigs, TaskId
from kafkaclient.streams.group_protocol import NO_REBALANCE, SubscriptionInfo
from kafkaclient.streams.leader import MemberAssignment, compute_assignments
from kafkaclient.streams.tasks import LATEST_OFFSET
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import ConsumerSubscription
from tests.streams.fakes import topology_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 4
ALL = frozenset(TopicPartition("t", number) for number in range(PARTITIONS))
TASKS = [TaskId(0, number) for number in range(PARTITIONS)]
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
MEMBER_ID_REQUIRED, FENCED = 79, 82
PREPARING, COMPLETING, STABLE = "PreparingRebalance", "CompletingRebalance", "Stable"


async def _nothing(record: object, store: object, emit: object) -> None:
    """A processor."""


TOPOLOGY = topology_of(_nothing, topic="t")
CONFIGS = AssignmentConfigs(acceptable_recovery_lag=100)


class Request(NamedTuple):
    """``name``: join, sync, heartbeat, commit or leave. ``attempt`` counts in its member: only the
    answer to the last attempt is read, because a retry closes the connection."""

    name: str
    sender: Member
    attempt: int
    member_id: str
    generation: int
    told: ConsumerSubscription | None = None
    assignments: dict[str, MemberAssignment] | None = None


class Answer(NamedTuple):
    request: Request
    code: int
    generation: int = -1
    member_id: str = ""
    is_leader: bool = False
    members: dict[str, ConsumerSubscription] | None = None
    """For the leader. None: the others, and a leader that keeps its assignment (KIP-814)."""
    assignment: MemberAssignment | None = None


@dataclass(eq=False)
class Seat:
    """A member, as the coordinator sees it."""

    instance_id: str | None
    told: ConsumerSubscription
    joining: Request | None = None
    syncing: Request | None = None
    assignment: MemberAssignment | None = None


@dataclass
class Coordinator:
    generation: int = 0
    state: str = STABLE
    leader: str = ""
    seats: dict[str, Seat] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=count)
    _promised: set[str] = field(default_factory=set)

    def receive(self, request: Request) -> None:
        getattr(self, f"_{request.name}")(request)

    def _refusal(self, request: Request) -> int:
        instance_id = request.sender.instance_id
        if request.member_id not in self.seats:
            known = [s.instance_id for s in self.seats.values()]
            return FENCED if instance_id and instance_id in known else UNKNOWN_MEMBER_ID
        return 0 if request.generation == self.generation else ILLEGAL_GENERATION

    def _refuse(self, request: Request, code: int) -> None:
        self.answers.append(Answer(request, code))

    def _join(self, request: Request) -> None:
        assert request.told is not None
        sender, member_id = request.sender, request.member_id
        if not member_id and sender.instance_id is None:
            member_id = f"m-{next(self._ids)}"
            self._promised.add(member_id)
            self.answers.append(Answer(request, MEMBER_ID_REQUIRED, member_id=member_id))
            return
        if member_id and member_id not in self.seats.keys() | self._promised:
            self._refuse(request, self._refusal(request))
            return
        is_back = False
        if not member_id:
            member_id = f"{sender.instance_id}-{next(self._ids)}"
            is_back = self._replace_static(sender.instance_id, member_id)
        is_new = member_id not in self.seats
        seat = self.seats.setdefault(member_id, Seat(sender.instance_id, request.told))
        changed = is_new or seat.told != request.told
        seat.told = request.told
        if is_back and self.state == STABLE:
            self._joined(request, member_id, skips=True)
        elif (
            not changed
            and not is_back
            and (self.state == COMPLETING or (self.state == STABLE and member_id != self.leader))
        ):
            self._joined(request, member_id)
        else:
            seat.joining = request._replace(member_id=member_id)
            self.rebalance()

    def _replace_static(self, instance_id: str | None, member_id: str) -> bool:
        """Whether there is a member with this instance id; it is replaced."""
        old = next((n for n, s in self.seats.items() if s.instance_id == instance_id), None)
        if old is None:
            return False
        seat = self.seats.pop(old)
        for waiting in filter(None, (seat.joining, seat.syncing)):
            self._refuse(waiting, FENCED)
        seat.joining = seat.syncing = None
        self.seats[member_id] = seat
        if self.leader == old:
            self.leader = member_id
        return True

    def waits(self, request: Request | None) -> bool:
        """Whether the request is answered when other members have done their part."""
        waiting = (r for seat in self.seats.values() for r in (seat.joining, seat.syncing) if r)
        return request is not None and request.attempt in (
            each.attempt for each in waiting if each.sender is request.sender
        )

    def rebalance(self) -> None:
        if self.state != PREPARING:
            self.state = PREPARING
            for seat in self.seats.values():
                if seat.syncing is not None:
                    self._refuse(seat.syncing, REBALANCE_IN_PROGRESS)
                    seat.syncing = None
        if all(seat.joining for seat in self.seats.values()):
            self.complete()

    def complete(self) -> None:
        """All have joined, or rebalance.timeout.ms is over."""
        if self.state != PREPARING or not any(seat.joining for seat in self.seats.values()):
            return
        for name, seat in list(self.seats.items()):
            if seat.joining is None and seat.instance_id is None:
                del self.seats[name]
        self.generation += 1
        self.state = COMPLETING
        joined = [name for name, seat in self.seats.items() if seat.joining]
        if self.leader not in joined:
            self.leader = joined[0]
        for name in joined:
            request, self.seats[name].joining = self.seats[name].joining, None
            assert request is not None
            self._joined(request, name)

    def _joined(self, request: Request, member_id: str, *, skips: bool = False) -> None:
        leads = member_id == self.leader
        members = {name: seat.told for name, seat in self.seats.items()}
        self.answers.append(
            Answer(
                request,
                0,
                self.generation,
                member_id,
                leads,
                members if leads and not skips else None,
            )
        )

    def _sync(self, request: Request) -> None:
        code = self._refusal(request)
        if not code and self.state == PREPARING:
            code = REBALANCE_IN_PROGRESS
        if code:
            self._refuse(request, code)
            return
        seat = self.seats[request.member_id]
        if self.state == STABLE:
            self.answers.append(Answer(request, 0, assignment=seat.assignment))
            return
        seat.syncing = request
        if request.member_id == self.leader and request.assignments is not None:
            self.state = STABLE
            for name, each in self.seats.items():
                each.assignment = request.assignments.get(name)
                if each.syncing is not None:
                    self.answers.append(Answer(each.syncing, 0, assignment=each.assignment))
                    each.syncing = None

    def _heartbeat(self, request: Request) -> None:
        code = self._refusal(request)
        if not code and self.state == PREPARING:
            code = REBALANCE_IN_PROGRESS
        self._refuse(request, code)

    def _commit(self, request: Request) -> None:
        code = self._refusal(request)
        if not code and self.state == COMPLETING:
            code = REBALANCE_IN_PROGRESS
        self._refuse(request, code)

    def _leave(self, request: Request) -> None:
        self.remove(request.member_id)

    def remove(self, member_id: str) -> None:
        """It leaves, or its session is over."""
        seat = self.seats.pop(member_id, None)
        if seat is None:
            return
        for waiting in filter(None, (seat.joining, seat.syncing)):
            self._refuse(waiting, UNKNOWN_MEMBER_ID)
        if self.seats:
            self.rebalance()
        else:
            self.state, self.leader = STABLE, ""


class Member:
    """As ``membership/member.py`` and ``runtime/streams_protocol.py``, step by step."""

    def __init__(self, number: int, instance_id: str | None) -> None:
        self.process_id = UUID(int=number + 1)
        self.instance_id = instance_id
        self.attempts = 0
        self.restart()

    def restart(self) -> None:
        """The process begins, and knows nothing."""
        self.state = MemberState.JOINING
        self.claims = Claims()
        self.member_id, self.generation = "", -1
        self.reason = True
        self.timer = False
        self.asking: Request | None = None
        self._joins = 0

    def next_request(self) -> Request | None:
        """The request that it sends now. Repeated unchanged until there is an answer."""
        self.attempts += 1
        if self.asking is not None:
            self.asking = self.asking._replace(attempt=self.attempts)
            return self.asking
        if self.state is MemberState.STABLE and self.reason:
            self.advance(MemberEvent.REBALANCE)
        if self.state is MemberState.JOINING:
            self.reason = False
            self._joins += 1
            sums = {TaskId(0, p.partition): LATEST_OFFSET for p in self.claims.owned}
            info = SubscriptionInfo(
                process_id=self.process_id, task_offset_sums=sums, unique_field=self._joins % 100
            )
            claimed = self.claims.claim()
            told = ConsumerSubscription(("t",), info.encode(), claimed, self.claims.generation_id)
            self.asking = self._request("join", told=told)
        elif self.state is MemberState.SYNCING:
            self.asking = self._request("sync", assignments=self._assignments)
        elif self.state is MemberState.STABLE:
            self.asking = self._request("heartbeat")
        return self.asking

    def _request(self, name: str, **more: object) -> Request:
        return Request(name, self, self.attempts, self.member_id, self.generation, **more)  # type: ignore[arg-type]

    def advance(self, event: MemberEvent) -> None:
        self.state, loss = TRANSITIONS[self.state, event]
        if loss is not Loss.NOTHING:
            self.claims.clear()
        if loss is Loss.IDENTITY:
            self.member_id, self.generation = "", -1

    def receive(self, answer: Answer) -> None:
        asking = self.asking
        if asking is None or answer.request.attempt != asking.attempt:
            return
        self.asking = None
        if asking.name == "join":
            self._joined(answer)
        elif asking.name == "sync":
            self.advance(error_event(answer.code) if answer.code else MemberEvent.SYNCED)
            if not answer.code:
                self._assigned(answer.assignment)
        elif answer.code == REBALANCE_IN_PROGRESS:
            self.reason = True
        elif answer.code:
            self.advance(error_event(answer.code))

    def _joined(self, answer: Answer) -> None:
        event = join_event(answer.code, answer.generation, self.generation)
        self.advance(event)
        if event is MemberEvent.ID_GIVEN:
            self.member_id = answer.member_id
        if self.state is not MemberState.SYNCING:
            return
        self.member_id, self.generation = answer.member_id, answer.generation
        self.is_leader = answer.is_leader
        self._assignments = None
        if answer.members is not None:
            self._assignments = compute_assignments(
                answer.members,
                TOPOLOGY,
                {"t": PARTITIONS},
                dict.fromkeys(TASKS, 0),
                CONFIGS,
                next_probing_ms=1_000,
                follow_up_ms=500,
            )
        elif answer.is_leader:
            self._assignments = {}

    def _assigned(self, assignment: MemberAssignment | None) -> None:
        given = assignment or MemberAssignment([], None)  # type: ignore[arg-type]
        self.reason |= bool(self.claims.take(set(given.partitions), self.generation))
        self.claims.keep(set(given.partitions))
        next_ms = NO_REBALANCE if given.info is None else given.info.next_rebalance_ms
        self.timer = self.is_leader and next_ms != NO_REBALANCE

    def timer_fires(self) -> None:
        if self.timer and self.state is MemberState.STABLE:
            self.timer, self.reason = False, True


class Group:
    """A group, its network, and everything that can happen."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.members: list[Member] = []
        self.requests: list[Request] = []
        """On the wire."""
        self.old: list[Request] = []
        """Were delivered, or given up: may come (again)."""
        self._numbers = count()
        self.timers_needed = 0
        self.restarts = 0

    # --- what happens, with a choice --------------------------------------------------------------

    def start(self, choice: int) -> None:
        if len(self.members) < 4:
            number = next(self._numbers)
            instance_id = f"i{number}" if choice % 3 == 0 else None
            self.members.append(Member(number, instance_id))

    def send(self, choice: int) -> None:
        """A member sends its next request, or repeats the one that has no answer."""
        if self.members:
            sender = self.members[choice % len(self.members)]
            self.old += [each for each in self.requests if each.sender is sender]
            self.requests = [each for each in self.requests if each.sender is not sender]
            if request := sender.next_request():
                self.requests.append(request)

    def deliver(self, choice: int) -> None:
        if self.requests:
            request = self.requests.pop(choice % len(self.requests))
            self.coordinator.receive(request)

    def repeat(self, choice: int) -> None:
        """A request of a connection that was closed reaches the coordinator late, or twice."""
        if self.old:
            self.coordinator.receive(self.old.pop(choice % len(self.old)))

    def lose_request(self, choice: int) -> None:
        if self.requests:
            self.requests.pop(choice % len(self.requests))

    def answer(self, choice: int) -> None:
        if self.coordinator.answers:
            found = self.coordinator.answers.pop(choice % len(self.coordinator.answers))
            found.request.sender.receive(found)

    def lose_answer(self, choice: int) -> None:
        if self.coordinator.answers:
            self.coordinator.answers.pop(choice % len(self.coordinator.answers))

    def expire(self, choice: int) -> None:
        """A session is over. Members that wait for others have none."""
        names = [n for n, seat in self.coordinator.seats.items() if seat.joining is None]
        if names:
            self.coordinator.remove(names[choice % len(names)])

    def time_out(self, choice: int) -> None:
        """rebalance.timeout.ms is over."""
        self.coordinator.complete()

    def ask(self, choice: int) -> None:
        """A member asks for a rebalance."""
        if self.members:
            self.members[choice % len(self.members)].reason = True

    def restart(self, choice: int) -> None:
        """A process is killed, and starts again."""
        if self.members:
            member = self.members[choice % len(self.members)]
            self.restarts += member.instance_id is not None
            self.old += [each for each in self.requests if each.sender is member]
            self.requests = [each for each in self.requests if each.sender is not member]
            member.restart()

    def leave(self, choice: int) -> None:
        if self.members:
            member = self.members.pop(choice % len(self.members))
            self.requests = [each for each in self.requests if each.sender is not member]
            if member.instance_id is None and member.member_id and choice % 2:
                self.coordinator.remove(member.member_id)

    # --- the end ----------------------------------------------------------------------------------

    def settle(self, rounds: int = 60) -> None:
        """The network is well again: all is owned after a few rounds of requests and answers."""
        if not self.members:
            self.start(1)
        for _ in range(rounds):
            self.round()
            gone = self._end_sessions()
            is_stable = all(m.state is MemberState.STABLE and not m.reason for m in self.members)
            if is_stable and not gone and self._is_done():
                return
        raise AssertionError(f"not settled: {self}")

    def round(self) -> None:
        """Each member sends its request, and gets the answer if there is one."""
        for number, member in enumerate(self.members):
            if member.state is MemberState.FENCED:
                # By its own first JoinGroup, without member id, that came after the second. The
                # instance ends, as in Kafka Streams, and is started again.
                self.restart(number)
            if not self.coordinator.waits(member.asking):
                self.send(number)
        while self.requests:
            self.deliver(0)
        while self.coordinator.answers:
            self.answer(0)

    def _end_sessions(self) -> bool:
        """Remove the members that nobody is any more. Returns whether there were any."""
        known = {member.member_id for member in self.members}
        gone = [
            name
            for name, seat in self.coordinator.seats.items()
            if name not in known and not (seat.joining and seat.joining.sender in self.members)
        ]
        for name in gone:
            self.coordinator.remove(name)
        return bool(gone)

    def _is_done(self) -> bool:
        owned = [p for member in self.members for p in member.claims.owned]
        if sorted(owned) == sorted(ALL):
            return True
        leader = [member for member in self.members if member.timer]
        assert leader, f"no rebalance is planned: {self}"
        self.timers_needed += 1
        leader[0].timer_fires()
        return False

    def __str__(self) -> str:
        return f"{self.coordinator.state} {self.coordinator.generation} " + ", ".join(
            f"{m.member_id} {m.state.value} {sorted(p.partition for p in m.claims.owned)}"
            for m in self.members
        )

    def check(self) -> None:
        """No partition has two owners that are both in the generation that the group has now."""
        current = [
            member
            for member in self.members
            if member.state is MemberState.STABLE
            and member.generation == self.coordinator.generation
            and member.member_id in self.coordinator.seats
        ]
        owned = [p for member in current for p in member.claims.owned]
        assert len(owned) == len(set(owned)), f"two owners: {self}"


DISTURBING = (
    *("start", "ask", "repeat", "lose_request", "lose_answer"),
    *("expire", "time_out", "restart", "leave"),
)
EVENTS = ("send", "deliver", "answer", *DISTURBING)
