"""The asyncio task that processes and commits the records of one running task."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from kafkaclient.streams.runtime.task import Task

_MAX_WAITING_RECORDS = 500  # no more are fetched for the task while this many wait


class Worker:
    """Works until it is cancelled, or until an error, with which ``on_error`` is called.

    While ``may_work`` is not set, no record is started, and only :meth:`suspend` commits.
    ``on_room`` is called when more records may be fetched.
    """

    def __init__(
        self,
        task: Task,
        may_work: asyncio.Event,
        on_room: Callable[[], None],
        on_error: Callable[[Task, Exception], None],
    ) -> None:
        self.task = task
        self._may_work = may_work
        self._on_room = on_room
        self._on_error = on_error
        self._records: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._between_records = asyncio.Event()
        """Set while no record is being processed."""
        self._between_records.set()
        self._is_over = False
        self._is_suspended = False
        self._lock = asyncio.Lock()
        """Held while records are processed or committed."""
        self.asyncio_task = asyncio.create_task(self._run(), name=f"kafkaclient-work-{task.id}")

    @property
    def has_room(self) -> bool:
        """Whether more records may be fetched."""
        return len(self._records) < _MAX_WAITING_RECORDS

    def add_records(self, records: Iterable[Any]) -> None:
        """Add records that follow the earlier ones."""
        self._records.extend(records)
        self._wake.set()

    async def suspend(self, timeout_s: float) -> bool:
        """Start no further record, and commit the processed ones. Returns False, without a commit,
        if the current record takes longer than ``timeout_s`` seconds; its processing goes on.
        Otherwise returns True, also if the commit failed and ``on_error`` was called."""
        self._is_suspended = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._between_records.wait()
        except TimeoutError:
            return False
        async with self._lock:
            await self._report_error(self.task.commit)
        return True

    def cancel(self) -> None:
        """End the worker. Call it when the task does not run any more."""
        self._is_over = True
        if self.asyncio_task is not asyncio.current_task():
            self.asyncio_task.cancel()

    async def _run(self) -> None:
        while not (self._is_over or self._is_suspended):
            await self._wait_for_work()
            await self._may_work.wait()
            async with self._lock:
                await self._report_error(self._process_and_commit)

    async def _process_and_commit(self) -> None:
        self._between_records.clear()
        try:
            await self.task.process(self._take_records(), self._may_start)
        finally:
            self._between_records.set()
        if self.task.is_commit_due and self._may_start():
            await self.task.commit()

    def _may_start(self) -> bool:
        return self._may_work.is_set() and not self._is_suspended

    async def _report_error(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._is_over:
            return  # nothing may be committed any more
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - on_error gets it
            self._is_over = True
            self._on_error(self.task, self.task.slow_records.explain_error(error))

    async def _wait_for_work(self) -> None:
        while not self._records and not self.task.is_commit_due:
            self._wake.clear()
            try:
                async with asyncio.timeout(self.task.commit_due_in):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _take_records(self) -> Iterator[Any]:
        while self._records:
            record = self._records.popleft()
            if len(self._records) == _MAX_WAITING_RECORDS - 1:
                self._on_room()
            yield record
