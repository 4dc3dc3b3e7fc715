"""The producer's methods for transactions."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from types import NoneType
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError, ProducerStateError, TransactionAbortableError
from kafkaclient.producer.transactions.requests import is_fatal
from kafkaclient.topic_names import check_topic_name
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from kafkaclient.producer.runtime import ProducerRuntime
    from kafkaclient.producer.transactions.manager import TransactionManager
    from kafkaclient.types import PreparedTransaction

__all__ = ["Transaction", "TransactionMixin"]


class TransactionMixin:
    """What :class:`~kafkaclient.Producer` with a ``transactional.id`` is called by.

    All of a transaction's records, and the offsets sent in it, become visible to consumers with
    ``isolation.level=read_committed``, or none does. See docs/transactions.md.

    Methods that wait do so for up to ``max.block.ms``, and then raise TransactionTimeoutError; what
    they wait for goes on, also when they are cancelled. Called again they wait for the same
    outcome. Beyond what is said with each, they raise ProducerFencedError once another producer
    with the same transactional id has been started, which ends this one.
    """

    def transaction(self) -> Transaction:
        """A transaction as a block: committed at its end, aborted when it raises or is cancelled::

            async with producer.transaction():
                await producer.send("orders", order)
                await producer.send_offsets_to_transaction(offsets, group)

        A commit that fails is followed by an abort, and its error is raised. Cancelled while it is
        being committed, the transaction is aborted if its coordinator cannot know of the commit
        yet; else the commit goes on, and :meth:`commit_transaction` tells its outcome.

        Raises what :meth:`begin_transaction` and :meth:`commit_transaction` raise.
        """
        return Transaction(self._transactions("transaction"))

    async def begin_transaction(self) -> None:
        """Begin a transaction: from now on records can be sent. Waits for the end of one that is
        still being committed or aborted.

        Raises:
            ProducerStateError: a transaction is open.
            TransactionAbortableError: the one before could not be committed, and was not aborted.
        """
        transactions = self._transactions("begin_transaction")
        await transactions.timed("begin", transactions.begin())

    async def commit_transaction(self) -> None:
        """Send everything at once, without lingering, and commit when all of it is written.

        Raises:
            TransactionAbortableError: something of the transaction has failed. Nothing is
                committed: call :meth:`abort_transaction`, and the producer can go on.
            ProducerStateError: no transaction is open.
        """
        transactions = self._transactions("commit_transaction")
        await transactions.timed("commit", transactions.commit())

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send everything at once, wait until all of it is written, and leave the transaction to be
        ended: here by :meth:`commit_transaction` or :meth:`abort_transaction`, or by any other
        client with :meth:`kafkaclient.admin.Admin.end_transaction`. :meth:`stop` leaves it open.

        What is returned names the transaction; None: nothing was sent in it, there is nothing to
        end. From the call on nothing more can be sent in it. Its coordinator aborts it
        ``transaction.timeout.ms`` after its first record, or when a producer is started with the
        same transactional id. Calls repeated return the same.

        The first phase of KIP-939 (``KafkaProducer.prepareTransaction``), without the broker's part
        of it: brokers do not know that it is prepared, so that the time-out holds.

        Raises:
            TransactionAbortableError: something of the transaction has failed: call
                :meth:`abort_transaction`.
            ProducerStateError: no transaction is open, or it is being ended.
        """
        return await self._transactions("prepare_transaction").prepare()

    async def abort_transaction(self) -> None:
        """Abort: records that were not sent yet fail with TransactionAbortedError and never are;
        those that were written stay invisible to consumers that read committed records only.

        Raises:
            ProducerStateError: no transaction is open, or its commit is on its way to the
                coordinator already.
        """
        transactions = self._transactions("abort_transaction")
        await transactions.timed("abort", transactions.abort())

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[Any, OffsetAndMetadata | int | Any],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Have the offsets of what was consumed committed with the transaction, or not at all.

        Parameters: ``offsets`` maps (topic, partition) pairs, such as aiokafka's TopicPartition,
        to the offset of the next record to read: an int, or an object with ``offset`` and
        ``metadata`` (a str).
        ``group`` with the member's id and generation (:class:`ConsumerGroupMetadata`) has the group
        refuse offsets of a member that it has given up on (KIP-447); a name alone does not.

        Raises:
            TransactionAbortableError: they were refused, because the group has rebalanced, say.
            ProducerStateError: no transaction is open.
            ValueError, TypeError: ``offsets`` or ``group`` are not as above. The transaction can
                only be aborted then, too, so that it is not committed without them.
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
        """A group's committed offsets, None where there is none. Waits until no open transaction is
        about to change them (KIP-447, ``require_stable``), so that nothing is processed twice.

        After :meth:`start` this producer's own earlier instance cannot change them any more.

        Raises:
            AuthorizationError: the group may not be read.
            TransactionTimeoutError: ``max.block.ms`` have passed.
        """
        pairs = tuple(TopicPartition(*tp) for tp in partitions)
        return await self._transactions("committed").committed(group_id, pairs)

    def _transactions(self, what: str) -> TransactionManager:
        transactions = self._open(in_transaction=False).transactions
        if transactions is None:
            raise ProducerStateError(f"{what}: the producer was made without a transactional.id")
        return transactions

    def _open(self, *, in_transaction: bool = True) -> ProducerRuntime:
        raise NotImplementedError


class Transaction:
    """What :meth:`Producer.transaction` returns: good for one ``async with``."""

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
        """Abort if that is possible. The cause is what the caller is told, whatever comes of it;
        but that the producer may not go on is more than that something could not be committed."""
        if not self._transactions.abortable:
            return
        try:
            await self._transactions.timed("abort", self._transactions.abort())
        except KafkaError as error:
            if isinstance(cause, TransactionAbortableError) and is_fatal(error):
                raise error from cause
            cause.add_note(f"the transaction could not be aborted: {error}")


def _group(group: Any) -> ConsumerGroupMetadata:
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    if not isinstance(getattr(group, "group_id", None), str):
        raise TypeError(f"a group is a str or ConsumerGroupMetadata, not {group!r}")
    return group  # type: ignore[no-any-return]


def _offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a mapping, not {offsets!r}")
    return {_partition(tp): _offset(value) for tp, value in offsets.items()}


def _partition(pair: Any) -> TopicPartition:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"a key of offsets is a pair (topic, partition), not {pair!r}")
    topic, partition = pair
    check_topic_name(topic)
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise TypeError(f"a partition is an int, not {partition!r}")
    if not 0 <= (number := index(partition)) < 2**31:
        raise ValueError(f"a partition is an int from 0 to 2**31 - 1, not {partition!r}")
    return TopicPartition(topic, number)


def _offset(value: Any) -> OffsetAndMetadata:
    if isinstance(value, int):
        value = OffsetAndMetadata(value)
    try:
        offset, metadata = value.offset, value.metadata
    except AttributeError:
        raise TypeError(f"an offset is an int, or has offset and metadata; not {value!r}") from None
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise ValueError(f"an offset is an int from 0 to 2**63 - 1, not {offset!r}")
    if not isinstance(metadata, (str, NoneType)):
        raise TypeError(f"an offset's metadata is a str, not {metadata!r}")
    return OffsetAndMetadata(int(offset), metadata or "", getattr(value, "leader_epoch", -1))
