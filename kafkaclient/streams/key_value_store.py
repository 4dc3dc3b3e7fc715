"""The store that processors use: uncommitted writes in memory, on top of RocksDB."""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from kafkaclient.errors import RecordTooLargeError, StreamsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkaclient.errors import StateStoreError
    from kafkaclient.streams.declarations import Store


K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_ABSENT: Any = object()
"""No value, not even None for a deletion."""
_MAX_CACHED = 10_000  # pairs per store; more changes than that are cached until the next commit
_MAX_CACHED_BYTES = 256  # of a value
LARGE = 900
"""Bytes. A smaller key and value, without headers, are not refused because of their size: few
topics have a smaller ``max.message.bytes``."""
_MAX_CHANGE_BYTES = 1_048_576 - 128  # max.request.size's default, without the rest of the batch


class Bytes(Protocol):
    """Where committed pairs are: RocksDB, or memory in tests."""

    failure: StateStoreError | None
    """The last disk error."""

    def get(self, key: bytes) -> bytes | None: ...
    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]: ...
    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None: ...


class KeyValueStore(Generic[K, V]):
    """One task's part of a store, with the types that the :class:`~kafkaclient.streams.Store`
    declares. It is used like a dict: ``store[key]``, ``get``, ``in``, ``del``, ``items()``.

    Writes are visible immediately. A commit writes them to the changelog and then to RocksDB,
    together with the input offsets. If the commit fails, the writes are dropped and the input is
    read again. Like Kafka Streams' cache, the store writes only a key's last value of a commit
    interval to the changelog.

    An object is serialized when it is written: changing it later does not change the store. Each
    method raises TypeError for a key or value of another type than declared, and
    :class:`~kafkaclient.errors.StreamsError` after the task was taken away from this instance.
    A processor must not leave a task behind that writes: the writes would belong to another record.
    """

    __slots__ = (
        "_bytes",
        "_cache",
        "_declared",
        "_decode",
        "_large",
        "_marked",
        "_max_bytes",
        "_new",
        "_write_key",
        "_write_value",
        "_writers",
        "is_closed",
    )

    def __init__(
        self, declared: Store[K, V], stored: Bytes, max_change_bytes: int = _MAX_CHANGE_BYTES
    ) -> None:
        self._declared = declared
        self._write_key, self._write_value = declared.key.writer, declared.value.writer
        self._decode = declared.value.decode
        self._bytes = stored
        self._cache: dict[bytes, bytes | None] = {}
        """The newest committed pairs: a read of RocksDB takes longer than all the rest."""
        self._max_bytes = max_change_bytes
        self._marked: dict[bytes, bytes | None] = {}
        """The uncommitted writes until the last :meth:`mark`: serialized key -> value."""
        self._new: dict[bytes, bytes | None] = {}
        """The writes since then."""
        self._large: list[bytes] = []
        """Keys of large writes since the last :meth:`mark`."""
        self._writers: dict[bytes, Any] = {}
        """Key of an uncommitted large write -> the record that wrote it."""
        self.is_closed: bool = False

    def __repr__(self) -> str:
        return f"<KeyValueStore {self._declared.name!r}>"

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The key's value, or ``default``."""
        if self.is_closed:
            self.check_open()
        found = self._get(self._write_key(key))
        if found is None:
            return default
        return found if self._decode is None else self._decode(found)

    def __getitem__(self, key: K) -> V:
        found = self.get(key, _ABSENT)
        if found is _ABSENT:
            raise KeyError(key)
        return found

    def __contains__(self, key: K) -> bool:
        return self._get(self._written_key(key)) is not None

    def __setitem__(self, key: K, value: V) -> None:
        """Set the key's value.

        Raises RecordTooLargeError if the two are larger than a record of the changelog may be.
        """
        if self.is_closed:
            self.check_open()
        name, data = self._write_key(key), self._write_value(value)
        if len(data) + len(name) > LARGE:
            if len(data) + len(name) > self._max_bytes:
                raise RecordTooLargeError(
                    f"store {self._declared.name!r}: the value of key {name[:100]!r} has "
                    f"{len(data)} bytes; a change may have at most {self._max_bytes} with its key. "
                    "Raise max.request.size in producer_options, and max.message.bytes of the "
                    "changelog"
                )
            self._large.append(name)
        self._new[name] = data

    def __delitem__(self, key: K) -> None:
        """Remove the key. Raises KeyError if the store does not have it."""
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    def delete(self, key: K) -> None:
        """Remove the key, if the store has it. Faster than ``del``, which reads first."""
        self._new[self._written_key(key)] = None

    def pop(self, key: K, default: D = _ABSENT) -> V | D:
        """Remove the key and return its value, or ``default``. Raises KeyError without default."""
        found = self[key] if default is _ABSENT else self.get(key, default)
        if found is not default:
            self.delete(key)
        return found

    def items(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """All pairs with ``start <= key < end``, in the order of the keys' bytes: ``str`` and
        ``bytes`` sort as usual, ``int`` as its text. The iteration shows the store as of its first
        step, with or without later writes."""
        bounds = [None if key is None else self._written_key(key) for key in (start, end)]
        read_key, read_value = self._declared.key.read, self._declared.value.read
        return ((read_key(key), read_value(value)) for key, value in self._range(*bounds))

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def _written_key(self, key: Any) -> bytes:
        self.check_open()
        written: bytes = self._write_key(key)
        return written

    def _get(self, key: bytes) -> bytes | None:
        for pairs in (self._new, self._marked, self._cache):
            if key in pairs:
                return pairs[key]
        return self._bytes.get(key)

    @property
    def changes(self) -> dict[bytes, bytes | None]:
        """The uncommitted writes: serialized key -> value."""
        return self._marked | self._new

    def _range(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        self.check_open()
        changes = {k: v for k, v in self.changes.items() if start is None or k >= start}
        stored = (pair for pair in self._bytes.items(start) if pair[0] not in changes)
        pairs: Iterator[tuple[bytes, bytes | None]]
        pairs = heapq.merge(sorted(changes.items()), stored, key=itemgetter(0))
        for key, value in pairs:
            self.check_open()
            if end is not None and key >= end:
                return
            if value is not None:
                yield key, value
        self.check_open()  # closing the store ends its iterations

    # --- for the runtime ------------------------------------------------------------------------

    @property
    def failure(self) -> StateStoreError | None:
        """The last disk error."""
        return self._bytes.failure

    def mark(self, by: Any = None) -> None:
        """All writes until now belong to whole records, the last ones to ``by``."""
        if self._new:
            self._marked.update(self._new)
            self._new = {}
        if self._large:
            self._writers |= dict.fromkeys(self._large, by)
            self._large = []

    def writer(self, key: bytes) -> Any:
        """The record (see :meth:`mark`) that last wrote the key, if this is not committed and was
        so large that a broker may refuse it. Else None."""
        return self._writers.get(key)

    def marked(self) -> Mapping[bytes, bytes | None]:
        """The uncommitted writes until :meth:`mark`. The next mark adds to them, until they are
        committed."""
        return self._marked

    def commit(self) -> None:
        """Write the changes until :meth:`mark` to RocksDB, after the changelog has them."""
        if self._marked:
            self._bytes.apply(self._marked.items())
            self._cache_changes(self._marked)
            self._marked = {}
        self._writers = {}

    def _cache_changes(self, changes: Mapping[bytes, bytes | None]) -> None:
        if len(self._cache) + len(changes) > _MAX_CACHED:
            self._cache = {}
        for key, value in changes.items():
            if value is not None and len(value) > _MAX_CACHED_BYTES:
                self._cache.pop(key, None)
            else:
                self._cache[key] = value

    def roll_back(self) -> None:
        """Drop the writes since :meth:`mark`."""
        self._new = {}
        self._large = []

    def close(self) -> None:
        """Drop the uncommitted writes. A running processor cannot use the store any more."""
        self._marked = {}
        self._new = {}
        self.is_closed = True

    def check_open(self) -> None:
        """Raise StreamsError after :meth:`close`."""
        if self.is_closed:
            raise StreamsError(
                "the task was taken away from this instance while it processed this record"
            )
