"""The address and state of a fake broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["FakeBroker"]


class _Connection(Protocol):
    """A client connection that a test can stall and resume."""

    transport: asyncio.Transport

    def stall(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(slots=True, eq=False)
class FakeBroker:
    """The address and state of one broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    running: bool = True
    fenced: bool = False
    """Whether the cluster has noticed that the broker is down."""
    stalled: bool = False
    swallows_dials: bool = False
    produce_delay_s: float = 0.0
    throttle_ms: int = 0
    connections: set[_Connection] = field(default_factory=set)
    dials: list[asyncio.Future[None]] = field(default_factory=list)
    """The connection attempts that wait until ``swallows_dials`` is False."""
