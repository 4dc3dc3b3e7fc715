"""The records of a load, which are made before the run, so that they cost little during it."""

from __future__ import annotations

from itertools import count, cycle, repeat
from random import Random
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

KeyValue: TypeAlias = tuple[bytes | None, bytes]

_CAPITALS = bytes(ord("A") + byte % 26 for byte in range(256))
_POOL_BYTES = 8 * 1024 * 1024
_POOL_RECORDS = 16_384
_DRAWS = 65_536


def random_payloads(size: int, seed: int = 0) -> Iterator[KeyValue]:
    """Endless records without key, with values of ``size`` random capital letters.

    Values repeat after 16,384 records or 8 MB, whichever is less. A batch is smaller than that, so
    it compresses like random letters.
    """
    rng = Random(seed)
    pool = max(1, min(_POOL_RECORDS, _POOL_BYTES // size))
    return cycle([(None, rng.randbytes(size).translate(_CAPITALS)) for _ in range(pool)])


def monotonic_payloads() -> Iterator[KeyValue]:
    """Endless records without key, with the numbers from 0 in decimal ASCII."""
    return zip(repeat(None), map(b"%d".__mod__, count()), strict=False)


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    """The payloads in a file, split at ``delimiter``, which may also end the file."""
    payloads = path.read_bytes().split(delimiter.encode())
    if not payloads[-1]:
        payloads.pop()
    return payloads


def file_payloads(payloads: Iterable[bytes], seed: int = 0) -> Iterator[KeyValue]:
    """Endless records without key, drawn from ``payloads`` (65,536 draws, which repeat)."""
    drawn = Random(seed).choices([(None, payload) for payload in payloads], k=_DRAWS)
    return cycle(drawn)
