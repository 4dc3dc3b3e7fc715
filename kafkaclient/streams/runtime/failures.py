"""What an error of a commit, or of a record on its way, means for its task."""

from __future__ import annotations

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

__all__ = ["event_for", "is_abort_error"]

_NOT_A_MEMBER = frozenset({22, 25, 27, 82})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
_ABORTED = frozenset({48, 120})
"""INVALID_TXN_STATE, TRANSACTION_ABORTABLE: the transaction is not open any more, or must end."""
_RETRIABLE = (
    TransactionAbortableError,  # of a transaction that took too long, say
    consumer_errors.CommitFailedError,
    consumer_errors.IllegalStateError,  # the partition is not assigned any more
    consumer_errors.KafkaTimeoutError,  # no leader, say
)


def event_for(error: BaseException) -> TaskEvent | None:
    """None: trying again would end in the same way, and the application has to be told."""
    if isinstance(error, TransactionAbortableError) and error.__cause__ is not None:
        return event_for(error.__cause__)
    if isinstance(error, MetadataTimeoutError) and isinstance(error.__cause__, UnknownTopicError):
        return None  # brokers have answered, and the topic does not exist
    if isinstance(error, ProducerFencedError):
        return TaskEvent.MIGRATED
    over = isinstance(error, BrokerError) and error.code in _NOT_A_MEMBER | _ABORTED
    passing = isinstance(error, KafkaError | consumer_errors.KafkaError) and error.retriable
    return TaskEvent.FAILED if over or passing or isinstance(error, _RETRIABLE) else None


def is_abort_error(error: BaseException) -> bool:
    """Whether brokers may have aborted the transaction because it was open for too long. Some of
    them tell so in the words for a producer that another one has fenced."""
    if isinstance(error, TransactionAbortableError) and error.__cause__ is not None:
        return is_abort_error(error.__cause__)
    return isinstance(error, BrokerError) and (
        isinstance(error, ProducerFencedError) or error.code in _ABORTED
    )
