"""A time limit with the name of its option, if it has one."""

from __future__ import annotations

from typing import NamedTuple


class Limit(NamedTuple):
    """``str`` gives the text for messages: ``60 s (max.block.ms)``, or ``60 s``."""

    seconds: float
    setting: str = ""

    def __str__(self) -> str:
        return f"{self.seconds:g} s ({self.setting})" if self.setting else f"{self.seconds:g} s"
