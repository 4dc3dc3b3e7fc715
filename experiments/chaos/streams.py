"""The records of a campaign, which are numbered, so that each can be recognized in the log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["KINDS", "SMALLEST_RECORD", "Spec", "Stamp", "Stream", "order", "read_stamp", "stamp"]

KINDS = ("unkeyed", "keyed", "explicit")

_STAMP = Struct(">HHId")
_FILLING = b"the quick brown fox jumps over the lazy dog, "
SMALLEST_RECORD = _STAMP.size + 16
"""Bytes. The corrupted byte near a request's end must belong to a record."""
_DRAWS = 4096


class Stream(NamedTuple):
    """The records of one producer with the same key or explicit partition, or with neither."""

    producer: int
    kind: str
    which: int
    """The number of the key, or the partition."""

    @property
    def key(self) -> bytes | None:
        return b"p%d-k%d" % (self.producer, self.which) if self.kind == "keyed" else None

    @property
    def partition(self) -> int | None:
        return self.which if self.kind == "explicit" else None


class Stamp(NamedTuple):
    """The beginning of a record's value."""

    producer: int
    stream: int
    """The stream's index in :attr:`Spec.streams`."""
    number: int
    """The record's number in its stream, from 0."""
    sent_at: float
    """Seconds after the load began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One client's load."""

    client: str
    way: str = ""
    """The key of ``clients.CLIENTS`` that sends; empty: the client's name."""
    bootstrap: str
    topics: Mapping[str, str]
    """Kind of record -> topic."""
    partitions: int
    """Partitions of each topic at the start."""
    producers: int
    keys: int
    """Keys of each producer."""
    rate: float
    """Records per second, of all producers together."""
    seconds: float
    record_size: int
    seed: int
    outcomes: str
    """Path of the file for every record's outcome."""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def streams(self) -> list[Stream]:
        """All streams, in an order that the spec alone decides."""
        counts = {"unkeyed": 1, "keyed": self.keys, "explicit": self.partitions}
        return [
            Stream(producer, kind, which)
            for producer in range(self.producers)
            for kind in KINDS
            if kind in self.topics
            for which in range(counts[kind])
        ]


def order(spec: Spec, producer: int) -> Sequence[int]:
    """The indices of a producer's streams in the order of sending, to be repeated.

    Each kind of record comes equally often.
    """
    rng = Random(f"order {spec.seed} {producer}")
    by_kind: dict[str, list[int]] = {kind: [] for kind in spec.topics}
    for place, stream in enumerate(spec.streams):
        if stream.producer == producer:
            by_kind[stream.kind].append(place)
    kinds = [places for places in by_kind.values() if places]
    return [rng.choice(kinds[draw % len(kinds)]) for draw in range(_DRAWS)]


def stamp(producer: int, stream: int, number: int, sent_at: float, size: int) -> bytes:
    """A record's value of ``size`` bytes."""
    value = _STAMP.pack(producer, stream, number, sent_at)
    missing = size - len(value)
    return value + (_FILLING * (missing // len(_FILLING) + 1))[:missing]


def read_stamp(value: bytes) -> Stamp:
    """The stamp of a record's value. Raises ``struct.error`` if the value is too short."""
    return Stamp(*_STAMP.unpack_from(value))
