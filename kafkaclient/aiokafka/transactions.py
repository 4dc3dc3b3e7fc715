"""The methods of :class:`AIOKafkaProducer` for transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from aiokafka.errors import IllegalOperation
from aiokafka.util import commit_structure_validate

from kafkaclient.aiokafka.errors import Translation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from kafkaclient import Producer

__all__ = ["TransactionContext", "TransactionMixin"]


class TransactionMixin:
    """The transactions of :class:`AIOKafkaProducer`, with aiokafka's methods and errors."""

    _producer: Producer
    _in_transaction = False

    async def begin_transaction(self) -> None:
        """Begin a transaction: from now on records can be sent.

        Raises IllegalOperation if a transaction is open, or without ``transactional_id``.
        """
        producer = self._transactional()
        with Translation():
            await producer.begin_transaction()
        self._in_transaction = True

    async def commit_transaction(self) -> None:
        """Send all records, and commit when all of them are written.

        Raises IllegalOperation if no transaction is open, ProducerFenced once another producer
        with the same ``transactional_id`` was started, and the error of a record that has failed:
        then the transaction can only be aborted.
        """
        producer = self._transactional()
        with Translation():
            await producer.commit_transaction()
        self._in_transaction = False

    async def abort_transaction(self) -> None:
        """Abort the transaction: consumers of committed records never see its records.

        Raises IllegalOperation if no transaction is open.
        """
        producer = self._transactional()
        with Translation():
            await producer.abort_transaction()
        self._in_transaction = False

    def transaction(self) -> TransactionContext:
        """``async with producer.transaction():`` commits at the end, and aborts on an exception."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Have a group's offsets committed with the transaction.

        ``offsets`` maps aiokafka's TopicPartition to an offset, a pair (offset, metadata) or
        aiokafka's OffsetAndMetadata. Raises IllegalOperation if no transaction is open, ValueError
        or TypeError for other arguments.
        """
        producer = self._transactional()
        if not self._in_transaction:
            raise IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        checked = commit_structure_validate(offsets)
        with Translation():
            await producer.send_offsets_to_transaction(checked, group_id)

    def _transactional(self) -> Producer:
        if self._producer.config.transactional_id is None:
            raise IllegalOperation("You need to configure transaction_id to use transactions")
        return self._producer


class TransactionContext:
    """The result of :meth:`AIOKafkaProducer.transaction`, for one ``async with``."""

    __slots__ = ("_producer", "_transaction")

    def __init__(self, producer: TransactionMixin) -> None:
        self._producer = producer
        self._transaction: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        with Translation():
            self._transaction = self._producer._transactional().transaction()
            await self._transaction.__aenter__()
        self._producer._in_transaction = True
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
        finally:
            self._producer._in_transaction = False
