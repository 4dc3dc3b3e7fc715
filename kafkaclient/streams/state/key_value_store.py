"""The store as processors see it: their writes lie above the RocksDB until they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.errors import StreamsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.streams.state.rocks import RocksStore

__all__ = ["KeyValueStore"]


class KeyValueStore:
    """One task's store: bytes to bytes.

    Writes are visible here at once. They reach the changelog, and then the disk, together with the
    offsets of what was read; or they are dropped, and that is read again. Like Kafka Streams' cache
    this writes only a key's last value of a commit interval to the changelog.
    """

    def __init__(self, rocks: RocksStore) -> None:
        self._rocks = rocks
        self._changes: dict[bytes, bytes | None] = {}
        self._undo: dict[bytes, bytes | _Absent | None] | None = None
        """What :meth:`roll_back` puts back; None: nothing is to be rolled back."""
        self._is_closed = False

    def get(self, key: bytes) -> bytes | None:
        """None when there is no such key. Raises TypeError for a key that is not bytes."""
        self._check(key)
        if key in self._changes:
            return self._changes[key]
        return self._rocks.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """None deletes. Raises TypeError for anything else that is not bytes."""
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
        """All with ``start <= key < end``, sorted. Shows the moment of the first step; later writes
        may be in it or not. Raises TypeError for a bound that is neither bytes nor None."""
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
        """What was written since the last commit."""
        return self._changes

    def commit(self) -> None:
        """What was written is committed: keep it."""
        if self._changes:
            self._rocks.apply(self._changes.items())
            self._changes = {}
        self._undo = None

    def mark(self) -> None:
        """What is written from now on can be rolled back, until the next mark."""
        self._undo = {}

    def roll_back(self) -> None:
        """Forget what was written since :meth:`mark`."""
        for key, value in (self._undo or {}).items():
            if isinstance(value, _Absent):
                del self._changes[key]
            else:
                self._changes[key] = value
        self._undo = {}

    def close(self) -> None:
        """What was written is not committed: forget it. A processor that is still at a record
        cannot touch the store any more."""
        self._changes = {}
        self._is_closed = True

    def _check(self, data: Any, what: str = "key") -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"a store keeps bytes; this {what} is {type(data).__name__}")
        if self._is_closed:
            raise StreamsError("the task was taken away while this record was processed")


class _Absent:
    """In place of a value: the key was not written since the last commit."""


_ABSENT = _Absent()


def _present(changes: dict[bytes, bytes | None], key: bytes) -> Iterator[tuple[bytes, bytes]]:
    value = changes[key]
    if value is not None:
        yield key, value
