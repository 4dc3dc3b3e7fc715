"""Transactions: begun, filled, committed or aborted as a whole (KIP-98, KIP-360, KIP-890).

Java: ``TransactionManager``. ``transaction_state.py`` has the states, this file what is done in
them. A transaction ends in a task of its own: whoever asked for it may be cancelled or lose
patience, the end goes on, and has one outcome, which can be asked for again.

v1 and v2: with v2 a partition becomes part of the transaction with its first Produce, and every end
brings a new epoch, so that what is still on its way from an old transaction is refused. With v1
partitions are added beforehand (``enlistment.py``), and an abort waits for what is on the wire and
then asks for the next epoch. The cluster's feature level tells at the start which of the two it is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import (
    KafkaError,
    ProducerStateError,
    TransactionAbortedError,
)
from kafkaclient.producer.transactions.added_partitions import AddedPartitions
from kafkaclient.producer.transactions.end_txn import EndTxnTask
from kafkaclient.producer.transactions.max_block import MaxBlockTimeout
from kafkaclient.producer.transactions.offsets import TransactionOffsets
from kafkaclient.producer.transactions.requests import is_fatal
from kafkaclient.producer.transactions.states import TransactionState, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from kafkaclient.config.limit import Limit
    from kafkaclient.producer.transactions.records import TransactionRecords
    from kafkaclient.producer.transactions.requests import (
        TransactionalIdentity,
        TransactionRequests,
    )
    from kafkaclient.types import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        PreparedTransaction,
        TopicPartition,
    )

__all__ = ["TransactionManager"]

_log = logging.getLogger(__name__)

_S = TransactionState
_PATIENCE = 3.0
"""How long an abort waits for calls of its transaction that are under way, in seconds."""


class TransactionManager:
    """The transactions of one producer, one after the other.

    ``limit`` is how long a call may wait. ``on_fatal(error)`` ends the producer,
    ``on_waited(call, seconds)`` is told how long calls took, ``wake()`` has a pass of the sender
    begin. Times in seconds.
    """

    def __init__(
        self,
        name: str,
        records: TransactionRecords,
        identity: TransactionalIdentity,
        calls: TransactionRequests,
        *,
        limit: Limit,
        clock: Callable[[], float],
        on_fatal: Callable[[KafkaError], None],
        on_waited: Callable[[str, float], None],
        wake: Callable[[], None],
    ) -> None:
        self._standing = TransactionStatus(name)
        self._move, self._refusal = self._standing.move, self._standing.refusal
        self.serial = 0
        """How many transactions were begun."""
        self.calls = calls
        self.on_begin: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        self._name = name
        self._records = records
        self._identity = identity
        identity.on_gap = self._gap
        self._patience = MaxBlockTimeout(name, calls, limit)
        self._clock = clock
        self._on_fatal = on_fatal
        self._on_waited = on_waited
        self._used = False
        """Whether the coordinator may know of the transaction."""
        self._left_open = False
        """It is prepared, and whoever was told may end it."""
        self._ending: EndTxnTask | None = None
        self._offsets = TransactionOffsets(calls, self.call_failed, self.failed)
        self._enlistment = AddedPartitions(
            records.lines,
            calls.add_partitions,
            clock=clock,
            on_added=wake,
            on_failed=self.call_failed,
        )

    def __repr__(self) -> str:
        return f"<TransactionManager of {self._name!r}: {self.state.name}, {self.serial} begun>"

    # --- states -------------------------------------------------------------------------------

    @property
    def state(self) -> TransactionState:
        return self._standing.state

    def check_open(self) -> None:
        """Raises unless records may be sent."""
        if self.state is not _S.IN_TRANSACTION:
            raise self._refusal("the record was not sent", "begin_transaction comes first")

    def admission(self, check_open: Callable[[], None]) -> Callable[[], None]:
        """For who has to wait before a record is taken: raises if that is not to be any more."""
        serial = self.serial

        def check() -> None:
            check_open()
            if serial != self.serial:
                raise ProducerStateError(
                    "the record was not sent: the transaction ended while send waited for metadata "
                    "or buffer space"
                )

        return check

    def new_batch(self) -> None:
        """Records were taken that the coordinator will hear of."""
        self._used = True

    def call_failed(self, error: KafkaError) -> None:
        """A coordinator has refused something within the transaction."""
        if is_fatal(error):
            self._die(error)
        else:
            self.failed(error)

    def failed(self, error: KafkaError) -> None:
        """A record of the transaction has failed, or a group's coordinator took its producer for
        fenced. The transaction's coordinator tells whether the producer may go on: leaders and
        groups take an epoch that was raised for a time-out for another producer's."""
        if self.state not in (_S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING):
            return
        self._standing.cause = error
        self._move(_S.ABORTABLE_ERROR)
        self._shut()
        # Not now: whoever tells of the failure is at work on the batches.
        asyncio.get_running_loop().call_soon(self._give_up_what_waits)

    def _gap(self) -> None:
        self.failed(
            KafkaError(
                "a partition's log does not go on from what this producer has written to it: its "
                "topic was deleted and created anew, or records are missing"
            )
        )

    def dead(self, error: KafkaError) -> None:
        """The producer may not go on."""
        if self.state is not _S.FATAL:
            self._standing.cause = error
            self._move(_S.FATAL)
            self._shut()

    def _die(self, error: KafkaError) -> None:
        self.dead(error)
        self._on_fatal(error)

    def _shut(self) -> None:
        """Nothing fresh leaves any more, and nothing is tried again."""
        self._identity.open, self._identity.abort_only = False, True
        self._enlistment.end()
        self.on_end()

    # --- life ---------------------------------------------------------------------------------

    async def timed(self, call: str, work: Awaitable[None]) -> None:
        """Tell how long a call took, whatever came of it (Java's metrics of transactions)."""
        began = self._clock()
        try:
            await work
        finally:
            self._on_waited(call, self._clock() - began)

    async def initialize(self) -> None:
        """Ask for the producer id. Raises TransactionTimeoutError after ``max.block.ms``."""
        self._move(_S.INITIALIZING)
        await self._patience.in_time(self.calls.initialize(), "the producer was not started")
        self._records.lines.gate = None if self.calls.v2 else self._enlistment
        self._move(_S.READY)

    async def begin(self) -> None:
        if self._ending is not None and not self._ending.task.done():
            await self._outcome(self._ending)
        if self.state is not _S.READY:
            raise self._refusal("no transaction was begun", "it has to end first")
        self._move(_S.IN_TRANSACTION)
        self.serial += 1
        self._ending = self._standing.cause = None
        self._used = self._left_open = False
        self._enlistment.begin()
        self._identity.open, self._identity.abort_only = True, False
        self.on_begin()

    async def close(self) -> None:
        """Abort an open transaction unless it is prepared, wait for one that is being ended; up to
        ``max.block.ms``."""
        try:
            if self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR) or (
                self.state is _S.PREPARED and not self._left_open
            ):
                await self.abort()
            elif self._ending is not None and not self._ending.task.done():
                await self._outcome(self._ending)
        except KafkaError as error:
            _log.warning("the transaction of %r was left to its coordinator: %s", self._name, error)
        finally:
            self._shut()
            tasks = self._calls_under_way()
            if self._ending is not None:
                tasks.add(self._ending.task)
            await _cancel(tasks)

    # --- the end of a transaction -------------------------------------------------------------

    async def prepare(self) -> PreparedTransaction | None:
        if self.state is not _S.PREPARED:
            if self.state is not _S.IN_TRANSACTION:
                raise self._refusal("nothing was prepared", "there is nothing to prepare")
            self._move(_S.PREPARED)
            self.on_end()
        await self._patience.in_time(self._written(), "prepare_transaction goes on; await it again")
        if self.state is not _S.PREPARED:
            raise self._refusal("nothing was prepared", "it was not prepared")
        self._left_open = True
        return self.calls.prepared() if self._used else None

    async def _written(self) -> None:
        """Wait until everything in the transaction has an outcome, and no coordinator is asked for
        anything that could come after the transaction's end."""
        if self._offsets.under_way:
            await asyncio.wait(self._offsets.under_way)
        await self._records.drained()
        await self._enlistment.finish()

    async def commit(self) -> None:
        ending = self._ending
        if ending is None or not ending.commit or ending.over:
            if self.state not in (_S.IN_TRANSACTION, _S.PREPARED):
                raise self._refusal("nothing was committed", "there is nothing to commit")
            ending = self._start(_S.COMMITTING, self._commit, commit=True)
        await self._outcome(ending)

    async def abort(self) -> None:
        ending = self._ending
        if self.state is _S.COMMITTING and ending is not None and ending.sent:
            raise ProducerStateError(
                f"the transaction of {self._name!r} cannot be aborted: its commit is on its way; "
                "await commit_transaction again for the outcome"
            )
        if self.abortable:
            if ending is not None:  # a commit that waits for records, or has failed by them
                ending.task.cancel()
            ending = self._start(_S.ABORTING, self._abort, commit=False)
        elif ending is None or ending.commit or ending.over:
            raise self._refusal("nothing was aborted", "there is nothing to abort")
        await self._outcome(ending)

    @property
    def abortable(self) -> bool:
        """Whether there is a transaction that :meth:`abort` can end."""
        if self.state is _S.COMMITTING:
            return self._ending is not None and not self._ending.sent
        return self.state in (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR)

    def _start(
        self,
        state: TransactionState,
        work: Callable[[EndTxnTask], Coroutine[None, None, None]],
        *,
        commit: bool,
    ) -> EndTxnTask:
        self._move(state)
        self.on_end()
        self._ending = EndTxnTask(work, commit=commit, on_defect=self._die)
        return self._ending

    async def _outcome(self, ending: EndTxnTask) -> None:
        """Wait for the end; raises what it failed with, or TransactionTimeoutError meanwhile."""
        if not await ending.wait(self._patience.seconds):
            raise self._patience.over(
                f"{ending.name} goes on; await it again for its outcome"
            ) from self.calls.last_error
        if ending.task.cancelled():
            raise self._refusal(f"{ending.name} was given up", "it was aborted or stopped")
        if ending.error is not None:
            raise ending.error.with_traceback(None)

    async def _commit(self, ending: EndTxnTask) -> None:
        await self._written()
        self._check_committing()  # no record has failed
        self._identity.open = False
        if self._used:
            ending.sent = True
            try:
                await self.calls.end(commit=True)
            except KafkaError as error:
                self.call_failed(error)
            self._check_committing()
        self._move(_S.READY)

    def _check_committing(self) -> None:
        if self.state is not _S.COMMITTING:
            raise self._refusal("nothing was committed", "it was not committed")

    async def _abort(self, ending: EndTxnTask) -> None:
        self._shut()
        await self._stop_calls()
        aborted = TransactionAbortedError(
            f"the transaction of {self._name!r} that the record belonged to was aborted"
            + (f": {self._standing.cause}" if self._standing.cause else "")
        )
        aborted.__cause__ = self._standing.cause
        if self.calls.v2:
            self._records.drop(aborted)
        else:
            # What may still arrive at its broker must not come after the end of the transaction.
            # With v2 the epoch sees to that.
            self._records.drop_waiting(aborted)
            await self._records.landed()
        if self._used:
            ending.sent = True
            try:
                await self._end_for_good()
            except KafkaError as error:
                self._die(error)
                raise
        self._move(_S.READY)

    async def _end_for_good(self) -> None:
        try:
            await self.calls.end(commit=False)
        except KafkaError as error:
            if is_fatal(error):
                raise
            # Whatever the coordinator has against it: asking for the next epoch ends the rest, and
            # tells whether this producer is still the one (KIP-360).
            _log.info("EndTxn was refused, the epoch is raised instead: %s", error)
        else:
            if self.calls.v2:
                return
        await self.calls.raise_epoch()

    async def _stop_calls(self) -> None:
        """Have nothing under way for the transaction that could come after its end."""
        tasks = self._calls_under_way()
        if tasks and not self.calls.v2:
            await asyncio.wait(tasks, timeout=_PATIENCE)
        await _cancel(tasks)

    def _calls_under_way(self) -> set[asyncio.Task[Any]]:
        tasks = {*self._offsets.under_way, *filter(None, (self._enlistment.task,))}
        return {task for task in tasks if not task.done()}

    def _give_up_what_waits(self) -> None:
        if self.state is _S.ABORTABLE_ERROR:
            cause = self._standing.cause
            error = TransactionAbortedError(
                f"the record was not sent: its transaction can only be aborted: {cause}"
            )
            error.__cause__ = cause
            self._records.drop_waiting(error)

    # --- offsets ------------------------------------------------------------------------------

    def refuse_offsets(self, error: Exception) -> None:
        """Offsets were asked for that no coordinator can be sent. The transaction must not be
        committed without them: what was read would be processed again."""
        cause = KafkaError(f"send_offsets_to_transaction: {error}")
        cause.__cause__ = error
        self.failed(cause)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        self.check_open()
        if not offsets:
            return
        self._used = True
        sending = self._offsets.send(offsets, group)
        await asyncio.wait({sending}, timeout=self._patience.seconds)
        if not sending.done():
            raise self._patience.over(
                "send_offsets_to_transaction goes on, and the commit waits for it"
            )
        if sending.cancelled() or not sending.result():
            raise self._refusal("the offsets were not sent", "its transaction has ended")

    async def committed(
        self, group_id: str, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        call = self.calls.committed(group_id, partitions)
        return await self._patience.in_time(call, f"no offsets of group {group_id!r}")


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
