"""PLAIN: the password itself (RFC 4616)."""

from __future__ import annotations

from typing import ClassVar

from kafkaclient.net.sasl.mechanism import RefusedError

__all__ = ["Plain"]


class Plain:
    """A :class:`~kafkaclient.net.sasl.mechanism.Mechanism`. Neither user nor password may contain
    a NUL character."""

    name: ClassVar[str] = "PLAIN"
    computes: ClassVar[bool] = False

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    def first(self) -> bytes:
        # The identity to act as is left empty: Kafka's PlainSaslServer wants it so, or the same.
        return f"\0{self._username}\0{self._password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise RefusedError("the broker answered PLAIN with a challenge, which has none")
        return None
