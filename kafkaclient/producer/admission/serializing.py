"""A serializer that is at work for one record, as a task with a time limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.errors import KafkaError, defect
from kafkaclient.producer.batches.record import Record
from kafkaclient.time_limit import PatientTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.batches.record import PendingRecord

Outcome: TypeAlias = Record | KafkaError


class SerializerTask:
    """Runs the serializer of ``record``, and calls ``on_outcome`` once with the record in bytes, or
    with the error: at the latest after ``limit``, even if the serializer ignores its cancellation.
    It is not called after :meth:`cancel`. The task is in ``running`` while the serializer works.
    """

    __slots__ = ("_limit", "_on_outcome", "_record", "_timer", "task")

    def __init__(
        self,
        record: PendingRecord,
        limit: Limit,
        running: set[asyncio.Task[Record]],
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        self._record = record
        self._limit = limit
        self._on_outcome: Callable[[Outcome], None] | None = on_outcome
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(record.finish(), name="kafkaclient-serializer")
        self.task.add_done_callback(self._ended)
        running.add(self.task)
        self.task.add_done_callback(running.discard)
        self._timer = PatientTimer(limit.seconds, self._on_timeout)

    def cancel(self) -> None:
        """The outcome is not needed any more."""
        self._on_outcome = None
        self._timer.cancel()
        self.task.cancel()

    def timeout_error(self) -> KafkaError:
        """The error for a serializer that has not finished within the limit."""
        return self._record.not_finished(f"the serializer has not finished within {self._limit}")

    def _on_timeout(self) -> None:
        self._settle(self.timeout_error())

    def _ended(self, task: asyncio.Task[Record]) -> None:
        if task.cancelled():
            self._settle(self._record.not_finished("the serializer was cancelled"))
        elif (error := task.exception()) is None:
            self._settle(task.result())
        else:
            self._settle(self._failure(error))

    def _failure(self, error: BaseException) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, Exception):
            return defect("serializing", error)
        # asyncio has raised KeyboardInterrupt and SystemExit already.
        failure = self._record.not_finished(f"the serializer raised {error!r}")
        failure.__cause__ = error
        return failure

    def _settle(self, outcome: Outcome) -> None:
        on_outcome = self._on_outcome
        self.cancel()
        if on_outcome is not None:
            on_outcome(outcome)


async def run_serializer(
    record: PendingRecord, limit: Limit, running: set[asyncio.Task[Record]]
) -> Record:
    """The record in bytes; raises InvalidRecordError and its subclasses."""
    settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(outcome: Outcome) -> None:
        if not settled.done():  # the caller was cancelled in the same pass of the event loop
            settled.set_result(outcome)

    task = SerializerTask(record, limit, running, settle)
    try:
        outcome = await settled
    finally:
        task.cancel()
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
