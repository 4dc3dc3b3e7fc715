"""The largest batch that a topic takes, as learned from MESSAGE_TOO_LARGE responses."""

from __future__ import annotations

_NO_LIMIT = 2**31 - 1
_LIFE_S = 300.0  # seconds after which a limit is doubled: the topic may take more by now


class BatchLimit:
    """Lowered by MESSAGE_TOO_LARGE, for batches that may grow while their broker is busy.

    A producer does not learn that a topic's ``max.message.bytes`` was raised. So the limit is
    doubled every five minutes; if that is too much, one batch is split again. Times are in seconds.
    """

    __slots__ = ("_rises_at", "_value")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The topic was deleted and created again."""
        self._value, self._rises_at = _NO_LIMIT, 0.0

    def lower(self, size: int, now: float) -> None:
        """The topic takes no batch of more than ``size`` bytes, as far as is known."""
        self._value = min(self.at(now), size)
        self._rises_at = now + _LIFE_S

    def at(self, now: float) -> int:
        """The limit in bytes at the time ``now``."""
        while self._value < _NO_LIMIT and now >= self._rises_at:
            self._value = min(2 * self._value, _NO_LIMIT)
            self._rises_at += _LIFE_S
        return self._value
