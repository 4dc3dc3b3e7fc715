"""The store as processors see it: their writes lie above the RocksDB until they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

    def get(self, key: bytes) -> bytes | None:
        """None when there is no such key."""
        if key in self._changes:
            return self._changes[key]
        return self._rocks.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """None deletes. Raises TypeError for anything else that is not bytes."""
        self._changes[_checked(key)] = value if value is None else _checked(value)

    def delete(self, key: bytes) -> None:
        self.put(key, None)

    def range(
        self, start: bytes | None = None, end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """All with ``start <= key < end``, sorted. Shows the moment of the first step; later writes
        may be in it or not."""
        changes = self._changes
        keys = [
            key for key in changes if (start is None or key >= start) and (end is None or key < end)
        ]
        above = sorted(keys, reverse=True)
        for key, value in self._rocks.items(start):
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

    def settle(self) -> None:
        """What was written is committed: keep it."""
        if self._changes:
            self._rocks.apply(self._changes.items())
            self._changes = {}

    def drop(self) -> None:
        """What was written is not committed: forget it."""
        self._changes = {}


def _present(changes: dict[bytes, bytes | None], key: bytes) -> Iterator[tuple[bytes, bytes]]:
    value = changes[key]
    if value is not None:
        yield key, value


def _checked(data: Any) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"a store keeps bytes, not {type(data).__name__}")
    return data
