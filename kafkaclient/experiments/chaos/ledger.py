"""Compares what is in the log with what a client said of every record."""

from __future__ import annotations

import struct
from array import array
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafkaclient.experiments.chaos.streams import read_stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkaclient.experiments.chaos.outcomes import Outcome
    from kafkaclient.experiments.chaos.streams import Stream

__all__ = ["Ledger", "Verdict"]

_PENDING, _ACKED, _FAILED = 0, 1, 2
_PLACE_BITS = 48
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the records of one client."""

    sent: int
    acked: int
    failed: int
    unresolved: int
    """Neither acknowledged nor failed at the end."""
    lost: int
    """Acknowledged, and not in the log."""
    duplicated: int
    """Copies in the log beyond the first."""
    reordered: int
    """In the log behind one that was sent later with the same key or to the same partition."""
    misplaced: int
    """Acknowledged with a partition or an offset where something else is."""
    unexpected: int
    """In the log and never sent, or with another key, or in another partition than wanted."""

    @property
    def wrong(self) -> int:
        """What must not happen, whatever the cluster does."""
        return self.lost + self.duplicated + self.reordered + self.misplaced + self.unexpected

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Ledger:
    """``sent``: how many records of each stream were handed over; then :meth:`told` of outcomes,
    then :meth:`read` the log, each partition in the order of its offsets."""

    def __init__(self, streams: Sequence[Stream], sent: Sequence[int]) -> None:
        self._streams = streams
        self._sent = sent
        self._status = [bytearray(count) for count in sent]
        self._seen = [bytearray(count) for count in sent]
        self._places = [array("q", [_UNKNOWN]) * count for count in sent]
        self._last = [-1] * len(streams)
        self._duplicated = self._reordered = self._misplaced = self._unexpected = 0

    def told(self, outcomes: Iterable[Outcome]) -> None:
        """The client's own account."""
        for outcome in outcomes:
            status = _ACKED if outcome.acked else _FAILED
            self._status[outcome.stream][outcome.number] = status
            if outcome.acked and outcome.partition >= 0 and outcome.offset >= 0:
                place = outcome.partition << _PLACE_BITS | outcome.offset
                self._places[outcome.stream][outcome.number] = place

    def read(self, kind: str, partition: int, offset: int, key: bytes | None, value: bytes) -> None:
        """The next record of a partition of the topic for this kind of records."""
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
        """After the last record."""
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
