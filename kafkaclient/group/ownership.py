"""The states of a member, and who owns which partitions (KIP-429). Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.groups import ConsumerSubscription


# --- The states of a group member -----------------------------------------------------------------
# The protocol is the classic one of Java's ``ConsumerCoordinator`` with cooperative rebalances
# (KIP-429): a member that joins again keeps what it has, unless the table says that it is lost.


class MemberState(Enum):
    """Java's ``MemberState``, with ends."""

    JOINING = "joining"
    """JoinGroup is under way or due. The member works on with what it has."""
    SYNCING = "syncing"
    """In a new generation whose assignment is not known yet: commits would be refused."""
    STABLE = "stable"
    """Has its assignment, and sends heartbeats."""
    FENCED = "fenced"
    """Another member has this one's group.instance.id."""
    REFUSED = "refused"
    """The coordinator accepts no such member."""
    LEFT = "left"


class MemberEvent(Enum):
    JOINED = "joined"
    JOINED_LATE = "joined after a missed generation"
    """The group had a generation that this member knows nothing of."""
    ID_GIVEN = "given a member id"
    """MEMBER_ID_REQUIRED (KIP-394): join again with it."""
    SYNCED = "got its assignment"
    REBALANCE = "the group rebalances"
    """REBALANCE_IN_PROGRESS, or this member asks for a rebalance."""
    GENERATION_OVER = "its generation is over"
    """ILLEGAL_GENERATION"""
    EVICTED = "was removed from the group"
    """UNKNOWN_MEMBER_ID"""
    FENCED = "was fenced"
    """FENCED_INSTANCE_ID (KIP-345)"""
    REFUSED = "was refused"
    """Any other error: INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, ..."""
    LEFT = "left"


class Loss(Enum):
    """What a member loses in a transition. Lost partitions may have another owner already: nothing
    may be committed for them."""

    NOTHING = "nothing"
    PARTITIONS = "its partitions"
    IDENTITY = "its partitions and its member id"


class Step(NamedTuple):
    """What follows from an event."""

    state: MemberState
    loss: Loss = Loss.NOTHING


_S, _E = MemberState, MemberEvent
_MEMBER = (_S.JOINING, _S.SYNCING, _S.STABLE)

TRANSITIONS: Mapping[tuple[MemberState, MemberEvent], Step] = {
    (before, event): step
    for event, states, step in (
        (_E.JOINED, (_S.JOINING,), Step(_S.SYNCING)),
        (_E.JOINED_LATE, (_S.JOINING,), Step(_S.SYNCING, Loss.PARTITIONS)),
        (_E.ID_GIVEN, (_S.JOINING,), Step(_S.JOINING)),
        (_E.SYNCED, (_S.SYNCING,), Step(_S.STABLE)),
        (_E.REBALANCE, (_S.SYNCING, _S.STABLE), Step(_S.JOINING)),
        # The leader of every later generation knows all that this member owns, because the member
        # has got no new partitions since its JoinGroup.
        (_E.GENERATION_OVER, (_S.SYNCING,), Step(_S.JOINING)),
        # A static member misses a generation and stays in the group; the leader of that generation
        # knew only what the member owned before its last assignment.
        (_E.GENERATION_OVER, (_S.STABLE,), Step(_S.JOINING, Loss.PARTITIONS)),
        (_E.EVICTED, _MEMBER, Step(_S.JOINING, Loss.IDENTITY)),
        (_E.FENCED, _MEMBER, Step(_S.FENCED, Loss.IDENTITY)),
        (_E.REFUSED, _MEMBER, Step(_S.REFUSED, Loss.IDENTITY)),
        (_E.LEFT, (*_MEMBER, _S.FENCED, _S.REFUSED, _S.LEFT), Step(_S.LEFT)),
    )
    for before in states
}
"""(state, event) -> what follows. Any other pair is a bug and raises KeyError."""

_EVENTS: Mapping[int, MemberEvent] = {
    22: _E.GENERATION_OVER,
    25: _E.EVICTED,
    27: _E.REBALANCE,
    79: _E.ID_GIVEN,
    82: _E.FENCED,
}


def error_event(code: int) -> MemberEvent:
    """The event of an answer with this error code, which is not 0. Codes after which a call is
    repeated (a coordinator that has moved, loads or does not answer) never get here."""
    return _EVENTS.get(code, MemberEvent.REFUSED)


def join_event(code: int, generation_id: int, last_generation_id: int) -> MemberEvent:
    """The event of an answer to JoinGroup. ``last_generation_id``: of the last generation that this
    member joined, -1 if it has joined none."""
    if code:
        return error_event(code)
    is_late = generation_id > last_generation_id + 1 > 0
    return MemberEvent.JOINED_LATE if is_late else MemberEvent.JOINED


# --- Who owns which partitions, and what the leader withholds until it is given up ----------------


@dataclass(slots=True)
class Ownership:
    """The owners, as the members tell their leader."""

    owners: dict[TopicPartition, str | None] = field(default_factory=dict)
    """Partition -> member id. None: members contradict each other, and all must give it up."""

    @classmethod
    def of(cls, members: Mapping[str, ConsumerSubscription]) -> Ownership:
        """If several members claim a partition, the one of the latest generation owns it
        (KIP-792). Others have missed that generation, and give up the partition."""
        claims: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
        for member, told in members.items():
            for partition in told.owned:
                claims[partition].append((told.generation_id, member))
        owners: dict[TopicPartition, str | None] = {}
        for partition, found in claims.items():
            latest = max(generation for generation, _ in found)
            names = [member for generation, member in found if generation == latest]
            owners[partition] = names[0] if len(names) == 1 else None
        return cls(owners)

    def may_have(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member may be assigned the partition now."""
        return self.owners.get(partition, member) == member


class Claims:
    """What this member owns, and what it claims in its JoinGroup. The leader withholds a claimed
    partition from the other members until a JoinGroup of this member claims it no more.
    """

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        """Assigned, and not given up or lost yet. Until then no other member gets them."""
        self.generation_id = -1
        """The generation of the last assignment."""
        self._claimed: frozenset[TopicPartition] = frozenset()
        """Claimed in the last JoinGroup: what the leader of its generation believes."""

    def claim(self) -> tuple[TopicPartition, ...]:
        """The partitions to claim in a JoinGroup."""
        self._claimed = frozenset(self.owned)
        return tuple(sorted(self._claimed))

    def take(self, assigned: Set[TopicPartition], generation_id: int) -> Set[TopicPartition]:
        """Own what is assigned, then call :meth:`keep` once the rest is given up. Returns what the
        leader may hold back for this member: when it is given up, the member must join again."""
        held_back = (self._claimed | self.owned) - assigned
        self.owned |= assigned
        self.generation_id = generation_id
        return held_back

    def keep(self, assigned: Set[TopicPartition]) -> None:
        """All but these partitions are given up. Some of these may have been lost meanwhile."""
        self.owned &= assigned

    def clear(self) -> None:
        """Other members may own the partitions."""
        self.owned.clear()
