"""A time limit that knows which option it comes from."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Limit"]


class Limit(NamedTuple):
    """``str(limit)`` is for messages: ``60 s (max.block.ms)``."""

    seconds: float
    setting: str

    def __str__(self) -> str:
        return f"{self.seconds:g} s ({self.setting})"
