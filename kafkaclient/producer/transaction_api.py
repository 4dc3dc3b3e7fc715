"""The producer's methods for transactions."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkaclient.errors import KafkaError, ProducerStateError, TransactionAbortableError
from kafkaclient.producer.base import ProducerBase
from kafkaclient.producer.transactions.states import TransactionState
from kafkaclient.topic_names import check_topic_name, partition_of, several_partitions
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from kafkaclient.producer.transactions.manager import TransactionManager
    from kafkaclient.types import PreparedTransaction


class TransactionApi(ProducerBase):
    """The methods of a :class:`~kafkaclient.Producer` with a ``transactional.id``.

    Consumers with ``isolation.level=read_committed`` see either all records of a transaction, and
    the offsets sent in it, or none. See docs/how-to/transactions.md.

    Methods that wait do so for up to ``max.block.ms``, and then raise TransactionTimeoutError. The
    work goes on, also when the call is cancelled; the same call made again waits for the same
    outcome. Besides the errors listed with each method, all raise ProducerFencedError once another
    producer with the same transactional id has been started; the fenced producer cannot go on.
    """

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """A block that commits its transaction at the end, or aborts it on an exception::

            async with producer.transaction():
                await producer.send("orders", order)
                await producer.send_offsets_to_transaction(offsets, group)

        When the commit fails, the transaction is aborted, and the commit's error is raised. When
        the block is cancelled during the commit, the transaction is aborted if its coordinator
        cannot know of the commit yet; else the commit goes on, and :meth:`commit_transaction`
        returns its outcome.

        Raises what :meth:`begin_transaction` and :meth:`commit_transaction` raise.
        """
        return _Transaction(self._transactions("transaction"))

    @property
    def in_transaction(self) -> bool:
        """Whether records can be sent in a transaction now. True from :meth:`begin_transaction`
        until the transaction is being prepared, committed or aborted, or until one of its records
        or requests fails: then it can only be aborted. False without a ``transactional.id``."""
        transactions = None if self._core is None else self._core.transactions
        return transactions is not None and transactions.state is TransactionState.IN_TRANSACTION

    async def begin_transaction(self) -> None:
        """Begin a transaction: from now on records can be sent. Waits while the transaction before
        is still being committed or aborted.

        Raises:
            ProducerStateError: a transaction is open.
            TransactionAbortableError: the transaction before could not be committed, and was not
                aborted.
        """
        transactions = self._transactions("begin_transaction")
        await transactions.timed("begin", transactions.begin())

    async def commit_transaction(self) -> None:
        """Send all records without lingering, and commit when all of them are written.

        Raises:
            TransactionAbortableError: a record or request of the transaction has failed. Nothing
                is committed: call :meth:`abort_transaction`, then the producer can go on.
            ProducerStateError: no transaction is open.
        """
        transactions = self._transactions("commit_transaction")
        await transactions.timed("commit", transactions.commit())

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send all records without lingering, and wait until all of them are written. Then the
        transaction can be ended here, by :meth:`commit_transaction` or :meth:`abort_transaction`,
        or by another client, with :meth:`kafkaclient.admin.Admin.end_transaction`. :meth:`stop`
        leaves it open.

        Returns the identity of the transaction; None if no record was sent in it, so there is
        nothing to end. No more records can be sent in the transaction. Its coordinator aborts it
        ``transaction.timeout.ms`` after its first record, or when a producer is started with the
        same transactional id. A repeated call returns the same.

        This is the first phase of KIP-939 (``KafkaProducer.prepareTransaction``) without the part
        of the brokers: they do not know that the transaction is prepared, so the timeout applies.

        Raises:
            TransactionAbortableError: a record or request of the transaction has failed: call
                :meth:`abort_transaction`.
            ProducerStateError: no transaction is open, or it is being ended.
        """
        return await self._transactions("prepare_transaction").prepare()

    async def abort_transaction(self) -> None:
        """Abort the transaction. Records that were not sent yet fail with TransactionAbortedError,
        and are not sent; consumers of committed records never see the records that were written.

        Raises:
            ProducerStateError: no transaction is open, or its commit was sent to the coordinator
                already.
        """
        transactions = self._transactions("abort_transaction")
        await transactions.timed("abort", transactions.abort())

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[Any, OffsetAndMetadata | int | Any],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Have the offsets of consumed records committed together with the transaction.

        Parameters: ``offsets`` maps (topic, partition) pairs, such as aiokafka's TopicPartition,
        to the offset of the next record to read: an int, a pair (offset, metadata), or an object
        with ``offset`` and ``metadata`` (a str or None), such as a consumed batch's
        ``next_offsets``. ``group`` is the group's name, or a
        :class:`ConsumerGroupMetadata` with the member's id and generation: then the group's
        coordinator refuses the offsets of a member that is no longer in the group (KIP-447).

        Raises:
            TransactionAbortableError: the offsets were refused, for example because the group has
                rebalanced.
            ProducerStateError: no transaction is open.
            ValueError, TypeError: ``offsets`` or ``group`` are not as above. The transaction can
                only be aborted then, so that it is not committed without the offsets.
        """
        transactions = self._transactions("send_offsets_to_transaction")
        transactions.check_open()
        try:
            group = _group(group)
            read = _offsets(offsets)
        except Exception as error:
            transactions.refuse_offsets(error)
            raise
        await transactions.timed("send-offsets", transactions.send_offsets(read, group))

    async def committed(
        self, group_id: str, partitions: Iterable[Any]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """A group's committed offsets, None for partitions without one. Waits until no open
        transaction is about to change them (KIP-447, ``require_stable``), so that no record is
        processed twice.

        After :meth:`start` an earlier instance of this producer cannot change them any more.

        Raises:
            AuthorizationError: the user has no permission to read the group.
            TransactionTimeoutError: ``max.block.ms`` have passed.
        """
        pairs = several_partitions(partitions)
        return await self._transactions("committed").committed(group_id, pairs)

    def _transactions(self, what: str) -> TransactionManager:
        transactions = self._open(in_transaction=False).transactions
        if transactions is None:
            raise ProducerStateError(f"{what}: the producer has no transactional.id")
        return transactions


class _Transaction:
    """The result of :meth:`Producer.transaction`, for one ``async with``."""

    __slots__ = ("_transactions",)

    def __init__(self, transactions: TransactionManager) -> None:
        self._transactions = transactions

    async def __aenter__(self) -> None:
        await self._transactions.timed("begin", self._transactions.begin())

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None:
            await self._abort(exc)
            return
        try:
            await self._transactions.timed("commit", self._transactions.commit())
        except BaseException as error:
            await self._abort(error)
            raise

    async def _abort(self, cause: BaseException) -> None:
        """Abort if the transaction is still open. The caller gets ``cause``, unless that is a
        failed commit and the abort shows that the producer cannot go on."""
        if not self._transactions.abortable:
            return
        try:
            await self._transactions.timed("abort", self._transactions.abort())
        except KafkaError as error:
            fatal = self._transactions.is_fatal(error)
            if fatal and isinstance(cause, TransactionAbortableError):
                raise error from cause
            cause.add_note(f"the transaction could not be aborted: {error}")


def _group(group: Any) -> ConsumerGroupMetadata:
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    if not isinstance(getattr(group, "group_id", None), str):
        raise TypeError(f"group must be a str or ConsumerGroupMetadata, not {group!r}")
    return group  # type: ignore[no-any-return]


def _offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a mapping, not {offsets!r}")
    return {_partition(tp): _offset(value) for tp, value in offsets.items()}


def _partition(pair: Any) -> TopicPartition:
    where = partition_of(pair)
    check_topic_name(where.topic)
    if not 0 <= where.partition < 2**31:
        raise ValueError(f"a partition is a number from 0 to 2**31 - 1, not {where.partition}")
    return where


def _offset(value: Any) -> OffsetAndMetadata:
    if isinstance(value, int):
        value = OffsetAndMetadata(value)
    elif type(value) is tuple and len(value) == 2:
        value = OffsetAndMetadata(*value)
    try:
        offset, metadata = value.offset, value.metadata
    except AttributeError:
        raise TypeError(
            "an offset must be an int, a pair (offset, metadata), or have offset and metadata, "
            f"not {value!r}"
        ) from None
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise ValueError(f"an offset must be an int from 0 to 2**63 - 1, not {offset!r}")
    if not isinstance(metadata, (str, NoneType)):
        raise TypeError(f"an offset's metadata must be a str, not {metadata!r}")
    epoch = getattr(value, "leader_epoch", None)
    if epoch is None:
        epoch = -1
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not -1 <= epoch < 2**31:
        raise ValueError(f"a leader epoch must be an int from -1 to 2**31 - 1, not {epoch!r}")
    topic_id = getattr(value, "topic_id", None)
    if not isinstance(topic_id, (UUID, NoneType)):
        raise TypeError(f"a topic id must be a UUID, not {topic_id!r}")
    return OffsetAndMetadata(int(offset), metadata or "", int(epoch), topic_id)
