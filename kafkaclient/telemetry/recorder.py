"""Collects the rows of one producer and writes them on another thread, a file at a time.

A file holds one row group and is complete with its footer. One large file would get its footer at
the very end only, and a program that is killed would leave nothing readable at all; this way it
loses the rows of the last few seconds.
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

    from kafkaclient.telemetry.row import BatchRow

__all__ = ["Recorder"]

_log = logging.getLogger(__name__)

_ROWS = 8192
_SECONDS = 5.0
# Rows that wait for a disk that does not take them; about 25 MB.
_MOST_WAITING = 262_144
_LAST_WRITE_TIMEOUT_S = 10.0


class Recorder:
    """Writes ``directory/batches-<client id>-<unique>-<number>.parquet``.

    A file is begun every ``rows_per_file`` rows, or ``seconds_per_file`` after its first row.
    ``facts`` become metadata of every file. Made in the event loop that it works in. An error of
    writing is logged, and ends the recording: nothing here raises, or holds the event loop up.
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
        """Whether rows are no longer taken: it was closed, or an error has ended it."""

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
        waiting = len(self._columns)
        if waiting >= self._most_waiting:
            self._give_up(f"{waiting} rows wait for a write that does not end")
        elif waiting >= self._rows_per_file:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._seconds_per_file, self._hand_over)

    async def close(self) -> None:
        """Write what is left, for at most ten seconds."""
        if self.ended:
            return
        deadline = self._loop.time() + _LAST_WRITE_TIMEOUT_S
        for _ in range(2):  # what is being written, then what has come in since
            self._hand_over()
            if self._writing is not None:
                left = max(0.0, deadline - self._loop.time())
                await asyncio.wait({self._writing}, timeout=left)
        if self._writing is not None or self._columns:
            self._give_up(f"the last write did not end within {_LAST_WRITE_TIMEOUT_S:.0f} s")
        self._end()

    def _hand_over(self) -> None:
        """Have the rows written, unless others are being written just now."""
        self._stop_timer()
        if self._writing is not None or not self._columns:
            return
        columns, self._columns = self._columns, Columns(self._schema)
        number = next(self._numbers)
        name = f"{self._prefix}-{number:06d}.parquet"
        work = partial(self._write_file, name, columns, number)
        try:
            self._writing = self._loop.run_in_executor(None, work)
        except RuntimeError as error:  # the program ends, and its threads have ended already
            self._give_up(repr(error))
        else:
            self._writing.add_done_callback(self._written)

    def _write_file(self, name: str, columns: Columns, number: int) -> None:
        if not number:  # later its absence tells that somebody has taken it away
            self._directory.mkdir(parents=True, exist_ok=True)
        self._write(self._directory, name, columns)

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = None if writing.cancelled() else writing.exception()
        if error is not None:
            self._give_up(repr(error))
        elif self._columns and not self.ended:
            if len(self._columns) >= self._rows_per_file:
                self._hand_over()
            elif self._timer is None:
                self._timer = self._loop.call_later(self._seconds_per_file, self._hand_over)

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
