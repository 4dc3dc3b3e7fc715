"""The number of a lane: one int for a broker and one of the two Produce connections to it.

The primary lane of a broker has the broker's own id; the side lane has ``side_of(id)``.
"""

from __future__ import annotations

NO_LANE = -1
"""No lane: the partition has no leader, or unkeyed records avoid the partition."""


def side_of(node_id: int) -> int:
    """The number of a broker's side lane."""
    return -2 - node_id


def node_of(lane: int) -> int:
    """The id of a lane's broker; :data:`NO_LANE` for no lane."""
    return lane if lane >= NO_LANE else -2 - lane
