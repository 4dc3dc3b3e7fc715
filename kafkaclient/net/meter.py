"""The statistics that a connection reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkaclient.errors import KafkaError


class Meter(Protocol):
    """Receives a connection's events. ``node_id`` is negative for bootstrap servers."""

    def connection_opened(self, node_id: int) -> None:
        return

    def connection_closed(self, node_id: int) -> None:
        return

    def request_sent(self, node_id: int, nbytes: int) -> None:
        return

    def request_done(
        self, node_id: int, api: str, nbytes: int, latency_s: float, error: KafkaError | None
    ) -> None:
        """The response of ``nbytes`` was read, or there will be none because of ``error``."""
        return


class NoMeter(Meter):
    """A meter that ignores all events."""
