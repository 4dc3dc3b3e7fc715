"""Exponential backoff with jitter (KIP-580), after Java's ``ExponentialBackoff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

__all__ = ["backoff_s"]

_JITTER = 0.2
_MAX_DOUBLINGS = 32


def backoff_s(failures: int, first_s: float, max_s: float, rng: Random) -> float:
    """The pause after so many failures in a row: doubling, varied by 20 %, never above ``max_s``.

    No failure means no pause. Unlike Java's, pauses at the ceiling vary too (below it): clients
    that lost their broker together do not come back together.
    """
    if failures <= 0:
        return 0.0
    pause = min(max_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return min(max_s, rng.uniform((1 - _JITTER) * pause, min((1 + _JITTER) * pause, max_s)))
