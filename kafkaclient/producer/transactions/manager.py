"""Begins, commits and aborts transactions, and decides what a failure ends (KIP-98, KIP-360,
KIP-890; Java: ``TransactionManager``).

states.py has the states and their transitions, this module what is done in each. A transaction ends
in a task of its own, which has one outcome: it goes on when its caller is cancelled or times out,
and a later call can wait for the same outcome.

Transactions v2: the first Produce to a partition adds the partition to the transaction. Each end
brings a new epoch, so that brokers refuse late requests of an old transaction.
Transactions v1: partitions are added first (``AddedPartitions``). An abort waits for the requests
in flight, then requests the next epoch. The coordinator reports at the start whether the cluster
has v2.

What a failure ends:

- A record fails: the transaction (:meth:`TransactionManager.fail_transaction`). If ``action_for``
  (sender/responses.py) calls the leader's error code FATAL (PRODUCER_FENCED), the producer fails as
  well.
- The client has moved to another cluster (:meth:`TransactionManager.leave_cluster`): the
  transaction; if it was being ended, the producer, because the outcome is not known.
- A coordinator refuses a request: :func:`is_fatal` decides between the transaction and the producer
  (:meth:`TransactionManager._on_refusal`). An abort that cannot be completed ends the producer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError, ProducerStateError, TransactionAbortedError
from kafkaclient.log_fields import log_fields
from kafkaclient.producer.transactions.participants import AddedPartitions, TransactionOffsets
from kafkaclient.producer.transactions.requests import is_fatal
from kafkaclient.producer.transactions.states import (
    EndTxnTask,
    MaxBlockTimeout,
    TransactionState,
    TransactionStatus,
)
from kafkaclient.time_limit import cancel_and_wait, wait_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.batches.idempotence import TransactionalIdentity
    from kafkaclient.producer.transactions.participants import TransactionRecords
    from kafkaclient.producer.transactions.requests import TransactionRequests
    from kafkaclient.types import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        PreparedTransaction,
        TopicPartition,
    )

_log = logging.getLogger(__name__)

_S = TransactionState
_REQUEST_GRACE_S = 3.0  # seconds that an abort waits for requests of its transaction under way


class TransactionManager:
    """The transactions of one producer, one after the other.

    ``limit`` bounds how long a call may wait. ``on_open(is_open)`` is called when records may
    be sent from now on, or may not. ``fail_producer(error)`` ends the producer, and calls
    :meth:`on_producer_failed`. ``on_waited(call, seconds)`` gets the duration of each call.
    ``wake()`` starts a pass of the sender.
    """

    is_fatal = staticmethod(is_fatal)
    """For transaction_api.py, which must not load kafka-python, as requests.py does."""

    def __init__(
        self,
        transactional_id: str,
        records: TransactionRecords,
        identity: TransactionalIdentity,
        requests: TransactionRequests,
        *,
        limit: Limit,
        clock: Callable[[], float],
        on_open: Callable[[bool], None],
        fail_producer: Callable[[KafkaError], None],
        on_waited: Callable[[str, float], None],
        wake: Callable[[], None],
    ) -> None:
        self._status = TransactionStatus(transactional_id)
        self.serial: int = 0
        """How many transactions were begun."""
        self.requests = requests
        self._transactional_id = transactional_id
        self._records = records
        self._identity = identity
        self._timeout = MaxBlockTimeout(transactional_id, requests, limit)
        self._clock = clock
        self._on_open = on_open
        self._fail_producer = fail_producer
        self._on_waited = on_waited
        self._cluster_left = False
        """Whether the transactional id must be initialized again, in another cluster."""
        self._maybe_open = False
        """Whether the coordinator may know of the transaction."""
        self._handed_over = False
        """Whether the transaction is prepared, and another client may end it."""
        self._end_txn: EndTxnTask | None = None
        self._offsets = TransactionOffsets(requests, self._on_refusal, self.fail_transaction)
        self._added_partitions = AddedPartitions(
            records.ready_queues,
            requests.add_partitions,
            clock=clock,
            on_added=wake,
            on_failed=self._on_refusal,
        )

    # --- sending records ----------------------------------------------------------------------

    @property
    def state(self) -> TransactionState:
        return self._status.state

    def check_open(self) -> None:
        """Raises unless records may be sent."""
        if self.state is not _S.IN_TRANSACTION:
            raise self._status.not_allowed(
                "the record was not sent", "begin_transaction comes first"
            )

    def new_guard(self, check_open: Callable[[], None]) -> Callable[[], None]:
        """A check for after a wait. It raises if ``check_open`` does, or if the present transaction
        has ended during the wait."""
        serial = self.serial

        def guard() -> None:
            check_open()
            if serial != self.serial:
                what = "the transaction ended while the call waited"
                raise ProducerStateError(f"the record was not sent: {what}")

        return guard

    def on_new_batch(self) -> None:
        """A batch was opened: the coordinator will know of the transaction."""
        self._maybe_open = True

    # --- failures -----------------------------------------------------------------------------

    def fail_transaction(self, error: KafkaError) -> None:
        """Leave the open transaction only its abort; the producer goes on after that.

        A refused producer epoch (INVALID_PRODUCER_EPOCH) from a leader or a group's coordinator
        fails only the transaction: these brokers answer the same whether another producer has taken
        over, or the transaction has timed out. The transaction's coordinator knows which: the abort
        finds out.
        """
        if self.state not in (_S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING):
            return
        self._status.cause = error
        self._status.move(_S.ABORTABLE_ERROR)
        self._stop_sending()
        # Not at once: the caller is still handling batches.
        asyncio.get_running_loop().call_soon(self._fail_unsent)

    def leave_cluster(self, old: str | None, new: str | None) -> None:
        """The client has moved from cluster ``old`` to ``new``, which does not know the producer
        id. The transaction's coordinator in ``old`` aborts it after ``transaction.timeout.ms``,
        unless it has got its commit."""
        what = (
            f"the client has moved from cluster {old!r} to cluster {new!r}, which knows nothing of "
            f"the transaction of {self._transactional_id!r}: its records may have been written to "
        )
        ending = self.state in (_S.COMMITTING, _S.ABORTING)
        how = "be committed there or not" if ending else "be aborted there (transaction.timeout.ms)"
        error = KafkaError(f"{what}{old!r} only, and will {how}")
        if self._end_txn is not None and self._maybe_open and ending:
            self._fail_producer(error)
            self._end_txn.task.cancel()
        elif self.state not in (_S.UNINITIALIZED, _S.INITIALIZING, _S.FATAL):
            self._cluster_left = True
            self.fail_transaction(error)
            for task in self._requests_under_way():
                task.cancel()

    def on_producer_failed(self, error: KafkaError) -> None:
        """The whole producer has failed with ``error``: no call can succeed any more."""
        if self.state is not _S.FATAL:
            self._status.cause = error
            self._status.move(_S.FATAL)
            self._stop_sending()

    def _on_refusal(self, error: KafkaError) -> None:
        """A coordinator has refused a request of the transaction."""
        if is_fatal(error):
            self._fail_producer(error)
        else:
            self.fail_transaction(error)

    def _stop_sending(self) -> None:
        """No fresh batch leaves any more, and no batch is retried."""
        self._identity.open, self._identity.abort_only = False, True
        self._added_partitions.end()
        self._on_open(False)

    def _fail_unsent(self) -> None:
        if self.state is _S.ABORTABLE_ERROR:
            why = "the record was not sent: its transaction can only be aborted"
            self._records.fail(self._aborted(why), in_flight=False)

    def _aborted(self, why: str) -> TransactionAbortedError:
        """The error of records that an abort fails."""
        cause = self._status.cause
        error = TransactionAbortedError(why if cause is None else f"{why}: {cause}")
        error.__cause__ = cause
        return error

    # --- start, begin, close ------------------------------------------------------------------

    async def timed(self, call: str, work: Awaitable[None]) -> None:
        """Await ``work``, and report its duration whatever its outcome (Java has these metrics)."""
        began = self._clock()
        try:
            await work
        finally:
            self._on_waited(call, self._clock() - began)

    async def initialize(self, spent: float = 0.0) -> None:
        """Request the producer id. Raises TransactionTimeoutError after ``max.block.ms``, of which
        the start has ``spent`` this many seconds already."""
        self._status.move(_S.INITIALIZING)
        await self._timeout.within(self._request_id(), "the producer was not started", spent)
        self._status.move(_S.READY)

    async def _request_id(self) -> None:
        await self.requests.initialize()
        self._cluster_left = False
        self._records.ready_queues.gate = None if self.requests.v2 else self._added_partitions

    async def begin(self) -> None:
        if self._end_txn is not None and not self._end_txn.task.done():
            await self._wait_end(self._end_txn)
        if self._cluster_left and self.state is _S.READY:
            await self._timeout.within(self._request_id(), "no transaction was begun")
        if self.state is not _S.READY:
            raise self._status.not_allowed("no transaction was begun", "it has to end first")
        self._status.move(_S.IN_TRANSACTION)
        self.serial += 1
        self._end_txn = self._status.cause = None
        self._maybe_open = self._handed_over = False
        self._added_partitions.begin()
        self._identity.open, self._identity.abort_only = True, False
        self._on_open(True)

    async def close(self) -> None:
        """Abort an open transaction unless it is prepared, or wait for its end; up to
        ``max.block.ms``."""
        try:
            if self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR) or (
                self.state is _S.PREPARED and not self._handed_over
            ):
                await self.abort()
            elif self._end_txn is not None and not self._end_txn.task.done():
                await self._wait_end(self._end_txn)
        except KafkaError as error:
            what = "the end of the transaction of %r is left to its coordinator: %s"
            _log.warning(what, self._transactional_id, error, extra=log_fields(error))
        finally:
            self._stop_sending()
            tasks = self._requests_under_way()
            if self._end_txn is not None:
                tasks.add(self._end_txn.task)
            await cancel_and_wait(*tasks)

    # --- the end of a transaction -------------------------------------------------------------

    async def prepare(self) -> PreparedTransaction | None:
        if self.state is not _S.PREPARED:
            if self.state is not _S.IN_TRANSACTION:
                raise self._status.not_allowed(
                    "nothing was prepared", "there is nothing to prepare"
                )
            self._status.move(_S.PREPARED)
            self._on_open(False)
        what = "prepare_transaction goes on; await it again"
        await self._timeout.within(self._wait_written(), what)
        if self.state is not _S.PREPARED:
            raise self._status.not_allowed("nothing was prepared", "it was not prepared")
        self._handed_over = True
        return self.requests.prepared() if self._maybe_open else None

    async def _wait_written(self) -> None:
        """Wait until every record of the transaction has an outcome, and no request to a
        coordinator is under way that could arrive after the transaction's end."""
        if self._offsets.under_way:
            await asyncio.wait(self._offsets.under_way)
        await self._records.drain()
        await self._added_partitions.finish()

    async def commit(self) -> None:
        end_txn = self._end_txn
        if end_txn is None or not end_txn.commit or end_txn.observed:
            if self.state not in (_S.IN_TRANSACTION, _S.PREPARED):
                raise self._status.not_allowed(
                    "nothing was committed", "there is nothing to commit"
                )
            end_txn = self._start_end(_S.COMMITTING, self._commit)
        await self._wait_end(end_txn)

    async def abort(self) -> None:
        end_txn = self._end_txn
        if self.state is _S.COMMITTING and end_txn is not None and end_txn.sent:
            raise ProducerStateError(
                f"the transaction of {self._transactional_id!r} cannot be aborted: its commit is "
                "on its way; await commit_transaction again for the outcome"
            )
        if self.abortable:
            if end_txn is not None:  # a commit that waits for records, or has failed
                end_txn.task.cancel()
            end_txn = self._start_end(_S.ABORTING, self._abort)
        elif end_txn is None or end_txn.commit or end_txn.observed:
            raise self._status.not_allowed("nothing was aborted", "there is nothing to abort")
        await self._wait_end(end_txn)

    @property
    def abortable(self) -> bool:
        """Whether there is a transaction that :meth:`abort` can end."""
        if self.state is _S.COMMITTING:
            return self._end_txn is not None and not self._end_txn.sent
        return self.state in (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR)

    def _start_end(
        self, state: TransactionState, work: Callable[[EndTxnTask], Coroutine[None, None, None]]
    ) -> EndTxnTask:
        self._status.move(state)
        self._on_open(False)
        commit = state is _S.COMMITTING
        self._end_txn = EndTxnTask(work, commit=commit, on_defect=self._fail_producer)
        return self._end_txn

    async def _wait_end(self, end_txn: EndTxnTask) -> None:
        """Wait for the end; raises the error it failed with, or TransactionTimeoutError."""
        if not await end_txn.wait(self._timeout.seconds):
            raise self._timeout.error(
                f"{end_txn.name} goes on; await it again for its outcome"
            ) from self.requests.last_error
        if end_txn.task.cancelled():
            raise self._status.not_allowed(
                f"{end_txn.name} was given up", "it was aborted or stopped"
            )
        if end_txn.error is not None:
            raise end_txn.error.with_traceback(None)

    async def _commit(self, end_txn: EndTxnTask) -> None:
        await self._wait_written()
        self._check_committing()  # no record has failed
        self._identity.open = False
        if self._maybe_open:
            end_txn.sent = True
            try:
                await self.requests.end(commit=True)
            except KafkaError as error:
                self._on_refusal(error)
            self._check_committing()
        self._status.move(_S.READY)

    def _check_committing(self) -> None:
        if self.state is not _S.COMMITTING:
            raise self._status.not_allowed("nothing was committed", "it was not committed")

    async def _abort(self, end_txn: EndTxnTask) -> None:
        self._stop_sending()
        tasks = self._requests_under_way()
        if tasks and not self.requests.v2:
            await asyncio.wait(tasks, timeout=_REQUEST_GRACE_S)
        await cancel_and_wait(*tasks)  # none may arrive after the end of the transaction
        what = f"the transaction of {self._transactional_id!r}"
        aborted = self._aborted(f"{what} that the record belonged to was aborted")
        self._records.fail(aborted, in_flight=self.requests.v2)
        if not self.requests.v2:
            # A batch must not reach its broker after the end of the transaction. With v2 the new
            # epoch prevents that.
            await self._records.wait_landed()
        if self._maybe_open or self._cluster_left:
            end_txn.sent = True
            try:
                await (self._request_id if self._cluster_left else self._end_or_raise_epoch)()
            except KafkaError as error:
                self._fail_producer(error)
                raise
        self._status.move(_S.READY)

    async def _end_or_raise_epoch(self) -> None:
        try:
            await self.requests.end(commit=False)
        except KafkaError as error:
            if is_fatal(error):
                raise
            # InitProducerId ends the transaction as well, whatever the reason of the refusal. Its
            # answer also shows whether this producer has been fenced (KIP-360).
            _log.info(
                "EndTxn was refused, the epoch is raised instead: %s",
                error,
                extra=log_fields(error),
            )
        else:
            if self.requests.v2:
                return
        await self.requests.raise_epoch()

    def _requests_under_way(self) -> set[asyncio.Task[Any]]:
        tasks = {*self._offsets.under_way, *filter(None, (self._added_partitions.task,))}
        return {task for task in tasks if not task.done()}

    # --- offsets ------------------------------------------------------------------------------

    def refuse_offsets(self, error: Exception) -> None:
        """The application gave offsets that cannot be sent. Without them the transaction must not
        be committed: the records before the offsets would be processed again."""
        cause = KafkaError(f"send_offsets_to_transaction: {error}")
        cause.__cause__ = error
        self.fail_transaction(cause)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        self.check_open()
        if not offsets:
            return
        self._maybe_open = True
        sending = self._offsets.send(offsets, group)
        if not await wait_within(sending, self._timeout.seconds):
            what = "send_offsets_to_transaction goes on, and the commit waits for it"
            raise self._timeout.error(what)
        if sending.cancelled() or not sending.result():
            raise self._status.not_allowed("the offsets were not sent", "its transaction has ended")

    async def committed(
        self, group_id: str, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        call = self.requests.committed(group_id, partitions)
        return await self._timeout.within(call, f"no offsets of group {group_id!r}")
