"""Commits of tasks: their states, and what each takes together.

Exactly once, a commit is one transaction of all tasks of an instance (KIP-447). At least once, it
is one task's. It contains only whole records: what a record emits and changes is added when its
processor has returned. So a slow record delays no commit, and a transaction is open only for about
``commit.interval.ms``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    ProducerFencedError,
    StreamsError,
    TransactionAbortableError,
)
from kafkaclient.streams.runtime.outputs import forget
from kafkaclient.streams.runtime.refusals import SentRecords
from kafkaclient.streams.tasks import is_recoverable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.streams.runtime.observer import Observer
    from kafkaclient.streams.runtime.outputs import OutgoingRecord, Output, Work
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import TopicPartition


# --- The states of commits, and the events that change them ---------------------------------------


class CommitState(Enum):
    """What the committer does at present."""

    STARTING = "starting"
    """The producer is being started. No record's results are accepted."""
    CLEAN = "clean"
    """There is nothing to commit."""
    DIRTY = "dirty"
    """Results of whole records wait for the next commit."""
    CLOSING = "closing"
    """The commit is due. Results that are being added still belong to it; others wait."""
    COMMITTING = "committing"
    """What the commit contains is fixed, and is being written."""
    ABORTING = "aborting"
    """The commit failed. Its tasks go back to what was committed before."""
    ENDED = "ended"


class CommitEvent(Enum):
    STARTED = "the producer has started"
    ADDED = "a record's results are being added"
    DUE = "the commit is due, and the group takes commits"
    FIXED = "no results are being added any more"
    COMMITTED = "the commit succeeded"
    FAILED = "the commit failed, or cannot succeed any more"
    ABORTED = "nothing of the failed commit is left"
    ENDED = "the instance ends"


_S, _E = CommitState, CommitEvent

TRANSITIONS: Mapping[tuple[CommitState, CommitEvent], CommitState] = {
    (_S.STARTING, _E.STARTED): _S.CLEAN,
    (_S.CLEAN, _E.ADDED): _S.DIRTY,
    (_S.DIRTY, _E.ADDED): _S.DIRTY,
    (_S.DIRTY, _E.DUE): _S.CLOSING,
    (_S.DIRTY, _E.FAILED): _S.ABORTING,
    (_S.CLOSING, _E.FIXED): _S.COMMITTING,
    (_S.CLOSING, _E.FAILED): _S.ABORTING,
    (_S.COMMITTING, _E.COMMITTED): _S.CLEAN,
    (_S.COMMITTING, _E.FAILED): _S.ABORTING,
    (_S.ABORTING, _E.ABORTED): _S.STARTING,
    **{(state, _E.ENDED): _S.ENDED for state in _S},
}
"""(state, event) -> next state. Any other pair is a bug and raises KeyError."""


# --- Commits the work of its tasks together -------------------------------------------------------

_log = logging.getLogger(__name__)

_RETRY_BACKOFF_S = 0.5  # delay until the producer is started again
_MAX_FENCED = 3  # producers that are fenced in a row, before the instance ends


class _OpenCommit:
    """What the next commit will contain."""

    def __init__(self, due_at: float) -> None:
        self.tasks: dict[Task, bool] = {}
        """Whether the output has records of the task."""
        self.ids: set[TaskId] = set()
        """Also of tasks that were dropped: their next owner may be this instance, and must wait for
        the outcome."""
        self.sent = SentRecords()
        self.due_at = due_at
        self.done = asyncio.Event()
        """Set when it is committed or aborted."""


