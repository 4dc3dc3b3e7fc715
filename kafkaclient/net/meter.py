"""What connections report to whoever measures them."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Meter", "NoMeter"]


class Meter(Protocol):
    """What a connection reports about itself. ``node_id`` is negative for bootstrap servers."""

    def connection_opened(self, node_id: int) -> None: ...

    def connection_closed(self, node_id: int) -> None: ...

    def request_sent(self, node_id: int, nbytes: int) -> None: ...

    def response_received(self, node_id: int, nbytes: int, latency_s: float) -> None: ...


class NoMeter:
    """Measures nothing."""

    def connection_opened(self, node_id: int) -> None:
        pass

    def connection_closed(self, node_id: int) -> None:
        pass

    def request_sent(self, node_id: int, nbytes: int) -> None:
        pass

    def response_received(self, node_id: int, nbytes: int, latency_s: float) -> None:
        pass
