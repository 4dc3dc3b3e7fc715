"""Finds the input records for which a task wrote what a broker refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.errors import (
    BrokerError,
    RecordTooLargeError,
    StreamsError,
    TransactionAbortableError,
)
from kafkaclient.streams.runtime.outputs import RefusedChangeError
from kafkaclient.streams.runtime.record_work import INVALID_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.types import TopicPartition


class RefusedRecordsError(TransactionAbortableError):
    """A commit failed because of records that get the error when they are reached again: the next
    commit will not fail because of them."""


_REFUSALS = frozenset({18, INVALID_TIMESTAMP, 87})  # RECORD_LIST_TOO_LARGE, INVALID_RECORD


class SentRecords:
    """What was sent for one commit: which input record each record comes from."""

    def __init__(self) -> None:
        self._sent: list[tuple[_Culprit, Delivery]] = []

    def add(self, task: Task, source: TopicPartition, offset: int, delivery: Delivery) -> None:
        """A record was sent for the input record before ``offset``."""
        self._sent.append(((task, source, offset), delivery))

    def blame(self, failure: BaseException, tasks: Collection[Task]) -> BaseException:
        """The failure of the commit. If the broker refused records, this
        becomes the error of their input records, when ``tasks`` process them again: then
        RefusedRecordsError is returned."""
        if not _is_refusal(failure):
            return failure
        found = self._refused() | _changed(failure, tasks)
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


def _changed(failure: BaseException, tasks: Collection[Task]) -> dict[_Culprit, Exception]:
    """The records that wrote the changes which were refused."""
    refused = failure.changes if isinstance(failure, RefusedChangeError) else {}
    return {
        (task, *writer): RecordTooLargeError(text)
        for change, text in refused.items()
        for task in tasks
        if (writer := task.writer(*change)) is not None
    }


def _is_refusal(failure: BaseException) -> bool:
    cause = failure.__cause__ if isinstance(failure, TransactionAbortableError) else failure
    return isinstance(cause, (RecordTooLargeError, RefusedChangeError)) or (
        isinstance(cause, BrokerError) and cause.code in _REFUSALS
    )