class Committer:
    """Commits what its tasks add, at the time that ``next_due`` returns for the first record.

    No commit begins while the ``gate`` is closed: tasks go on meanwhile. ``on_failed`` is called
    for each task of a failed commit, ``crash`` when the output cannot be used.
    """

    def __init__(
        self,
        output: Output,
        gate: CommitGate,
        next_due: Callable[[], float],
        *,
        on_failed: Callable[[Task, BaseException], None],
        crash: Callable[[BaseException], None],
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self.state = CommitState.STARTING
        self._observer = observer
        self._output = output
        self._gate = gate
        self._next_due = next_due
        self._on_failed = on_failed
        self._crash = crash
        self._clock = clock
        self._open: _OpenCommit | None = None
        """None while there is nothing to commit."""
        self._adding = 0
        """How many results are being added."""
        self._fixed: tuple[dict[Task, Work], int] | None = None
        """While COMMITTING: the content of the commit, and how often the member had lost its
        partitions, both of the same moment."""
        self._failure: BaseException | None = None
        """While ABORTING."""
        self._fenced = 0
        """Producers fenced since the last successful commit."""
        self._wake = asyncio.Event()
        """Wakes the loop."""
        self._accepts = asyncio.Event()
        """Set while CLEAN or DIRTY."""
        self._loop = asyncio.create_task(self._run(), name="kafkaclient-commit")

    async def close(self) -> None:
        """End without a commit: work that is not committed is dropped."""
        self._advance(_E.ENDED)
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        self._settle()

    # --- what tasks and workers call ------------------------------------------------------------

    async def wait_until_settled(self, task: Task) -> None:
        """Commit what an earlier owner of the task added here: its offset is final then."""
        if self._open is not None and task.id in self._open.ids:
            await self.commit()

    def add(
        self,
        task: Task,
        records: Sequence[OutgoingRecord],
        source: TopicPartition,
        offset: int,
    ) -> Awaitable[None] | None:
        """Add a processed record of ``source``: what it emitted, and the offset behind it. Its
        store changes are already in the store.

        Returns None if that is done. Else the caller awaits what is returned: the task is not in
        the commit yet, a commit is under way, or a record cannot be sent at once. If the commit
        fails because of this call, that is reported by ``on_failed``, which has to cancel the
        caller.
        """
        commit = self._open
        if commit is None or self.state is not _S.DIRTY or task not in commit.tasks:
            return self._add_later(task, records, source, offset)
        if records:
            commit.tasks[task] = True
            for done, record in enumerate(records):
                try:
                    delivery = self._output.send_nowait(record)
                except KafkaError:
                    return self._add_later(task, records[done:], source, offset)
                commit.sent.add(task, source, offset, delivery)
        task.record_done(source, offset)
        return None

    async def _add_later(
        self, task: Task, records: Sequence[OutgoingRecord], source: TopicPartition, offset: int
    ) -> None:
        while not self._accepts.is_set():
            await self._accepts.wait()
        self._advance(_E.ADDED)
        if self._open is None:
            self._open = _OpenCommit(self._next_due())
            self._wake.set()
        commit = self._open
        commit.tasks.setdefault(task, False)
        commit.ids.add(task.id)
        if records:
            commit.tasks[task] = True
            self._adding += 1
            try:
                await self._output.begin()
                for record in records:
                    commit.sent.add(task, source, offset, await self._output.send(record))
            except Exception as error:
                # A part of what the record emitted is there.
                self._fail(error)
                await commit.done.wait()
                raise
            except asyncio.CancelledError:
                self.drop(task)
                raise
            finally:
                self._adding -= 1
                self._wake.set()
        if task in commit.tasks:
            task.record_done(source, offset)

    def drop(self, task: Task) -> None:
        """The task does not run here any more, and drops what it has not committed. Exactly once,
        that fails the commit, if the output has records of the task.

        A commit under way may end either way: the task's next owner waits for its outcome.
        """
        if self._open is None:
            return
        has_records = self._open.tasks.pop(task, False)
        if has_records and self._output.is_transactional:
            self._fail(
                TransactionAbortableError(f"task {task.id} stopped before its work was committed")
            )

    async def commit(self) -> None:
        """Commit now. Returns when all that was added is committed, or has failed."""
        if self._open is not None:
            self._open.due_at = self._clock()
            self._wake.set()
            await self._open.done.wait()

    # --- the states -----------------------------------------------------------------------------

    def _advance(self, event: CommitEvent) -> None:
        """Enter the next state. Raises KeyError for an event that is impossible in this state."""
        self.state = TRANSITIONS[self.state, event]
        if self.state in (_S.CLEAN, _S.DIRTY):
            self._accepts.set()
        else:
            self._accepts.clear()

    def _fail(self, error: BaseException) -> None:
        """What was added cannot be committed any more."""
        if self.state in (_S.DIRTY, _S.CLOSING):
            self._failure = error
            self._advance(_E.FAILED)
            self._wake.set()

    async def _run(self) -> None:
        work = {
            _S.STARTING: self._start_again,
            _S.CLEAN: self._wait_until_due,
            _S.DIRTY: self._wait_until_due,
            _S.CLOSING: self._fix,
            _S.COMMITTING: self._commit,
            _S.ABORTING: self._abort,
        }
        try:
            while self.state in work:
                await work[self.state]()
        except Exception as error:  # noqa: BLE001 - raised by run
            self._end(error)
        except asyncio.CancelledError:
            if self.state is not _S.ENDED:  # all asyncio tasks are cancelled, perhaps
                self._end(StreamsError("the application cancelled the asyncio task that commits"))
            raise

    def _end(self, error: BaseException) -> None:
        """End the instance."""
        self._advance(_E.ENDED)
        self._crash(error)
        self._settle()

    async def _wait_until_due(self) -> None:
        self._wake.clear()
        wait_s = None if self._open is None else self._open.due_at - self._clock()
        if wait_s is None or wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        elif self._gate.is_open:
            self._advance(_E.DUE)
        else:
            await self._wait_for_gate()

    async def _wait_for_gate(self) -> None:
        """Wait until the gate is open, or the work has failed."""
        waiting = [asyncio.ensure_future(each) for each in (self._gate.opened(), self._wake.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _fix(self) -> None:
        """CLOSING: wait for results that are being added, then fix the commit's content."""
        self._wake.clear()
        if self._adding:
            await self._wake.wait()
            return
        assert self._open is not None
        self._fixed = {task: task.work() for task in self._open.tasks}, self._gate.times_lost
        self._advance(_E.FIXED)

    async def _commit(self) -> None:
        assert self._fixed is not None
        assert self._open is not None
        (work, times_lost), self._fixed = self._fixed, None
        if work:  # else all its tasks were dropped
            began = self._clock()
            try:
                positions = await self._output.commit(
                    list(work.values()), self._open.sent.deliveries(), times_lost
                )
            except Exception as error:  # noqa: BLE001 - _abort handles it
                self._failure = error
                self._advance(_E.FAILED)
                return
            for task in self._open.tasks:  # without tasks that were dropped meanwhile
                task.on_committed(work[task].offsets, positions)
            self._observer.metrics.committed(self._clock() - began)
            self._fenced = 0
        # In this order, those who wait for the commit go on before those who wait to add: a task
        # that is given up (see Worker.suspend) cannot add its late record to the next commit.
        self._settle()
        self._advance(_E.COMMITTED)

    async def _abort(self) -> None:
        failure, self._failure = self._failure, None
        assert failure is not None
        assert self._open is not None
        self._observer.metrics.commit_failed()
        failure = self._open.sent.blame(self._checked(failure), self._open.tasks)
        if not is_recoverable(failure):
            # Nothing is committed any more: the tasks are ahead of what the output has of them.
            self._end(failure)
            return
        for task in list(self._open.tasks):
            self._on_failed(task, failure)
        await self._output.abandon()
        self._settle()
        self._advance(_E.ABORTED)

    def _checked(self, failure: BaseException) -> BaseException:
        """The failure; the error of producers that are fenced again and again; or, of a denied
        right, the same error as at least once."""
        if isinstance(failure.__cause__, AuthorizationError):
            return failure.__cause__
        cause = failure if isinstance(failure, ProducerFencedError) else failure.__cause__
        if not isinstance(cause, ProducerFencedError):
            return failure
        self._fenced += 1
        if self._fenced < _MAX_FENCED:
            return failure
        error = StreamsError(
            f"the producer was fenced {self._fenced} times in a row: {cause}. Either another "
            "process runs with a copy of this state directory: give each process its own, without "
            "the file process-id. Or processors block the event loop for longer than "
            "transaction.timeout.ms"
        )
        error.__cause__ = failure
        return error

    async def _start_again(self) -> None:
        try:
            await self._output.start()
        except Exception as error:
            if not is_recoverable(error):
                raise
            _log.warning("the producer cannot be started yet: %s", error)
            await asyncio.sleep(_RETRY_BACKOFF_S)
        else:
            self._advance(_E.STARTED)

    def _settle(self) -> None:
        settled, self._open = self._open, None
        if settled is not None:
            if self.state is not _S.COMMITTING:
                forget(settled.sent.deliveries())  # the error of the commit tells of them
            settled.done.set()
