"""Records that can be recognized when they are read back."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kafkaclient.perf.traffic import random_payloads

if TYPE_CHECKING:
    from kafkaclient.perf.traffic import KeyValue

__all__ = ["numbered_payloads"]

_DIGITS = 12


def numbered_payloads(size: int, number: int, seed: int = 0) -> list[KeyValue]:
    """``number`` records without key, with different values of ``size`` letters and digits.

    The first 12 bytes of a value are the record's number; ``size`` is 12 or more.
    """
    if size < _DIGITS:
        raise ValueError(f"a numbered payload has at least {_DIGITS} bytes, not {size}")
    letters = islice(random_payloads(size, seed), number)
    return [(None, b"%012d" % n + value[_DIGITS:]) for n, (_key, value) in enumerate(letters)]
