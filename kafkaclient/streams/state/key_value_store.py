"""The store that processors use: uncommitted writes in memory, on top of RocksDB."""

from __future__ import annotations

import heapq
import sys
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import RecordTooLargeError, StreamsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.streams.state.rocks import RocksStore

_ABSENT: Any = object()
"""Marks a key in ``_undo`` that had no uncommitted write."""


class KeyValueStore:
    """One task's store: bytes to bytes.

    Writes are visible immediately. A commit writes them to the changelog and then to RocksDB,
    together with the input offsets. If the commit fails, the writes are dropped and the input is
    read again. Like Kafka Streams' cache, the store writes only a key's last value of a commit
    interval to the changelog.
    """

    def __init__(
        self, rocks: RocksStore, name: str = "store", *, max_change_bytes: int = sys.maxsize
    ) -> None:
        self._rocks = rocks
        self._name = name
        self._max_change_bytes = max_change_bytes
        self.changes: dict[bytes, bytes | None] = {}
        """The uncommitted writes: key -> value."""
        self._undo: dict[bytes, bytes | None] = {}
        """What :meth:`roll_back` restores: key -> value at the last :meth:`mark`."""
        self.is_closed: bool = False

    def get(self, key: bytes) -> bytes | None:
        """The key's value, or None. Raises TypeError for a key that is not bytes."""
        self._check(key)
        if key in self.changes:
            return self.changes[key]
        return self._rocks.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the key's value. None deletes the key. Raises TypeError unless both are bytes, and
        RecordTooLargeError if the changelog cannot take them."""
        self._check(key)
        if value is not None:
            self._check(value, "value")
            if len(key) + len(value) > self._max_change_bytes:
                raise RecordTooLargeError(
                    f"a change of store {self._name!r}, with the key {key[:50]!r}, has "
                    f"{len(key) + len(value)} bytes; its changelog takes {self._max_change_bytes} "
                    "(max.request.size). Raise max_request_size in producer_options, and "
                    "max.message.bytes of the changelog"
                )
        if key not in self._undo:
            self._undo[key] = self.changes.get(key, _ABSENT)
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        """Remove the key and its value, if the key is there. Raises TypeError unless the key is
        bytes."""
        self.put(key, None)

    def range(
        self, start: bytes | None = None, end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """All pairs with ``start <= key < end``, sorted. The iteration shows the store as of its
        first step, with or without later writes. Raises TypeError for a bound that is neither bytes
        nor None."""
        for bound in (start, end):
            if bound is not None:
                self._check(bound, "bound")
        return self._range(start, end)

    def _range(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        self.check_open()
        changes = {k: v for k, v in self.changes.items() if start is None or k >= start}
        stored = (pair for pair in self._rocks.items(start) if pair[0] not in changes)
        pairs: Iterator[tuple[bytes, bytes | None]]
        pairs = heapq.merge(sorted(changes.items()), stored, key=itemgetter(0))
        for key, value in pairs:
            self.check_open()
            if end is not None and key >= end:
                return
            if value is not None:
                yield key, value

    def mark(self) -> None:
        """All writes until now belong to whole records."""
        self._undo = {}

    def marked(self) -> dict[bytes, bytes | None]:
        """The uncommitted writes until :meth:`mark`."""
        before = {**self.changes, **self._undo}
        return {key: value for key, value in before.items() if value is not _ABSENT}

    def commit(self) -> None:
        """Write the changes until :meth:`mark` to RocksDB, after the changelog has them."""
        if marked := self.marked():
            self._rocks.apply(marked.items())
        self.changes = {key: self.changes[key] for key in self._undo}
        self._undo = dict.fromkeys(self._undo, _ABSENT)

    def roll_back(self) -> None:
        """Drop the writes since :meth:`mark`."""
        for key, value in self._undo.items():
            if value is _ABSENT:
                del self.changes[key]
            else:
                self.changes[key] = value
        self._undo = {}

    def close(self) -> None:
        """Drop the uncommitted writes. A running processor cannot use the store any more."""
        self.changes = {}
        self.is_closed = True

    def _check(self, data: Any, what: str = "key") -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"a store takes bytes; this {what} is {type(data).__name__}")
        self.check_open()

    def check_open(self) -> None:
        """Raise StreamsError after :meth:`close`."""
        if self.is_closed:
            raise StreamsError(
                "the task was taken away from this instance while it processed this record"
            )
