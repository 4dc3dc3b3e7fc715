"""Collects the rows of one producer into parts, and has a store write them one after another.

A Parquet file is complete with its footer. One large file would get its footer at the very end, so
a program that is killed would leave nothing readable. With many files it loses the rows of the last
seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import pyarrow as pa

from kafkaclient.telemetry.format import EXCLUSIONS_KEY, ROWS_AT_A_TIME, STARTED_KEY, BatchColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.config.options import TelemetryTarget
    from kafkaclient.hooks import FinishedBatch

_log = logging.getLogger(__name__)

_HOUR_S = 3600
_MAX_WAITING = 262_144  # rows that wait for a slow or failing store, about 30 MB
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # after consecutive failures; the last one repeats
_LOGGED_FAILURE = 2  # consecutive failures: a single one is usual with object stores
_SLOW_WRITE_S = 60.0
_SLOW_WRITE = f"a write has taken {_SLOW_WRITE_S:g} s so far"
_LAST_WRITE_TIMEOUT_S = 10.0
_LAST_FAILURE = 3  # consecutive failures after which a recorder that is being closed gives up


class PartRefusedError(Exception):
    """A part can never be written, whatever the state of the store: it is too large, or cannot be
    converted."""


class PartTooLargeError(PartRefusedError):
    """The store takes no part of this size; a smaller one may be written."""


@dataclass(slots=True)
class TelemetryPart:
    """The rows of one file or message."""

    name: str
    """Unique among all parts of all producers: ``batches-CLIENT-UNIQUE-NUMBER``, and ``/1`` or
    ``/2`` for each time that the part was halved."""
    hour: datetime
    """The start of the UTC hour in which all batches of the part had their outcome."""
    columns: BatchColumns
    metadata: Mapping[str, str]

    def encode(self, form: Callable[[pa.Table], bytes]) -> bytes:
        """The content of a file or a message. Raises PartRefusedError."""
        try:
            return form(self.columns.table(self.metadata))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise PartRefusedError(f"they cannot be encoded: {named(error)}") from error

    @property
    def whole(self) -> str:
        """The name of the part before it was halved."""
        return self.name.partition("/")[0]

    def halves(self) -> tuple[TelemetryPart, TelemetryPart]:
        """Two parts with half of the rows each. The exclusions stay with the first."""
        first, second = self.columns.halves()
        rest = {name: text for name, text in self.metadata.items() if name != EXCLUSIONS_KEY}
        return (
            replace(self, name=f"{self.name}/1", columns=first),
            replace(self, name=f"{self.name}/2", columns=second, metadata=rest),
        )


def named(error: Exception) -> str:
    """The error's type and the first line of its text, for the log."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


class TelemetryStore(Protocol):
    """Where parts are written, one at a time."""

    @property
    def rows_per_part(self) -> int:
        """How many rows make a part."""

    @property
    def seconds_per_part(self) -> float:
        """How long after its first row a part is to be written."""

    async def write(self, part: TelemetryPart) -> None:
        """Write the part. Raises PartRefusedError or PartTooLargeError; any other Exception: try
        again later. A part that was written before may be written again."""

    async def clean(self) -> None:
        """Delete some of what is older than the retention, if it is time. Called after a write, but
        not while the recorder is being closed. Raises nothing."""

    async def close(self) -> None:
        """Free what the store holds. Raises nothing."""


