"""A record's partition and timestamp as aiokafka's callers give them."""

from __future__ import annotations

from numbers import Real
from operator import index
from typing import Any, cast

__all__ = ["checked_partition", "timestamp_as_int"]


def checked_partition(partition: Any) -> int:
    """A partition as an int; numpy's integers are accepted, as in aiokafka.

    Raises AssertionError if it is negative, TypeError if it is no integer.
    """
    number = index(partition)
    if number < 0:
        raise AssertionError(f"a partition is not negative, but {number}")
    return number


def timestamp_as_int(timestamp_ms: Any) -> int:
    """A timestamp as an int. As in aiokafka a float such as ``time.time() * 1000`` is truncated.

    Raises TypeError for anything but a number, ValueError for an infinite number or NaN.
    """
    if not isinstance(timestamp_ms, Real):
        raise TypeError(f"a timestamp must be a number, not {timestamp_ms!r}")
    try:
        return int(cast("float", timestamp_ms))
    except (OverflowError, ValueError):
        raise ValueError(f"a timestamp must be a finite number, not {timestamp_ms!r}") from None
