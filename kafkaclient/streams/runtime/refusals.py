"""Finds the input records for which a task wrote what a broker refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import (
    BrokerError,
    RecordTooLargeError,
    StreamsError,
    TransactionAbortableError,
)
from kafkaclient.streams.runtime.outputs import RefusedChangeError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.types import TopicPartition


class RefusedRecordsError(TransactionAbortableError):
    """A commit failed because of records that get the error when they are reached again: the next
    commit will not fail because of them."""


_REFUSALS = frozenset(
    {ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD}
)


class SentRecords:
    """What was sent for one commit: which input record each record comes from."""

    def __init__(self) -> None:
        self._sent: list[tuple[_Culprit, Delivery]] = []

    def add(self, task: Task, source: TopicPartition, offset: int, delivery: Delivery) -> None:
        """A record was sent for the input record before ``offset``."""
        self._sent.append(((task, source, offset), delivery))

    def deliveries(self) -> list[Delivery]:
        """Of all records, in the order of sending."""
        return [delivery for _, delivery in self._sent]

    def blame(self, failure: BaseException, tasks: Collection[Task]) -> BaseException:
        """The failure of the commit. If brokers refused records or changes, each refusal becomes
        the error of its input record when ``tasks`` process that again, and RefusedRecordsError is
        returned."""
        is_abort = isinstance(failure, TransactionAbortableError)
        cause = failure.__cause__ if is_abort else failure
        if not isinstance(cause, (RecordTooLargeError, RefusedChangeError)) and not (
            isinstance(cause, BrokerError) and cause.code in _REFUSALS
        ):
            return failure
        found = self._refused()
        if isinstance(failure, RefusedChangeError):
            found |= {
                (task, *writer): RecordTooLargeError(text)
                for change, text in failure.changes.items()
                for task in tasks
                if (writer := task.writer(*change)) is not None
            }
        for (task, source, offset), error in found.items():
            if task in tasks and not task.refuse(source, offset, error):
                topic, partition = source
                return StreamsError(
                    f"the dead letter of the record at {topic}-{partition}, offset {offset - 1}, "
                    f"is refused: {error} Change the configuration of the dead letter topic so "
                    "that it takes the record (max.message.bytes; no compaction for records "
                    "without key)"
                )
        return failure if not found else RefusedRecordsError(str(failure))

    def _refused(self) -> dict[_Culprit, Exception]:
        found: dict[_Culprit, Exception] = {}
        for culprit, delivery in self._sent:
            error = delivery.exception() if delivery.done() else None
            if isinstance(error, RecordTooLargeError) or (
                isinstance(error, BrokerError) and error.refuses_record and error.code in _REFUSALS
            ):
                found[culprit] = error
        return found


_Culprit = tuple["Task", "TopicPartition", int]
"""A task, and the input record before an offset of a partition."""
