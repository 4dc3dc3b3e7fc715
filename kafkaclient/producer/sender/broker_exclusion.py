"""Which brokers get no records without key, and why: the states of a broker's lane, in one table.

:meth:`~kafkaclient.producer.sender.broker_lanes.BrokerLanes.update_state` finds a lane's state, and
:meth:`~kafkaclient.producer.sender.broker_lanes.BrokerLanes.current_state` refines it between two
surveys. What the producer does differently for a broker in trouble is a column of this table.

To add a reason: a row here, and its condition in ``update_state`` at the same place in the order.
``BrokerLoad.excluded`` and the metrics name it from the table.

Whether a broker is alive is another question, about a broker and not about a lane: a healthy
broker can be suspected, and an overdue one can be alive
(:class:`~kafkaclient.producer.sender.liveness.BrokerLiveness`).
"""

from __future__ import annotations

from enum import Enum


class LaneState(Enum):
    """``update_state`` finds the first of these states whose condition holds. UNWRITABLE, ON_TRIAL
    and SATURATED are found by ``current_state`` only."""

    # condition, exclusion reason, last resort, keeps reserved batches, resets the share
    DISCONNECTED = "there is no connection", "connection", False, False, True
    THROTTLED = "the broker asked for silence (KIP-219)", "throttled", False, False, False
    UNAVAILABLE = "availability.timeout.ms is exceeded", "availability", False, True, False
    OVERDUE = "the oldest answer is long overdue", "overdue", True, False, True
    SLOW = "far slower than the others, and cooling down", "slow", True, False, True
    UNWRITABLE = "the connection takes no more bytes", None, False, False, False
    ON_TRIAL = "slow, and due for one batch that shows its speed", None, False, True, False
    SATURATED = "the in-flight window is full", None, False, True, False
    HEALTHY = "none of the above", None, False, True, False

    def __init__(
        self,
        condition: str,
        exclusion_reason: str | None,
        last_resort: bool,
        keeps_reserved: bool,
        resets_share: bool,
    ) -> None:
        self.condition = condition
        self.exclusion_reason = exclusion_reason
        """Why the broker gets no unkeyed batches, as ``BrokerLoad.excluded`` and the metric
        ``exclusion-*-total`` name it. None: it gets them; while it can take none, they wait for it
        rather than go to an excluded broker."""
        self.last_resort = last_resort
        """Whether an excluded broker gets unkeyed batches if all brokers of the topic are
        excluded."""
        self.keeps_reserved = keeps_reserved
        """Whether open batches that are reserved for the broker's partitions stay there."""
        self.resets_share = resets_share
        """Whether the broker's partitions are raised to the average share afterwards, so that the
        broker is not flooded while it catches up."""
