"""Collects the rows of one producer, and writes them on another thread, one file at a time.

Each file is complete: it has one row group and its footer. A killed program loses only the rows of
the last seconds. A single large file would get its footer at the end only, and be unreadable.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

from kafkaclient.telemetry.columns import Columns
from kafkaclient.telemetry.parquet import SCHEMA, write_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kafkaclient.telemetry.parquet import BatchRow

__all__ = ["Recorder"]

_log = logging.getLogger(__name__)

_ROWS = 8192  # per file
_SECONDS = 5.0  # after its first row, a file is written
_MOST_WAITING = 262_144  # rows that wait for a slow disk, about 25 MB
_LAST_WRITE_TIMEOUT_S = 10.0


class Recorder:
    """Writes ``directory/batches-<client id>-<unique>-<number>.parquet``. Needs an event loop.

    A file is written after ``rows_per_file`` rows, or ``seconds_per_file`` after its first row.
    Each file has ``facts`` as metadata. A failed write is logged and ends the recording. No method
    raises an error or blocks the event loop.
    """

    def __init__(
        self,
        directory: Path,
        client_id: str,
        facts: Mapping[str, str],
        *,
        rows_per_file: int = _ROWS,
        seconds_per_file: float = _SECONDS,
        most_waiting: int = _MOST_WAITING,
        write: Callable[[Path, str, Columns], None] = write_part,
    ) -> None:
        self._directory = directory
        self._prefix = f"batches-{re.sub(r'[^A-Za-z0-9._]+', '_', client_id)}-{uuid4().hex[:12]}"
        self._schema = SCHEMA.with_metadata(dict(facts))
        self._rows_per_file = rows_per_file
        self._seconds_per_file = seconds_per_file
        self._most_waiting = most_waiting
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._columns = Columns(self._schema)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._numbers = count()
        self.ended = False
        """Whether rows are dropped, because the recorder was closed or a write failed."""

    def __repr__(self) -> str:
        return f"<Recorder of {self._prefix} waiting={len(self._columns)} ended={self.ended}>"

    def add(self, row: BatchRow) -> None:
        if self.ended:
            return
        try:
            self._columns.append(row)
        except (TypeError, ValueError, OverflowError) as error:
            self._give_up(f"a row does not fit its columns: {error!r}")
            return
        if len(self._columns) >= self._most_waiting:
            self._give_up(f"{len(self._columns)} rows wait for a write that does not end")
        else:
            self._schedule_write()

    def _schedule_write(self) -> None:
        if len(self._columns) >= self._rows_per_file:
            self._start_write()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._seconds_per_file, self._start_write)

    async def close(self) -> None:
        """Write the remaining rows. Takes at most ten seconds."""
        if self.ended:
            return
        deadline = self._loop.time() + _LAST_WRITE_TIMEOUT_S
        for _ in range(2):  # the write in progress, then the rows added since it began
            self._start_write()
            if self._writing is not None:
                left = max(0.0, deadline - self._loop.time())
                await asyncio.wait({self._writing}, timeout=left)
        if self._writing is not None or self._columns:
            self._give_up(f"the last write did not end within {_LAST_WRITE_TIMEOUT_S:.0f} s")
        self._end()

    def _start_write(self) -> None:
        """Write the rows on a thread, unless a write is in progress."""
        self._stop_timer()
        if self._writing is not None or not self._columns:
            return
        columns, self._columns = self._columns, Columns(self._schema)
        number = next(self._numbers)
        name = f"{self._prefix}-{number:06d}.parquet"
        work = partial(self._write_file, name, columns, number)
        try:
            self._writing = self._loop.run_in_executor(None, work)
        except RuntimeError as error:  # the program ends, and its threads have ended
            self._give_up(repr(error))
        else:
            self._writing.add_done_callback(self._written)

    def _write_file(self, name: str, columns: Columns, number: int) -> None:
        if not number:  # a directory that is removed later is not created again
            self._directory.mkdir(parents=True, exist_ok=True)
        self._write(self._directory, name, columns)

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = None if writing.cancelled() else writing.exception()
        if error is not None:
            self._give_up(repr(error))
        elif self._columns and not self.ended:
            self._schedule_write()

    def _give_up(self, why: str) -> None:
        if not self.ended:
            _log.error(
                "telemetry to %s ends, and the rows not written are lost: %s", self._directory, why
            )
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._stop_timer()
        self._columns = Columns(self._schema)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
