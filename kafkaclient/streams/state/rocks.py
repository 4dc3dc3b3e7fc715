"""A RocksDB, with errors that say what to do. The only place that knows the binding."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from kafkaclient.errors import ConfigError, StateStoreError

try:
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions
except ImportError as error:
    raise ConfigError(
        "a streams application keeps its state in RocksDB: pip install 'kafkaclient[streams]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["RocksStore"]


class RocksStore:
    """Keys and values are bytes, in the order of keys.

    There is no write-ahead log: what was not flushed when the process ends is in the changelog.
    What is in the files is always the result of all writes up to one of them. Calls block, for
    microseconds mostly; :meth:`flush` for as long as the disk takes.

    Every method raises :class:`~kafkaclient.errors.StateStoreError` when the disk does not do what
    it should.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_keep_log_file_num(2)
        self._write_options = WriteOptions()
        # A property, whatever the binding's stub says.
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        with self._store_errors("opened"):
            self._db = Rdict(str(path), options)

    def get(self, key: bytes) -> bytes | None:
        with self._store_errors("read"):
            value: bytes | None = self._db.get(key)
            return value

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """From ``start`` on. Sees what was there when it was called."""
        with self._store_errors("read"):
            return cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=start))

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """All of them or none; None deletes."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        with self._store_errors("written"):
            self._db.write(batch, write_opt=self._write_options)

    def flush(self) -> None:
        """Have everything on disk."""
        with self._store_errors("flushed"):
            self._db.flush()

    def close(self) -> None:
        with self._store_errors("closed"):
            self._db.close()

    @contextmanager
    def _store_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the binding raises nothing more special
            raise StateStoreError(
                f"the store {self._path} cannot be {what}: {error}. Nothing is lost, as its "
                "changelog has all of it: make room or repair the disk, and start again; a "
                "directory that is deleted is restored"
            ) from error
