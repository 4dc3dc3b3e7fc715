"""A RocksDB whose errors say what to do. The only module that uses the binding."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

from kafkaclient.errors import ConfigError, StateStoreError

try:
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions
except ImportError as error:
    raise ConfigError(
        "a streams application needs rocksdict for its state: pip install 'kafkaclient[streams]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path


_POSITION = "position"  # a column family of its own: keys of stores are any bytes


class RocksStore:
    """A map from bytes to bytes, ordered by key.

    There is no write-ahead log: after a crash, writes that were not flushed are restored from the
    changelog. The files always contain all writes up to some point in time. Calls block: usually
    for microseconds, :meth:`flush` for as long as the disk takes.

    The position in the changelog is in the RocksDB, too, written after the changes before it. So
    files that lack changes, because some were removed or damaged, lack the position as well.

    Every method raises :class:`~kafkaclient.errors.StateStoreError` on a disk error.
    """

    failure: StateStoreError | None = None
    """The last error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_keep_log_file_num(2)
        self._write_options = WriteOptions()
        # The binding's stub declares this property as a method.
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        self._reads: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        with self._store_errors("opened"):
            families = {_POSITION: Options(raw_mode=True)}
            self._db = Rdict(str(path), options, column_families=families)
            self._positions = self._db.get_column_family(_POSITION)
            self.position = int(self._positions.get(b"") or 0)
            """The files have all changes before this offset of the changelog."""

    def get(self, key: bytes) -> bytes | None:
        try:  # called for each record: a context manager takes longer than the read
            value: bytes | None = self._db.get(key)
        except Exception as error:  # the binding has no narrower type
            raise self._error("read", error) from error
        return value

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All pairs from ``start`` on. The iteration shows the store as of the call. :meth:`close`
        ends it."""
        with self._store_errors("read"):
            pairs = _each(cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=start)))
        self._reads.add(pairs)
        return pairs

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write all changes atomically. None deletes a key."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        with self._store_errors("written"):
            self._db.write(batch, write_opt=self._write_options)

    def flush(self, position: int | None = None) -> None:
        """Write everything to disk: all changes before ``position``, and perhaps later ones."""
        with self._store_errors("flushed"):
            self._db.flush()
            if position is not None:
                self._positions.put(b"", b"%d" % position, write_opt=self._write_options)
                self._positions.flush()

    def close(self) -> None:
        """Close the files, and end the iterations, which would keep the files locked."""
        for pairs in list(self._reads):
            with suppress(ValueError):  # another thread is taking its next pair
                pairs.close()
        with self._store_errors("closed"):
            self._positions.close()
            self._db.close()

    @contextmanager
    def _store_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: Exception) -> StateStoreError:
        self.failure = StateStoreError(
            f"the store {self._path} cannot be {what}: {error}. No data is lost: the changelog has "
            "all of it. Free disk space or repair the disk, and restart. A deleted directory is "
            "restored from the changelog"
        )
        return self.failure


def _each(
    pairs: Iterable[tuple[bytes, bytes]],
) -> Generator[tuple[bytes, bytes], None, None]:
    """A generator can be closed, and holds the RocksDB's iterator until then."""
    yield from pairs
