"""The asyncio task that processes a task's records, in turns with the others."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from kafkaclient.streams.runtime.record_work import cancelled_error
from kafkaclient.streams.tasks import is_recoverable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.streams.runtime.committer import Committer
    from kafkaclient.streams.runtime.task import Task


# --- Shares the event loop between records: after 10 ms of processing -----------------------------

_MAX_TURN_S = 0.01


class Turns:
    """The turns of all workers of an instance. However many tasks have records, heartbeats and
    requests wait for at most one turn and one record.

    Ask :attr:`is_over` before each record, and then await :meth:`next`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = -math.inf
        """When the present pass of the event loop began."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pass_is_scheduled = False

    @property
    def is_over(self) -> bool:
        """Whether the event loop must run before the next record."""
        return self._clock() - self._began_at >= _MAX_TURN_S

    async def next(self) -> None:
        """Wait for a turn. Each pass of the event loop gives one, in the order of the calls."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._pass_is_scheduled:
            self._pass_is_scheduled = True
            loop.call_soon(self._begin_pass, loop)
        await turn

    def _begin_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._began_at = self._clock()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                break
        self._pass_is_scheduled = bool(self._waiting)
        if self._pass_is_scheduled:
            loop.call_soon(self._begin_pass, loop)


# --- The asyncio task that processes the records of one running task ------------------------------

_MAX_WAITING_RECORDS = 500  # no more are fetched for the task while this many wait


class Worker:
    """Works until it is cancelled, or until an error, with which ``on_error`` is called.

    While ``may_work`` is not set, no record is started.
    ``on_room`` is called when more records may be fetched.
    """

    def __init__(
        self,
        task: Task,
        committer: Committer,
        turns: Turns,
        may_work: asyncio.Event,
        on_room: Callable[[], None],
        on_error: Callable[[Task, BaseException], None],
    ) -> None:
        self.task = task
        self._committer = committer
        self._turns = turns
        self._may_work = may_work
        self._on_room = on_room
        self._on_error = on_error
        self._records: deque[Any] = deque()
        self._most_waiting = _MAX_WAITING_RECORDS
        self._wake = asyncio.Event()
        self._between_records = asyncio.Event()
        """Set while no record is being processed."""
        self._between_records.set()
        self._last: Any = None
        """The record that was started last."""
        self._is_over = False
        self._is_suspended = False
        self._is_late = False
        """Whether the current record was not waited for: its results are dropped."""
        self.asyncio_task = asyncio.create_task(self._run(), name=f"kafkaclient-work-{task.id}")

    @property
    def has_room(self) -> bool:
        """Whether more records may be fetched."""
        return len(self._records) < self._most_waiting

    def add_records(self, records: Iterable[Any], most_rows: int = _MAX_WAITING_RECORDS) -> None:
        """Add records that follow the earlier ones. ``most_rows``: no more are fetched while as
        many wait, because they are large."""
        self._most_waiting = min(most_rows, _MAX_WAITING_RECORDS)
        self._records.extend(records)
        self._wake.set()

    async def suspend(self, timeout_s: float) -> bool:
        """Start no further record, and wait for the current one. Returns False if it takes longer
        than ``timeout_s`` seconds; its processing goes on, and its results are dropped."""
        self._is_suspended = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._between_records.wait()
        except TimeoutError:
            self._is_late = True
        return not self._is_late

    def cancel(self) -> None:
        """End the worker. Call it when the task does not run any more."""
        self._is_over = True
        if self.asyncio_task is not asyncio.current_task():
            self.asyncio_task.cancel()

    async def _run(self) -> None:
        try:
            await self._work()
        except asyncio.CancelledError as error:
            if self._is_over:
                raise
            cancelled = cancelled_error(self.task.id.partition, self._last)
            cancelled.__cause__ = error
            self._report(cancelled)

    async def _work(self) -> None:
        while not (self._is_over or self._is_suspended):
            if not self._records:
                self._wake.clear()
                await self._wake.wait()
            elif not self._may_work.is_set():
                await self._may_work.wait()
            elif self._turns.is_over:
                await self._turns.next()
            else:
                await self._process_run()
                if self.asyncio_task.cancelling():
                    raise asyncio.CancelledError  # a processor has caught the first one

    async def _process_run(self) -> None:
        self._between_records.clear()
        try:
            await self._process_records()
        except Exception as error:  # noqa: BLE001 - on_error gets it
            if is_recoverable(error):
                await self._committer.commit()  # the records before it need not be done again
            self._report(error)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if not self.asyncio_task.get_loop().is_running():
                raise  # GeneratorExit: the coroutine is closed
            self._report(error)
        finally:
            self._between_records.set()

    async def _process_records(self) -> None:
        """Process records until the turn is over, or no further record may be started."""
        records = self._records
        while records and self._may_work.is_set() and not (self._is_over or self._is_suspended):
            self._last = record = records.popleft()
            if len(records) == self._most_waiting - 1:
                self._on_room()
            results = await self.task.process(record)
            if results is not None and not self._is_late:
                added = self._committer.add(self.task, *results)
                if added is not None:
                    await added
            if self._turns.is_over:
                return

    def _report(self, error: BaseException) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_error(self.task, error)
