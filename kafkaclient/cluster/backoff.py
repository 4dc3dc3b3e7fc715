"""Exponential backoff with jitter (KIP-580), after Java's ``ExponentialBackoff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from kafkaclient.config import ClientConfig

__all__ = ["backoff_s", "retry_pause_s"]

_JITTER = 0.2
_MAX_DOUBLINGS = 32


def backoff_s(failures: int, first_s: float, max_s: float, rng: Random) -> float:
    """The pause after so many failures in a row: doubling, varied by 20 %, never above ``max_s``.

    No failure means no pause. A pause that has reached ``max_s`` still varies, from 80 % of it to
    all of it (Java's does not): clients that lost their broker together do not come back together.
    """
    if failures <= 0:
        return 0.0
    pause = min(max_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return min(max_s, rng.uniform((1 - _JITTER) * pause, min((1 + _JITTER) * pause, max_s)))


def retry_pause_s(failures: int, config: ClientConfig, rng: Random) -> float:
    """The pause before a retry: :func:`backoff_s` with ``retry.backoff.ms`` and ``.max.ms``."""
    first_s, max_s = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
    return backoff_s(failures, first_s, max_s, rng)
