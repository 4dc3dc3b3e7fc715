"""Who owns which partitions, and what the leader withholds until it is given up (KIP-429). Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
