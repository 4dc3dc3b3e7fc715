"""The number of a broker's lane: one int for a broker and one of the two connections to it.

The main lane to a broker has the broker's own id; the side lane has ``side_of(id)``.
"""

from __future__ import annotations

__all__ = ["NO_LANE", "node_of", "side_of"]

NO_LANE = -1
"""No lane: the partition has no leader, or records without key avoid the partition."""


def side_of(node_id: int) -> int:
    """The number of the side lane to a broker."""
    return -2 - node_id


def node_of(lane: int) -> int:
    """The id of the broker that a lane leads to; :data:`NO_LANE` stays as it is."""
    return lane if lane >= NO_LANE else -2 - lane
