"""How a broker is: every state of a broker's lane, and what follows from it, in one table.

:meth:`~kafkaclient.producer.sender.broker_lanes.BrokerLanes.look` finds a lane's state, and
:meth:`~kafkaclient.producer.sender.broker_lanes.BrokerLanes.current_state` refines it between two
looks. What the producer does differently for a broker in trouble is a column of this table.

Whether a broker is alive is another question, about a broker and not about a lane: a healthy
broker can be suspected, and an overdue one can be alive
(:class:`~kafkaclient.producer.sender.liveness.BrokerLiveness`).
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["BrokerState", "UnkeyedBatches"]


class UnkeyedBatches(Enum):
    """What a broker means for the batches that have no partition yet."""

    TAKES = auto()
    """It takes them."""
    AWAITED = auto()
    """It takes none now. They wait for it rather than go to a broker of last resort."""
    LAST_RESORT = auto()
    """It takes them if no broker of their topic takes any or is awaited."""
    NONE = auto()
    """It takes none."""


_TAKES, _AWAITED = UnkeyedBatches.TAKES, UnkeyedBatches.AWAITED
_LAST_RESORT, _NONE = UnkeyedBatches.LAST_RESORT, UnkeyedBatches.NONE


class BrokerState(Enum):
    """A lane is in the first of these states whose condition holds."""

    # condition, unkeyed batches, keeps reserved batches, name in `excluded`, resets the share
    DISCONNECTED = "there is no connection", _NONE, False, "connection", True
    THROTTLED = "the broker asked for silence (KIP-219)", _NONE, False, "throttled", False
    UNAVAILABLE = "availability.timeout.ms is exceeded", _NONE, True, "availability", False
    OVERDUE = "the oldest answer is long overdue", _LAST_RESORT, False, "overdue", True
    SLOW = "far slower than the others, and cooling down", _LAST_RESORT, False, "slow", True
    UNWRITABLE = "the connection takes no more bytes", _AWAITED, False, None, False
    ON_TRIAL = "slow, and due for one batch that shows its speed", _TAKES, True, None, False
    SATURATED = "the in-flight window is full", _AWAITED, True, None, False
    HEALTHY = "none of the above", _TAKES, True, None, False

    def __init__(
        self,
        condition: str,
        unkeyed: UnkeyedBatches,
        keeps_reserved: bool,
        excluded: str | None,
        resets_share: bool,
    ) -> None:
        self.condition = condition
        self.unkeyed = unkeyed
        self.keeps_reserved = keeps_reserved
        """Whether open batches that are reserved for the broker's partitions stay there."""
        self.excluded = excluded
        """The reason in ``BrokerLoad.excluded`` and in the metric ``exclusion-*-total``; None: the
        broker is not excluded."""
        self.resets_share = resets_share
        """Whether the broker's partitions are raised to the average share afterwards: the broker
        is not flooded while it catches up."""
