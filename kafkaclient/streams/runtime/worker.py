"""The work on one running task: its records are processed and committed beside those of others."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from kafkaclient.streams.runtime.task import Task

__all__ = ["Worker"]

_MAX_WAITING_RECORDS = 500
"""Records that wait; no more are fetched for the task."""


class Worker:
    """Works until it is cancelled, or until something fails, which ``on_error`` is told.

    Nothing is processed and nothing committed while ``may_work`` is not set, except what
    :meth:`suspend` commits. ``on_room`` is called when more may be fetched.
    """

    def __init__(
        self,
        task: Task,
        may_work: asyncio.Event,
        on_room: Callable[[], None],
        on_error: Callable[[Task, Exception], None],
    ) -> None:
        self.task = task
        self.fetch_token = object()
        """Another one after each :meth:`discard_records`, and in each worker. Records of a fetch that began
        with another one must not be given."""
        self._may_work = may_work
        self._on_room = on_room
        self._on_error = on_error
        self._records: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._between_records = asyncio.Event()
        """Set while no record is being processed: :meth:`_process_and_commit` clears it for a run of records."""
        self._between_records.set()
        self._is_over = False
        self._lock = asyncio.Lock()
        """Held while records are processed, and while they are committed."""
        self.asyncio_task = asyncio.create_task(self._run(), name=f"kafkaclient-work-{task.id}")

    @property
    def has_room(self) -> bool:
        """Whether more records may be fetched."""
        return len(self._records) < _MAX_WAITING_RECORDS

    def add_records(self, records: Iterable[Any]) -> None:
        """Records that follow those given before."""
        self._records.extend(records)
        self._wake.set()

    def discard_records(self) -> None:
        """Records that wait are fetched again, from the task's ``source_offset`` on."""
        self._records.clear()
        self.fetch_token = object()

    async def suspend(self, timeout_s: float) -> bool:
        """Commit what was processed. Clear ``may_work`` first, so that the work stops after the
        current record. Returns False, without a commit, if that record takes longer than
        ``timeout_s`` seconds; its processing goes on. Returns True otherwise; if the commit
        failed, ``on_error`` was called."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._between_records.wait()
        except TimeoutError:
            return False
        async with self._lock:
            await self._report_error(self.task.commit)
        return True

    def cancel(self) -> None:
        """To be called when the task does not run any more."""
        self._is_over = True
        if self.asyncio_task is not asyncio.current_task():
            self.asyncio_task.cancel()

    async def _run(self) -> None:
        while not self._is_over:
            await self._wait_for_work()
            await self._may_work.wait()
            async with self._lock:
                await self._report_error(self._process_and_commit)

    async def _process_and_commit(self) -> None:
        self._between_records.clear()
        try:
            await self.task.process(self._take_records(), self._may_work.is_set)
        finally:
            self._between_records.set()
        if self.task.is_commit_due and self._may_work.is_set():
            await self.task.commit()

    async def _report_error(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._is_over:
            return  # what was done must not be committed any more
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._is_over = True
            self._on_error(self.task, self.task.explain_error(error))

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
