"""A file with every record's outcome.

Outcomes are not kept in memory: a long campaign has too many, and its memory is measured.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

__all__ = ["Outcome", "OutcomeWriter", "read_outcomes"]

_ENTRY = Struct("<HI?ffhq")
_FLUSH_BYTES = 1 << 16
_READ_ENTRIES = 1 << 14


class Outcome(NamedTuple):
    """A record's outcome; times are seconds after the load began."""

    stream: int
    number: int
    acked: bool
    sent_at: float
    latency: float
    partition: int
    """The partition that the client reported; -1: not reported."""
    offset: int


class OutcomeWriter:
    """Writes outcomes to a new file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._buffer = bytearray()

    def __enter__(self) -> OutcomeWriter:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.write(self._buffer)
        self._file.close()

    def add(
        self,
        stream: int,
        number: int,
        acked: bool,
        sent_at: float,
        latency: float,
        partition: int,
        offset: int,
    ) -> None:
        self._buffer += _ENTRY.pack(stream, number, acked, sent_at, latency, partition, offset)
        if len(self._buffer) >= _FLUSH_BYTES:
            self._file.write(self._buffer)
            self._buffer.clear()


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """The outcomes in the file, in the order in which they were written."""
    with path.open("rb") as file:
        while data := file.read(_ENTRY.size * _READ_ENTRIES):
            whole = len(data) - len(data) % _ENTRY.size  # a killed writer leaves a partial entry
            yield from map(Outcome._make, _ENTRY.iter_unpack(data[:whole]))
