"""One broker's outgoing side: requests in flight, and how well the broker keeps up."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkaclient.producer.window import Window

if TYPE_CHECKING:
    from kafkaclient.net.connection import Connection

__all__ = ["Lane"]

_RECENT = 64
_NEVER = float("inf")
# An answer is overdue after this many times the usual latency, but not before _LEAST_PATIENCE.
_PATIENCE = 8
_LEAST_PATIENCE = 0.05


class Lane:
    """Java keeps these facts in ``NodeLatencyStats`` and ``InFlightRequests``.

    Times are the clock's, in seconds.
    """

    __slots__ = (
        "_able_at",
        "_asked_at",
        "after_idle",
        "bytes_sent",
        "node_id",
        "probed_at",
        "recent",
        "requests_sent",
        "sent",
        "window",
    )

    def __init__(self, node_id: int, now: float, limit: int = 5) -> None:
        self.node_id = node_id
        self.window = Window(limit)
        self.probed_at = -_NEVER
        """When the network's round trip was last asked for."""
        self.recent: deque[float] = deque(maxlen=_RECENT)
        """The latest latencies of Produce requests, in seconds."""
        self.sent: deque[float] = deque()
        """When each Produce request in flight left, oldest first."""
        self.after_idle = False
        """Whether what is in flight followed upon a long silence, and nothing was answered since:
        the connection may have been closed by the broker before."""
        self.bytes_sent = 0
        self.requests_sent = 0
        self._asked_at = now
        self._able_at = now

    def __repr__(self) -> str:
        return f"<Lane to broker {self.node_id} in_flight={len(self.sent)}>"

    def free(self, connection: Connection | None, window: int, now: float) -> bool:
        """Whether the broker can take a request now."""
        return (
            connection is not None
            and connection.writable
            and connection.throttled_until <= now
            and len(self.sent) < window
        )

    def note(self, *, able: bool, now: float) -> None:
        """Remember that a batch was ready for the broker, and whether it could be sent."""
        self._asked_at = now
        if able:
            self._able_at = now

    @property
    def stuck_for(self) -> float:
        """How long the broker has not been able to take what was ready for it (KIP-794)."""
        return self._asked_at - self._able_at

    def overdue(self, now: float) -> bool:
        """Whether the oldest request in flight should have been answered long ago."""
        if not self.sent or now - self.sent[0] < _LEAST_PATIENCE:
            return False
        # The median of the slowest tenth: one answer that was late must not make us patient.
        slow = sorted(self.recent)[-max(1, len(self.recent) // 10) :]
        return now - self.sent[0] > _PATIENCE * (slow[len(slow) // 2] if slow else 0.0)
