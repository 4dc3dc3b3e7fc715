"""What all mechanisms have in common."""

from __future__ import annotations

from typing import ClassVar, Protocol

__all__ = ["Mechanism", "RefusedError"]


class RefusedError(Exception):
    """The peer is not who it should be, breaks the mechanism's rules, or says no. The message has
    no secret in it."""


class Mechanism(Protocol):
    """One authentication, from the client's side; made anew for each."""

    name: ClassVar[str]
    """As ``sasl.mechanism`` and the broker call it."""
    computes: ClassVar[bool]
    """Whether :meth:`answer` may take milliseconds of processor time."""

    def first(self) -> bytes:
        """The message that begins the exchange."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The message that follows upon the broker's; None when the exchange is over, and the
        broker has proved what the mechanism has it prove. Raises :class:`RefusedError`."""
        ...
