"""Who owns which partitions, and what the leader withholds until it is given up (KIP-429). Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.groups import ConsumerSubscription


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

    def take(self, assigned: Set[TopicPartition], generation_id: int) -> bool:
        """Own what is assigned. Call :meth:`keep` when the rest is given up. Returns whether the
        leader may withhold partitions because of this member's claims: then the member must join
        again, even if it has lost these partitions since it claimed them."""
        is_complete = self._claimed | self.owned <= assigned
        self.owned |= assigned
        self.generation_id = generation_id
        return not is_complete

    def keep(self, assigned: Set[TopicPartition]) -> None:
        """All but these partitions are given up. Some of these may have been lost meanwhile."""
        self.owned &= assigned

    def lose(self) -> None:
        """Other members may own the partitions."""
        self.owned.clear()
