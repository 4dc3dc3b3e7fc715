"""Exponential backoff with jitter (KIP-580), after Java's ``ExponentialBackoff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from kafkaclient.config import ClientConfig

_JITTER = 0.2
_MAX_DOUBLINGS = 32


def exponential_s(failures: int, first_s: float, max_s: float, rng: Random) -> float:
    """A pause or time limit in seconds, which doubles with each consecutive failure, and varies
    randomly by 20 %.

    Without failure it is 0. At ``max_s`` it still varies, from 80 % to 100 % (Java's does not), so
    that clients that lost a broker at the same time do not return at the same time.
    """
    if failures <= 0:
        return 0.0
    mean = min(max_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return min(max_s, rng.uniform((1 - _JITTER) * mean, min((1 + _JITTER) * mean, max_s)))


def retry_pause_s(failures: int, config: ClientConfig, rng: Random) -> float:
    """The pause before a retry, from ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""
    first_s, max_s = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
    return exponential_s(failures, first_s, max_s, rng)
