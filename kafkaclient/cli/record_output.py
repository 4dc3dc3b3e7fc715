"""Where ``kafkaclient consume`` writes: stdout, or a file of lines or of columns."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.errors import ConfigError, InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from kafkaclient.cli.record_format import Printed, Records, Write

COLUMNS = (".parquet", ".arrow", ".csv")


class Output(Protocol):
    """Takes records. Raises OSError, and InvalidRecordError for what it cannot write."""

    async def write(self, records: Records) -> None: ...


@contextmanager
def _named(name: object, consequence: str) -> Iterator[None]:
    """Name what is written in the system's errors: they are of a file that is open. The error of a
    pipe whose reader has ended stays."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{name} cannot be written: {why}; {consequence}") from error


class _Writer:
    """Calls a blocking function in a daemon thread: Ctrl-C ends the command even if the reader of
    the pipe has stopped."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._todo: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            data, future = self._todo.get()
            error = None
            try:
                self._write(data)
            except OSError as caught:
                error = caught
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, error)
            except RuntimeError:
                return  # the command has ended

    async def write(self, data: bytes) -> None:
        future = asyncio.get_running_loop().create_future()
        self._todo.put((data, future))
        await future


def _settle(future: asyncio.Future[None], error: OSError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class _Lines:
    def __init__(self, stream: Any, name: object, form: Write) -> None:
        self._name = name
        self._form = form
        raw = getattr(stream, "raw", stream)  # a lock of the buffer would outlive the thread

        def write(data: bytes) -> None:
            left = memoryview(data)
            while left:
                left = left[raw.write(left) :]

        self._writer = _Writer(write)

    async def write(self, records: Records) -> None:
        with _named(self._name, "it may end in the middle of a record"):
            await self._writer.write(self._form(records))


@asynccontextmanager
async def output_to(file: Path | None, form: Write) -> AsyncIterator[Output]:
    """Lines to the file, to stdout without one; or the columns that the file's name asks for."""
    if file is None:
        sys.stdout.write("")  # raises OSError if it is closed
        sys.stdout.flush()
        yield _Lines(sys.stdout.buffer, "stdout", form)
    elif file.suffix in COLUMNS:
        columns = _Columns(file)
        try:
            yield columns
        finally:
            columns.close()
    else:
        with file.open("wb", buffering=0) as stream:
            yield _Lines(stream, file, form)


class _Columns:
    """A Parquet, Arrow or CSV file with the columns topic, partition, offset, timestamp, key,
    value, headers."""

    def __init__(self, file: Path) -> None:
        try:
            pa: Any = import_module("pyarrow")
        except ModuleNotFoundError:
            raise ConfigError(
                f"{file.name} needs pyarrow: pip install 'kafkaclient[arrow]'"
            ) from None
        self._pa = pa
        self._file = file
        self._is_csv = file.suffix == ".csv"
        self._consequence = "it may end in the middle of a record"
        if not self._is_csv:
            self._consequence = "without its end nothing in it can be read"
        content = pa.string() if self._is_csv else pa.binary()
        header = pa.struct([("key", pa.string()), ("value", content)])
        self._schema = pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", "UTC")),
                ("key", content),
                ("value", content),
                *([] if self._is_csv else [("headers", pa.list_(header))]),
            ]
        )
        with _named(file, "nothing is in it"):
            self._sink = self._opened(str(file))

    def _opened(self, file: str) -> Any:
        if self._is_csv:
            return import_module("pyarrow.csv").CSVWriter(file, self._schema)
        if self._file.suffix == ".parquet":
            return import_module("pyarrow.parquet").ParquetWriter(file, self._schema)
        return import_module("pyarrow.ipc").new_file(file, self._schema)

    async def write(self, records: Records) -> None:
        with _named(self._file, self._consequence):
            await asyncio.to_thread(self._write, records)

    def _write(self, records: Records) -> None:
        rows = list(records)
        columns: dict[str, list[Any]] = {
            "topic": [each.topic for each in rows],
            "partition": [each.partition for each in rows],
            "offset": [each.offset for each in rows],
            "timestamp": [None if each.timestamp < 0 else each.timestamp for each in rows],
            "key": [each.key for each in rows],
            "value": [each.value for each in rows],
        }
        if self._is_csv:
            columns |= {name: self._texts(name, rows) for name in ("key", "value")}
        else:
            columns["headers"] = [
                [{"key": name, "value": value} for name, value in each.headers] for each in rows
            ]
        table = self._pa.table(columns, schema=self._schema)
        self._sink.write_table(table)

    def _texts(self, name: str, rows: list[Printed]) -> list[str | None]:
        texts = []
        for row in rows:
            content = getattr(row, name)
            try:
                texts.append(content if content is None else content.decode())
            except UnicodeDecodeError:
                raise InvalidRecordError(
                    f"the {name} at {row.topic}-{row.partition}, offset {row.offset}, is no UTF-8, "
                    f"and CSV has only text: write {self._file.stem}.parquet, or --json"
                ) from None
        return texts

    def close(self) -> None:
        with _named(self._file, self._consequence):
            self._sink.close()
