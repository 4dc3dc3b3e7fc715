"""The methods of :class:`AIOKafkaProducer` for transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from aiokafka.errors import IllegalOperation
from aiokafka.util import commit_structure_validate

from kafkaclient.aiokafka.errors import Translation
from kafkaclient.errors import ProducerStateError, TransactionAbortableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from kafkaclient import Producer

__all__ = ["TransactionContext", "TransactionMixin"]


class TransactionMixin:
    """The transactions of :class:`AIOKafkaProducer`, with aiokafka's methods and errors."""

    _producer: Producer
    _aborted_after_commit = False
    """Whether a block has aborted its transaction because the commit failed. aiokafka leaves this
    abort to the caller: the caller's :meth:`abort_transaction` succeeds once."""

    async def begin_transaction(self) -> None:
        """Begin a transaction: from now on records can be sent.

        Raises IllegalOperation if a transaction is open, or without ``transactional_id``.
        """
        producer = self._transactional()
        with Translation():
            await producer.begin_transaction()
        self._aborted_after_commit = False

    async def commit_transaction(self) -> None:
        """Send all records, and commit when all of them are written.

        Raises IllegalOperation if no transaction is open, ProducerFenced once another producer
        with the same ``transactional_id`` was started, and the error of a record that has failed:
        then the transaction can only be aborted.
        """
        producer = self._transactional()
        with Translation():
            await producer.commit_transaction()

    async def abort_transaction(self) -> None:
        """Abort the transaction: consumers of committed records never see its records. Does nothing
        if a block has aborted the transaction because its commit failed.

        Raises IllegalOperation if no transaction is open.
        """
        producer = self._transactional()
        is_aborted, self._aborted_after_commit = self._aborted_after_commit, False
        try:
            with Translation():
                await producer.abort_transaction()
        except IllegalOperation:
            if not is_aborted:
                raise

    def transaction(self) -> TransactionContext:
        """``async with producer.transaction():`` commits at the end of the block. On an exception,
        or if the commit fails, it aborts."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Have a group's offsets committed with the transaction.

        ``offsets`` maps aiokafka's TopicPartition to an offset, a pair (offset, metadata) or
        aiokafka's OffsetAndMetadata. Raises IllegalOperation if no transaction is open, ValueError
        or TypeError for other arguments.
        """
        producer = self._transactional()
        with Translation():
            self._check_in_transaction("the offsets were not sent")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        checked = commit_structure_validate(offsets)
        with Translation():
            await producer.send_offsets_to_transaction(checked, group_id)

    def _transactional(self) -> Producer:
        if self._producer.config.transactional_id is None:
            raise IllegalOperation("You need to configure transaction_id to use transactions")
        return self._producer

    def _check_in_transaction(self, what: str) -> None:
        """Raises unless records can be sent in a transaction now."""
        if not self._producer.in_transaction:
            raise ProducerStateError(f"{what}: no transaction is open, or it can only be aborted")


class TransactionContext:
    """The result of :meth:`AIOKafkaProducer.transaction`, for one ``async with``. Commits at the
    end of the block. On an exception, or if the commit fails, it aborts."""

    __slots__ = ("_producer", "_transaction")

    def __init__(self, producer: TransactionMixin) -> None:
        self._producer = producer
        self._transaction: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        with Translation():
            self._transaction = self._producer._transactional().transaction()
            await self._transaction.__aenter__()
        self._producer._aborted_after_commit = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends the transaction. The body's own error gets out, also if the abort fails."""
        assert self._transaction is not None
        try:
            with Translation():
                await self._transaction.__aexit__(kind, error, traceback)
        except TransactionAbortableError:
            self._producer._aborted_after_commit = error is None
            raise
