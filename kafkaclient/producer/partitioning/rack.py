"""Which brokers are in the client's own rack, where traffic is fast or free (KIP-1123)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.cluster.view import Broker, TopicView


class Rack:
    """``name`` is the client's rack. "": racks are ignored, and no broker is near."""

    __slots__ = ("brokers", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.brokers: frozenset[int] = frozenset()
        """The node ids of the brokers in the rack."""

    def __repr__(self) -> str:
        return f"<Rack {self.name!r} brokers={sorted(self.brokers)}>"

    def update(self, brokers: Iterable[Broker]) -> bool:
        """Note the brokers in the rack. Returns whether they have changed."""
        if not self.name:
            return False
        before = self.brokers
        self.brokers = frozenset(b.node_id for b in brokers if b.rack == self.name)
        return self.brokers != before

    def near(self, view: TopicView) -> tuple[int, ...]:
        """The numbers of the topic's partitions whose leader is in the rack."""
        if not self.brokers:
            return ()
        return tuple(p.partition for p in view.partitions if p.leader in self.brokers)
