"""The store that processors use: uncommitted writes in memory, on top of RocksDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.errors import StreamsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.streams.state.rocks import RocksStore

__all__ = ["KeyValueStore"]


class KeyValueStore:
    """One task's store: bytes to bytes.

    Writes are visible immediately. A commit writes them to the changelog and then to RocksDB,
    together with the input offsets. If the commit fails, the writes are dropped and the input is
    read again. Like Kafka Streams' cache, the store writes only a key's last value of a commit
    interval to the changelog.
    """

    def __init__(self, rocks: RocksStore) -> None:
        self._rocks = rocks
        self._changes: dict[bytes, bytes | None] = {}
        self._undo: dict[bytes, bytes | _Absent | None] | None = None
        """What :meth:`roll_back` restores: key -> earlier value. None: there is no mark."""
        self._is_closed = False

    def get(self, key: bytes) -> bytes | None:
        """The key's value, or None. Raises TypeError for a key that is not bytes."""
        self._check(key)
        if key in self._changes:
            return self._changes[key]
        return self._rocks.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the key's value. None deletes the key. Raises TypeError unless both are bytes."""
        self._check(key)
        if value is not None:
            self._check(value, "value")
        if self._undo is not None and key not in self._undo:
            self._undo[key] = self._changes.get(key, _ABSENT)
        self._changes[key] = value

    def delete(self, key: bytes) -> None:
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
        self._check(b"")
        changes = self._changes
        keys = [
            key for key in changes if (start is None or key >= start) and (end is None or key < end)
        ]
        above = sorted(keys, reverse=True)
        for key, value in self._rocks.items(start):
            self._check(key)
            if end is not None and key >= end:
                break
            while above and above[-1] < key:
                yield from _present(changes, above.pop())
            if above and above[-1] == key:
                yield from _present(changes, above.pop())
            elif key not in changes:
                yield key, value
        while above:
            yield from _present(changes, above.pop())

    @property
    def changes(self) -> dict[bytes, bytes | None]:
        """The uncommitted writes: key -> value."""
        return self._changes

    def commit(self) -> None:
        """Write the changes to RocksDB, after the changelog has them."""
        if self._changes:
            self._rocks.apply(self._changes.items())
            self._changes = {}
        self._undo = None

    def mark(self) -> None:
        """Set the mark to which :meth:`roll_back` returns."""
        self._undo = {}

    def roll_back(self) -> None:
        """Drop the writes since :meth:`mark`."""
        for key, value in (self._undo or {}).items():
            if isinstance(value, _Absent):
                del self._changes[key]
            else:
                self._changes[key] = value
        self._undo = {}

    def close(self) -> None:
        """Drop the uncommitted writes. A running processor cannot use the store any more."""
        self._changes = {}
        self._is_closed = True

    def _check(self, data: Any, what: str = "key") -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"a store takes bytes; this {what} is {type(data).__name__}")
        if self._is_closed:
            raise StreamsError(
                "the task was taken away from this instance while it processed this record"
            )


class _Absent:
    """Marks a key in ``_undo`` that had no uncommitted write."""


_ABSENT = _Absent()


def _present(changes: dict[bytes, bytes | None], key: bytes) -> Iterator[tuple[bytes, bytes]]:
    value = changes[key]
    if value is not None:
        yield key, value
