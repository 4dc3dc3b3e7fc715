"""Idempotence: producer id, epoch and the sequence numbers of each partition (KIP-98, KIP-360).

The rules, as in Java's ``TransactionManager`` for a producer without transactions:

- a batch gets its sequence when it is first sent. A retry keeps it, so the broker drops duplicates;
- the second batch of a sequence waits until the first is acknowledged: a log that does not know
  the producer accepts any sequence (KAFKA-15591);
- no batch is more than four ahead of the oldest unacknowledged one: a broker remembers the last
  five, and would take a retry of an older one for a gap;
- a stamped batch is sent again only when it is the oldest unacknowledged one of its partition;
- when a batch fails that was surely not written, the partition starts over with a raised epoch;
- when a batch ends without an answer (expired, connection lost), new batches wait until it is
  known whether the log has a gap. With a gap, the partition starts over, too;
- a partition takes up a raised epoch only when none of its batches is on the wire. Then all its
  unacknowledged batches are numbered again from 0. A batch that may be in the log is sent once
  more under its old number first, and the answer shows whether the log has it (Java numbers such a
  batch again and writes it twice, KAFKA-14034);
- a topic that was deleted and created again has other logs: each of its partitions starts over;
- another cluster (cluster/identity.py) gives another producer id: the old one may be another
  client's there (Java keeps it). No batch is sent with its old number any more;
- an unused topic's sequences are forgotten (Java keeps them). If it is used again, its numbers
  begin at 0, but the log expects others. So the epoch is raised first, once for all that was
  forgotten under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkaclient.producer.batches.batch import ProducerBatch

NO_PRODUCER_ID = -1
MAX_EPOCH = 2**15 - 2  # the last usable epoch; after it a new producer id is requested
_MASK = 2**31 - 1
_REMEMBERED_BATCHES = 5  # Java: ProducerStateEntry.NUM_BATCHES_TO_RETAIN


def advance(sequence: int, count: int) -> int:
    """The sequence ``count`` records later; 2^31-1 is followed by 0 (as in Java)."""
    return (sequence + count) & _MASK


class ProducerIdentity:
    """The producer id and epoch that new batches are stamped with.

    ``wanted`` is True while a producer id must be requested (at the start, and when the epochs of
    the old one are used up).
    """

    __slots__ = ("_forgotten", "abort_only", "enabled", "epoch", "producer_id")

    transactional: ClassVar[bool] = False

    def __init__(self, enabled: bool) -> None:
        self.abort_only: bool = False
        """Nothing is sent again: every batch left belongs to a transaction that will be aborted."""
        self.enabled: bool = enabled
        self.producer_id: int = NO_PRODUCER_ID
        self.epoch: int = -1
        self._forgotten: tuple[int, int] | None = None
        """The producer id and epoch under which sequences were forgotten last."""

    def __repr__(self) -> str:
        return f"<ProducerIdentity id={self.producer_id} epoch={self.epoch}>"

    @property
    def valid(self) -> bool:
        return not self.enabled or self.producer_id != NO_PRODUCER_ID

    @property
    def wanted(self) -> bool:
        return self.enabled and self.producer_id == NO_PRODUCER_ID

    def assign(self, producer_id: int, epoch: int) -> None:
        """Use the producer id and epoch of an InitProducerId response."""
        self.producer_id, self.epoch = producer_id, epoch

    def raise_epoch(self) -> bool:
        """Raise the epoch. False: the epochs are used up, and a new id is wanted."""
        if self.epoch >= MAX_EPOCH:
            self.producer_id, self.epoch = NO_PRODUCER_ID, -1
            return False
        self.epoch += 1
        return True

    def batch_failed(self, error: KafkaError) -> None:
        """A batch has failed with ``error``."""

    def leave_cluster(self) -> None:
        """The client is in another cluster: a new producer id is wanted."""
        self.producer_id, self.epoch, self._forgotten = NO_PRODUCER_ID, -1, None

    def forget_sequences(self, sequences: Iterable[PartitionSequence]) -> bool:
        """The sequences of a topic's partitions are forgotten. False: they must be kept."""
        if any(sequence.is_of(self) for sequence in sequences):
            self._forgotten = self.producer_id, self.epoch
        return True

    def take_up_topic(self) -> None:
        """A topic is used for the first time, or again after its sequences were forgotten."""
        if self._forgotten == (self.producer_id, self.epoch):
            self._forgotten = None
            self.raise_epoch()


class TransactionalIdentity(ProducerIdentity):
    """The identity that the coordinator assigns. Batches may leave while a transaction is open.

    ``fail_transaction(error)`` is called when a batch fails, and when a partition's sequence cannot
    go on within the transaction.
    """

    __slots__ = ("_fail_transaction", "open")

    transactional = True

    def __init__(self, fail_transaction: Callable[[KafkaError], None]) -> None:
        super().__init__(enabled=True)
        self._fail_transaction = fail_transaction
        self.open: bool = False
        """Whether batches may leave."""

    @property
    def valid(self) -> bool:
        return self.open

    @property
    def wanted(self) -> bool:
        return False

    def batch_failed(self, error: KafkaError) -> None:
        self._fail_transaction(error)

    def forget_sequences(self, sequences: Iterable[PartitionSequence]) -> bool:
        # Only the coordinator raises the epoch. With transactions v2 each transaction has its own.
        return not any(sequence.is_of(self) for sequence in sequences)

    def raise_epoch(self) -> bool:
        # A gap within a transaction is not repaired: aborting the transaction brings a new epoch.
        self._fail_transaction(
            KafkaError(
                "a partition's log does not continue this producer's records: the topic was "
                "deleted and created again, or records are missing"
            )
        )
        return False


