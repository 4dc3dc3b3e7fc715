"""Compares the log with the outcome that a client reported for every record."""

from __future__ import annotations

import struct
from array import array
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from experiments.chaos.streams import read_stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from experiments.chaos.outcomes import Outcome
    from experiments.chaos.streams import Stream

__all__ = ["Ledger", "Verdict"]

_PENDING, _ACKED, _FAILED = 0, 1, 2
_PLACE_BITS = 48
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The numbers of records of one client, by what happened to them."""

    sent: int
    acked: int
    failed: int
    unresolved: int
    """Neither acknowledged nor failed at the end."""
    lost: int
    """Acknowledged, but not in the log."""
    duplicated: int
    """Copies in the log beyond the first."""
    reordered: int
    """In the log behind a record that was sent later with the same key or to the same partition."""
    misplaced: int
    """Acknowledged with another partition or offset than the record has in the log."""
    unexpected: int
    """In the log without having been sent, with another key, or in another explicit partition."""

    @property
    def wrong(self) -> int:
        """The number of records with an outcome that no fault excuses."""
        return self.lost + self.duplicated + self.reordered + self.misplaced + self.unexpected

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Ledger:
    """Takes the client's outcomes (:meth:`told`), then the log (:meth:`read`), for a verdict.

    ``sent`` is the number of records that each stream handed to the client.
    """

    def __init__(self, streams: Sequence[Stream], sent: Sequence[int]) -> None:
        self._streams = streams
        self._sent = sent
        self._status = [bytearray(count) for count in sent]
        self._seen = [bytearray(count) for count in sent]
        self._places = [array("q", [_UNKNOWN]) * count for count in sent]
        self._last = [-1] * len(streams)
        self._duplicated = self._reordered = self._misplaced = self._unexpected = 0

    def told(self, outcomes: Iterable[Outcome]) -> None:
        """Take the outcomes that the client reported."""
        for outcome in outcomes:
            status = _ACKED if outcome.acked else _FAILED
            self._status[outcome.stream][outcome.number] = status
            if outcome.acked and outcome.partition >= 0 and outcome.offset >= 0:
                place = outcome.partition << _PLACE_BITS | outcome.offset
                self._places[outcome.stream][outcome.number] = place

    def read(self, kind: str, partition: int, offset: int, key: bytes | None, value: bytes) -> None:
        """Take a record of the topic for ``kind``, in the order of its partition's offsets."""
        try:
            mark = read_stamp(value)
            stream = self._streams[mark.stream]
        except (struct.error, IndexError):
            self._unexpected += 1
            return
        known = mark.number < self._sent[mark.stream] and (stream.kind, stream.key) == (kind, key)
        if not known or stream.partition not in (None, partition):
            self._unexpected += 1
        elif self._seen[mark.stream][mark.number]:
            self._duplicated += 1
        else:
            self._seen[mark.stream][mark.number] = 1
            place = self._places[mark.stream][mark.number]
            self._misplaced += place not in (_UNKNOWN, partition << _PLACE_BITS | offset)
            if mark.number > self._last[mark.stream]:
                self._last[mark.stream] = mark.number
            else:
                self._reordered += kind != "unkeyed"

    def verdict(self) -> Verdict:
        """The counts, once the whole log was read."""
        return Verdict(
            sent=sum(self._sent),
            acked=sum(status.count(_ACKED) for status in self._status),
            failed=sum(status.count(_FAILED) for status in self._status),
            unresolved=sum(status.count(_PENDING) for status in self._status),
            lost=sum(
                sum(told == _ACKED and not found for told, found in zip(status, seen, strict=True))
                for status, seen in zip(self._status, self._seen, strict=True)
            ),
            duplicated=self._duplicated,
            reordered=self._reordered,
            misplaced=self._misplaced,
            unexpected=self._unexpected,
        )
