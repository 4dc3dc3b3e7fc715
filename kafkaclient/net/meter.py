"""The statistics that a connection reports."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Receives a connection's events. ``node_id`` is negative for bootstrap servers."""

    def connection_opened(self, node_id: int) -> None:
        return

    def connection_closed(self, node_id: int) -> None:
        return

    def request_sent(self, node_id: int, nbytes: int) -> None:
        return

    def response_received(self, node_id: int, nbytes: int, latency_s: float) -> None:
        return


class NoMeter(Meter):
    """A meter that ignores all events."""
