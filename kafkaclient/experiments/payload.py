"""Where a load's records come from: made before the run, so that the harness costs little in it."""

from __future__ import annotations

from itertools import count, cycle, islice
from random import Random
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "KeyValue",
    "file_payloads",
    "monotonic_payloads",
    "numbered_payloads",
    "random_payloads",
    "read_payloads",
]

KeyValue: TypeAlias = tuple[bytes | None, bytes]

_CAPITALS = bytes(ord("A") + byte % 26 for byte in range(256))
_POOL_BYTES = 8 * 1024 * 1024
_POOL_RECORDS = 16_384
_DRAWS = 65_536
_DIGITS = 12


def random_payloads(size: int, seed: int = 0) -> Iterator[KeyValue]:
    """Values of ``size`` random capital letters without keys, without end.

    They repeat after 16,384 values, or 8 MB of them when that is less, so that the load loop
    does no drawing; a batch is smaller than that, so it compresses like fresh letters.
    """
    rng = Random(seed)
    pool = max(1, min(_POOL_RECORDS, _POOL_BYTES // size))
    return cycle([(None, rng.randbytes(size).translate(_CAPITALS)) for _ in range(pool)])


def numbered_payloads(size: int, number: int, seed: int = 0) -> list[KeyValue]:
    """So many values of ``size`` letters and digits without keys, each different from all others.

    They are numbered in the first 12 bytes, so that what arrives can be told apart; ``size`` is at
    least that.
    """
    if size < _DIGITS:
        raise ValueError(f"a numbered payload has at least {_DIGITS} bytes, not {size}")
    letters = islice(random_payloads(size, seed), number)
    return [(None, b"%012d" % n + value[_DIGITS:]) for n, (_key, value) in enumerate(letters)]


def monotonic_payloads() -> Iterator[KeyValue]:
    """The numbers from 0 in decimal ASCII, without end."""
    return ((None, b"%d" % number) for number in count())


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    """The payloads in a UTF-8 file, split at ``delimiter``; none for one after the last."""
    payloads = path.read_text(encoding="utf-8").split(delimiter)
    if payloads and not payloads[-1]:
        payloads.pop()
    return [payload.encode() for payload in payloads]


def file_payloads(payloads: Iterable[bytes], seed: int = 0) -> Iterator[KeyValue]:
    """Values drawn at random from ``payloads`` (from a fixed sequence of 65,536 draws)."""
    drawn = Random(seed).choices([(None, payload) for payload in payloads], k=_DRAWS)
    return cycle(drawn)