class PartitionSequence:
    """One partition's sequence numbers. Only methods of this class assign its attributes."""

    __slots__ = (
        "epoch",
        "last_acked",
        "next",
        "numbered",
        "producer_id",
        "restart_due",
        "unresolved",
    )

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.next = 0
        """The sequence of the next record that is numbered."""
        self.numbered = 0
        """How many batches were numbered so far, over all epochs."""
        self.last_acked = -1
        """The last sequence known to be in the log. -1: none."""
        self.unresolved = False
        """Whether a batch ended without an answer: the log may have a gap."""
        self.restart_due = False
        """Whether a new epoch is due, as soon as nothing of the partition is on the wire."""

    def may_stamp(self, unacked: Sequence[ProducerBatch], identity: ProducerIdentity) -> bool:
        """Whether a new batch may be sent now. ``unacked``: the partition's, oldest first."""
        if identity.producer_id == NO_PRODUCER_ID or self.unresolved or self.restart_due:
            return False
        if not unacked:
            return True
        if self.producer_id != identity.producer_id or self.epoch != identity.epoch:
            return False  # once a broker has seen the new epoch, it refuses batches of the old one
        ahead = self.numbered - unacked[0].sequence_order
        return self.last_acked >= 0 and ahead < _REMEMBERED_BATCHES

    def is_of(self, identity: ProducerIdentity) -> bool:
        """Whether batches were numbered under the current producer id and epoch."""
        used = self.producer_id != NO_PRODUCER_ID
        return used and (self.producer_id, self.epoch) == (identity.producer_id, identity.epoch)

    def stamp(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        """Give the batch the next sequence number."""
        if self.producer_id != identity.producer_id or self.epoch != identity.epoch:
            self.producer_id, self.epoch = identity.producer_id, identity.epoch
            self.next, self.last_acked = 0, -1
        batch.stamp(self.producer_id, self.epoch, self.next, self.numbered)
        self.next = advance(self.next, batch.result.count)
        self.numbered += 1

    def acknowledged(self, batch: ProducerBatch) -> None:
        if batch.producer_epoch != self.epoch or batch.producer_id != self.producer_id:
            return
        last = advance(batch.base_sequence, batch.result.count - 1)
        # A retry may be acknowledged after later batches. Numbers wrap: a number less than half of
        # the range ahead is later.
        if self.last_acked < 0 or (last - self.last_acked) & _MASK < _MASK // 2:
            self.last_acked = last

    def on_batch_lost(self, *, maybe_written: bool) -> None:
        """A stamped batch has failed. If it was surely not written, the log has a gap: the
        partition starts over. If it may have been written, :meth:`resolve` decides later."""
        if maybe_written:
            self.unresolved = True
        else:
            self.restart_due = True

    def require_restart(self) -> None:
        """Numbers are missing in the log: start over with a raised epoch as soon as possible."""
        self.restart_due = True

    def on_log_recreated(self) -> None:
        """The partition has another log now. A new epoch is right whatever that log contains:
        before Kafka 4.1 it may have got batches by its name before the metadata showed it."""
        self.restart_due |= self.producer_id != NO_PRODUCER_ID

    def leave_cluster(self, unacked: Iterable[ProducerBatch]) -> None:
        """No log of the new cluster has any of the batches."""
        self.restart_due, self.unresolved = self.producer_id != NO_PRODUCER_ID, False
        for batch in unacked:
            batch.leave_cluster()

    def resolve(self) -> None:
        """Check whether a batch without an answer left a gap. To be called with nothing
        unacknowledged."""
        if not self.unresolved:
            return
        self.unresolved = False
        expected = 0 if self.last_acked < 0 else advance(self.last_acked, 1)
        if self.next != expected:
            self.restart_due = True

    def restart(self, unacked: Sequence[ProducerBatch], identity: ProducerIdentity) -> bool:
        """Number all of ``unacked`` again under a raised epoch, if that is due and possible.
        Returns whether it was done. To be called with nothing of the partition on the wire."""
        if not self.restart_due or not identity.valid:
            return False
        # A batch that may be in the log is first sent once more under its old number. A log has no
        # gaps: if the first batch is not in it, no later one is.
        if unacked and unacked[0].maybe_written:
            return False
        if self.is_of(identity) and not identity.raise_epoch():
            return False  # to be continued with the new producer id
        self.restart_due = self.unresolved = False
        self.producer_id, self.epoch = identity.producer_id, identity.epoch
        self.next, self.last_acked = 0, -1
        for batch in unacked:
            batch.mark_unwritten()
            self.stamp(batch, identity)
        return True
