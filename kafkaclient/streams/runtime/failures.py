"""Which task event an error of a commit or of a delivery causes."""

from __future__ import annotations

import asyncio

from aiokafka import errors as consumer_errors

from kafkaclient.errors import (
    BrokerError,
    KafkaError,
    MetadataTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownTopicError,
)
from kafkaclient.streams.runtime.task_states import TaskEvent

__all__ = ["event_for", "is_abort_error", "is_being_cancelled"]

# ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID
_NOT_A_MEMBER = frozenset({22, 25, 27, 82})
# INVALID_TXN_STATE, TRANSACTION_ABORTABLE: the transaction is over, or must be aborted
_ABORTED = frozenset({48, 120})
_RETRIABLE = (
    TransactionAbortableError,  # such as a transaction that took too long
    consumer_errors.CommitFailedError,
    consumer_errors.IllegalStateError,  # the partition is no longer assigned
    consumer_errors.KafkaTimeoutError,  # such as a partition without leader
)


def event_for(error: BaseException) -> TaskEvent | None:
    """The event that the error causes for its task. None: a retry would fail again."""
    if isinstance(error, TransactionAbortableError) and error.__cause__ is not None:
        return event_for(error.__cause__)
    if isinstance(error, MetadataTimeoutError) and isinstance(error.__cause__, UnknownTopicError):
        return None  # brokers answered that the topic does not exist
    if isinstance(error, ProducerFencedError):
        return TaskEvent.MIGRATED
    ended = isinstance(error, BrokerError) and error.code in _NOT_A_MEMBER | _ABORTED
    retriable = isinstance(error, KafkaError | consumer_errors.KafkaError) and error.retriable
    return TaskEvent.FAILED if ended or retriable or isinstance(error, _RETRIABLE) else None


def is_abort_error(error: BaseException) -> bool:
    """Whether brokers may have aborted the transaction because it was open for too long. Some
    brokers report this as a fenced producer."""
    if isinstance(error, TransactionAbortableError) and error.__cause__ is not None:
        return is_abort_error(error.__cause__)
    return isinstance(error, BrokerError) and (
        isinstance(error, ProducerFencedError) or error.code in _ABORTED
    )


def is_being_cancelled() -> bool:
    """Whether the current asyncio task is being cancelled, and not just what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
