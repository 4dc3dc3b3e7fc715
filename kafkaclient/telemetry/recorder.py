"""Collects the rows of one producer, and writes them file by file on another thread.

A file is complete with its footer. One large file would get its footer at the very end, so a
program that is killed would leave nothing readable. With many files it loses the rows of the last
few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

from kafkaclient.telemetry.parquet import write_part
from kafkaclient.telemetry.rows import SCHEMA, Columns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kafkaclient.telemetry.rows import BatchRow

_log = logging.getLogger(__name__)

_ROWS_PER_FILE = 8192
_SECONDS_PER_FILE = 5.0  # after a file's first row
_MAX_WAITING = 262_144  # rows that wait for a disk that does not answer, about 25 MB
_LAST_WRITE_TIMEOUT_S = 10.0


class Recorder:
    """Writes ``directory/batches-<client id>-<unique>-<number>.parquet``.

    ``facts`` become metadata of every file. Created in the event loop that uses it. Its methods do
    not raise and do not block. A failed write is logged and ends the recording.
    """

    def __init__(self, directory: Path, client_id: str, facts: Mapping[str, str]) -> None:
        self._directory = directory
        self._prefix = f"batches-{re.sub(r'[^A-Za-z0-9._]+', '_', client_id)}-{uuid4().hex[:12]}"
        self._schema = SCHEMA.with_metadata(dict(facts))
        self._loop = asyncio.get_running_loop()
        self._columns = Columns(self._schema)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._numbers = count()
        self.ended: bool = False
        """Whether rows are dropped: the recorder was closed, or an error ended the recording."""

    def __repr__(self) -> str:
        return f"<Recorder of {self._prefix} waiting={len(self._columns)} ended={self.ended}>"

    def add(self, row: BatchRow) -> None:
        """Record a batch. A row that does not fit ends the recording, with one error in the log."""
        if self.ended:
            return
        try:
            self._columns.append(row)
        except (TypeError, ValueError, OverflowError) as error:
            self._give_up(f"a row does not fit its columns: {error!r}")
            return
        waiting = len(self._columns)
        if waiting >= _MAX_WAITING:
            self._give_up(f"{waiting} rows wait for a write that does not end")
        else:
            self._write_when_due()

    async def close(self) -> None:
        """Write the remaining rows, for at most ten seconds."""
        if self.ended:
            return
        deadline = self._loop.time() + _LAST_WRITE_TIMEOUT_S
        for _ in range(2):  # the write in progress, then the rows that arrived since it began
            self._start_write()
            if self._writing is not None:
                left = max(0.0, deadline - self._loop.time())
                await asyncio.wait({self._writing}, timeout=left)
        if self._writing is not None or self._columns:
            self._give_up(f"the last write did not end within {_LAST_WRITE_TIMEOUT_S:.0f} s")
        self._end()

    def _write_when_due(self) -> None:
        if len(self._columns) >= _ROWS_PER_FILE:
            self._start_write()
        elif self._timer is None:
            self._timer = self._loop.call_later(_SECONDS_PER_FILE, self._start_write)

    def _start_write(self) -> None:
        """Write the rows on another thread, unless a write is in progress."""
        self._stop_timer()
        if self._writing is not None or not self._columns:
            return
        columns, self._columns = self._columns, Columns(self._schema)
        try:
            self._writing = self._loop.run_in_executor(
                None, self._write_file, next(self._numbers), columns
            )
        except RuntimeError as error:  # the program ends, and its threads have ended already
            self._give_up(repr(error))
        else:
            self._writing.add_done_callback(self._on_written)

    def _write_file(self, number: int, columns: Columns) -> None:
        if number == 0:  # a directory that is missing later was removed on purpose
            self._directory.mkdir(parents=True, exist_ok=True)
        write_part(self._directory, f"{self._prefix}-{number:06d}.parquet", columns)

    def _on_written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = None if writing.cancelled() else writing.exception()
        if error is not None:
            self._give_up(repr(error))
        elif self._columns and not self.ended:
            self._write_when_due()

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
