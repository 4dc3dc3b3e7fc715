"""The address and condition of a fake broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["FakeBroker"]


class _Connection(Protocol):
    """A connection of a client, as a test controls it."""

    transport: asyncio.Transport

    def stall(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(slots=True, eq=False)
class FakeBroker:
    """Address and condition of one broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    running: bool = True
    fenced: bool = False
    """Whether the cluster has noticed that the broker is gone."""
    stalled: bool = False
    swallows_dials: bool = False
    produce_delay_s: float = 0.0
    throttle_ms: int = 0
    connections: set[_Connection] = field(default_factory=set)
    dials: list[asyncio.Future[None]] = field(default_factory=list)
    """Connection attempts that wait for the end of ``swallows_dials``."""
