"""What a consumer tells a classic group, and does with its assignment."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from kafkaclient.errors import ProtocolError
from kafkaclient.group.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    STICKY,
    AssignedMember,
    sticky_owned,
    sticky_user_data,
    without_conflicts,
)
from kafkaclient.group.ownership import Claims, Ownership
from kafkaclient.wire.groups import (
    ConsumerAssignment,
    ConsumerSubscription,
    assignment_in,
    subscription_in,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Set

    from kafkaclient.errors import BrokerError
    from kafkaclient.group.member import Generation
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

NO_PARTITION = (
    "member %s is assigned no partition: other members of its group have them all, also members "
    "that were killed and whose session has not ended, or its topics do not exist"
)


class Assignee(Protocol):
    """What consumes the partitions of a member."""

    def rebalance_began(self) -> None:
        """The member joins again, or its assignment changes."""

    def rebalance_ended(self) -> None:
        """The assignment is applied. May come without a beginning."""

    async def added(self, partitions: Set[TopicPartition]) -> None:
        """Begin with these partitions; none: the group has none for this member. Bounded in
        time."""

    async def revoked(self, partitions: Set[TopicPartition]) -> None:
        """Give up these partitions: finish what is in hand, and commit. Bounded in time."""

    def lost(self, partitions: Set[TopicPartition]) -> None:
        """Drop these partitions: another member may have them."""

    def denied(self, error: BrokerError) -> None:
        """Tell the application that it may not read a topic. The member stays."""


class ClassicProtocol:
    """The :class:`~kafkaclient.group.member.GroupProtocol` of a consumer.

    With ``cooperative-sticky`` alone, partitions that stay are consumed during a rebalance. With
    any other assignor, all partitions are given up before each rebalance, as in Java.

    ``topics`` returns the member's topics; ``counts`` fetches the numbers of partitions of topics,
    without those that do not exist, or that this client may not describe. ``look_again`` is awaited
    before each further join, for ``topics`` to have what other members may have found.
    """

    def __init__(
        self,
        assignors: Collection[str],
        topics: Callable[[], Collection[str]],
        counts: Callable[[Collection[str]], Awaitable[Mapping[str, int]]],
        look_again: Callable[[], Awaitable[None]],
        assignee: Assignee,
    ) -> None:
        self._look_again = look_again
        self._assignors = tuple(assignors)
        self._is_eager = self._assignors != (COOPERATIVE_STICKY,)
        self._topics = topics
        self._counts = counts
        self._assignee = assignee
        self._claims = Claims()
        self._last: frozenset[TopicPartition] = frozenset()
        """The last assignment, also after it was given up."""
        self._group_topics: Set[str] = frozenset()
        """On the leader: all members' topics."""
        self._group_counts: Mapping[str, int] = {}
        """On the leader: the topics' numbers of partitions, as of the last assignment."""

    def subscriptions(self) -> Mapping[str, bytes]:
        claimed, generation = self._claims.claim(), self._claims.generation_id
        topics = tuple(sorted(self._topics()))
        return {
            name: ConsumerSubscription(
                topics, sticky_user_data(name, self._last, generation), claimed, generation
            ).encode()
            for name in self._assignors
        }

    async def before_rejoin(self) -> None:
        self._assignee.rebalance_began()
        await self._look_again()
        if self._is_eager and self._claims.owned:
            await self._assignee.revoked(frozenset(self._claims.owned))
            self._claims.keep(frozenset())

    async def assign(self, assignor: str, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        told = {member: _subscription(member, data) for member, data in members.items()}
        self._group_topics = {topic for each in told.values() for topic in each.topics}
        self._group_counts = await self._counts(self._group_topics)
        if missing := self._group_topics - self._group_counts.keys():
            _log.warning(
                "no member gets partitions of %s: each topic does not exist, or this member, which "
                "leads the group, may not describe it",
                ", ".join(sorted(missing)),
            )
        claims = {
            name: sticky_owned(each.user_data)
            if assignor == STICKY
            else (each.owned, each.generation_id)
            for name, each in told.items()
        }
        owned = without_conflicts(claims)
        known = {
            name: AssignedMember(each.topics, owned.get(name, ())) for name, each in told.items()
        }
        found = ASSIGNORS[assignor](known, self._group_counts)
        if assignor == COOPERATIVE_STICKY:
            ownership = Ownership.of(told)
            for name, partitions in found.items():
                found[name] = {p for p in partitions if ownership.may_have(name, p)}
        return {
            name: ConsumerAssignment(tuple(sorted(partitions)), None).encode()
            for name, partitions in found.items()
        }

    async def topics_changed(self) -> bool:
        """On the leader: whether topics of the group have other partitions than at the last
        assignment."""
        topics = self._group_topics
        return bool(topics) and await self._counts(topics) != self._group_counts

    async def assigned(self, assignment: bytes, generation: Generation) -> bool:
        if not generation.is_leader:
            self._group_topics, self._group_counts = frozenset(), {}
        new = frozenset(assignment_in(assignment).partitions)
        before = frozenset(self._claims.owned)
        held_back = self._claims.take(new, generation.generation_id)
        self._last = new
        if not new:
            _log.info(NO_PARTITION, generation.member_id)
        if (added := new - before) or not new:
            await self._assignee.added(added)
        if leaving := before - new:
            await self._assignee.revoked(leaving)
        self._claims.keep(new)
        self._assignee.rebalance_ended()
        return bool(held_back) and not self._is_eager

    def all_lost(self) -> None:
        owned = frozenset(self._claims.owned)
        self._claims.clear()
        self._last = frozenset()
        self._assignee.lost(owned)


def _subscription(member: str, data: bytes) -> ConsumerSubscription:
    try:
        return subscription_in(data)
    except ProtocolError as error:
        _log.warning(
            "member %s gets no partitions: its subscription is malformed: %s", member, error
        )
        return ConsumerSubscription(())