class TelemetryRecorder:
    """Records batches. Created in the event loop that uses it; only :meth:`close` waits, and no
    method raises.

    While the store fails or is too slow, up to 262,144 rows wait (or two parts, if these are more),
    and further rows are dropped. A failed write is repeated after 1, 2, 5, 10 and then every 30 s.

    Parameters: ``target`` is shown in the log. ``clock`` is the clock of the batches; their times
    are recorded relative to its time now. ``wall_clock`` gives seconds since the epoch.
    ``metadata()`` is called for each part. ``chance()`` gives random numbers from 0 to 1; batches
    with at least ``share`` are not recorded.
    """

    def __init__(
        self,
        store: TelemetryStore,
        target: TelemetryTarget,
        client_id: str,
        metadata: Callable[[], Mapping[str, str]],
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        acks: bool,
        share: float,
        chance: Callable[[], float],
    ) -> None:
        self._store = store
        self._target = target
        self._client_id = client_id
        self._metadata = metadata
        self._clock, self._wall_clock = clock, wall_clock
        self._start, self._acks = clock(), acks
        self._share, self._chance = share, chance
        self._prefix = f"batches-{re.sub(r'[^A-Za-z0-9._]+', '_', client_id)}-{uuid4().hex[:12]}"
        self._numbers = count()
        self._loop = asyncio.get_running_loop()
        self._latest: list[FinishedBatch] = []
        self._columns = self._new_columns()
        self._started = self._hour = datetime.fromtimestamp(0, UTC)  # of the part
        self._part_end = -inf  # on the clock of the batches; -inf: no part has begun
        self._parts: deque[TelemetryPart] = deque()
        self._rows_in_parts = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._is_behind = False
        self._dropped_before = 0
        self._logged: set[str] = set()
        self.recorded = 0
        """How many batches were written."""
        self.dropped = 0
        """How many batches were lost."""

    def __repr__(self) -> str:
        return f"<Recorder of {self._prefix} waiting={self.waiting} dropped={self.dropped}>"

    @property
    def waiting(self) -> int:
        """How many batches wait until they are written."""
        return self._rows_in_parts + self._columns.rows + len(self._latest)

    # --- batches become parts -----------------------------------------------------------------

    def add(self, batch: FinishedBatch) -> None:
        """Record the batch, if it is in the sample."""
        if self._closing.is_set() or (self._share < 1 and self._chance() >= self._share):
            return
        if batch.done_s >= self._part_end:
            self._begin_part(batch.done_s)
        self._latest.append(batch)
        if len(self._latest) >= ROWS_AT_A_TIME:
            self._pack()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._store.seconds_per_part, self._end_part)

    def _begin_part(self, done_s: float) -> None:
        """The wall clock is read for each part: it may be set, and the clock of the batches stands
        still while the machine is suspended."""
        self._end_part()
        started_s = self._wall_clock() - (self._clock() - self._start)
        outcome_s = started_s + done_s - self._start
        hour_s = outcome_s // _HOUR_S * _HOUR_S
        self._started = datetime.fromtimestamp(started_s, UTC)
        self._hour = datetime.fromtimestamp(hour_s, UTC)
        self._part_end = done_s + hour_s + _HOUR_S - outcome_s

    def _pack(self) -> None:
        batches, self._latest = self._latest, []
        most = max(_MAX_WAITING, 2 * self._store.rows_per_part)
        if self.waiting + len(batches) > most:
            self._fall_behind(f"{self.waiting} rows wait for the store")
            self.dropped += len(batches)
            return
        try:
            self._columns.append(batches)
        except (TypeError, ValueError, OverflowError) as error:
            self._lose(len(batches), f"a row does not fit its columns: {named(error)}")
        if self._columns.rows >= self._store.rows_per_part:
            self._end_part()

    def _end_part(self) -> None:
        """Queue the collected rows as a part for the writer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._latest:
            self._pack()
        columns, self._columns = self._columns, self._new_columns()
        self._part_end = -inf
        if columns.rows:
            name = f"{self._prefix}-{next(self._numbers):06d}"
            metadata = {STARTED_KEY: self._started.isoformat(), **self._metadata()}
            self._parts.append(TelemetryPart(name, self._hour, columns, metadata))
            self._rows_in_parts += columns.rows
            self._start_writer()

    def _new_columns(self) -> BatchColumns:
        return BatchColumns(self._client_id, self._start, acks=self._acks)

    # --- parts are written --------------------------------------------------------------------

    def _start_writer(self) -> None:
        # A program that ends cancels all tasks, and may record more until it closes the producer.
        if self._parts and (self._writer is None or self._writer.done()):
            self._writer = self._loop.create_task(self._write_parts(), name="kafkaclient-telemetry")

    async def _write_parts(self) -> None:
        failures = 0
        while self._parts:
            is_closing = self._closing.is_set()
            try:
                await self._write(self._parts[0])
            except PartRefusedError as error:
                self._split_or_lose(error)
            except Exception as error:  # noqa: BLE001 - any store, any error: records go on
                failures += 1
                why = self._target.hide(named(error))
                if failures >= _LOGGED_FAILURE or is_closing:
                    self._fall_behind(why)
                if is_closing and failures >= _LAST_FAILURE:
                    return
                await self._pause(_RETRY_S[min(failures, len(_RETRY_S)) - 1])
            else:
                failures = 0
                self.recorded += self._take_part().columns.rows
                if not self._parts:
                    self._catch_up()
                if not self._closing.is_set():
                    await self._store.clean()

    async def _write(self, part: TelemetryPart) -> None:
        slow = self._loop.call_later(_SLOW_WRITE_S, self._fall_behind, _SLOW_WRITE)
        try:
            await self._store.write(part)
        finally:
            slow.cancel()

    async def _pause(self, seconds: float) -> None:
        """Wait. The beginning of the recorder's end ends the wait."""
        end = asyncio.Event() if self._closing.is_set() else self._closing
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await end.wait()

    def _take_part(self) -> TelemetryPart:
        part = self._parts.popleft()
        self._rows_in_parts -= part.columns.rows
        return part

    def _split_or_lose(self, error: PartRefusedError) -> None:
        """Halve a part that is too large. If the store refuses even one row of it, give up the
        remaining halves: all rows have about the same size."""
        part = self._take_part()
        is_too_large, lost = isinstance(error, PartTooLargeError), part.columns.rows
        if is_too_large and lost > 1:
            self._parts.extendleft(reversed(part.halves()))
            self._rows_in_parts += lost
            return
        while is_too_large and self._parts and self._parts[0].whole == part.whole:
            lost += self._take_part().columns.rows
        self._lose(lost, str(error))

    def _fall_behind(self, why: str) -> None:
        """Log the start of an outage, once."""
        if not self._is_behind:
            self._is_behind, self._dropped_before = True, self.dropped
            _log.error(
                "telemetry is not written to %s: %s; rows wait in memory until it is, and if they "
                "become too many, further rows are dropped",
                self._target,
                why,
            )

    def _catch_up(self) -> None:
        if self._is_behind:
            self._is_behind = False
            lost = self.dropped - self._dropped_before
            _log.warning("telemetry is written to %s again; %d rows were lost", self._target, lost)

    def _lose(self, rows: int, why: str) -> None:
        """Logged once for each reason."""
        self.dropped += rows
        level = logging.DEBUG if why in self._logged else logging.ERROR
        self._logged.add(why)
        _log.log(level, "%d rows of telemetry to %s are lost: %s", rows, self._target, why)

    # --- the end ------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write the remaining rows, for at most ten seconds. Later rows are not recorded."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._end_part()
        self._start_writer()
        async with AsyncExitStack() as last:  # also if this task is cancelled
            last.callback(self._lose_waiting)
            last.push_async_callback(self._store.close)
            if self._writer is not None:
                await asyncio.wait({self._writer}, timeout=_LAST_WRITE_TIMEOUT_S)
                self._writer.cancel()
                await asyncio.wait({self._writer})

    def _lose_waiting(self) -> None:
        if self._parts:
            rows, self._rows_in_parts = self._rows_in_parts, 0
            self._parts.clear()
            self._lose(rows, "the producer was stopped before they could be written")
