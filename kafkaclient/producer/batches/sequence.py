"""Idempotence: producer id, epoch and the sequence numbers of each partition (KIP-98, KIP-360).

The rules, as in Java's ``TransactionManager`` for a producer without transactions:

- a batch gets its sequence when it first leaves; a retry keeps it, so the broker drops duplicates;
- nothing follows the first batch of a sequence before that is acknowledged: a log that does not
  know the producer takes whatever comes first (KAFKA-15591);
- no batch is more than four ahead of the oldest unacknowledged one: a broker knows the last five
  again, and would take an older one, sent once more, for a gap;
- a stamped batch is sent again only when it is the oldest unacknowledged one of its partition;
- when a batch ends without an answer (expired, connection lost), later fresh batches wait until
  it is known whether a gap is left; if so the partition starts over with a raised epoch;
- a raised epoch is taken up by a partition only when none of its batches is on the wire; then all
  its unacknowledged batches are numbered anew from 0. One that may be in the log is not among
  them: it is sent once more under its old number first, and the answer tells (Java numbers it
  anew and writes it twice, KAFKA-14034);
- a topic that was deleted and created anew has other logs: each of its partitions starts over;
- the sequences of a topic that is not used any more are forgotten (Java keeps them for ever). A
  topic that is taken up later may be the same one, and would begin at 0 where the log expects
  more: before that the epoch is raised, once for all that were forgotten under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkaclient.producer.batches.batch import ProducerBatch

__all__ = ["MAX_EPOCH", "NO_PRODUCER_ID", "PartitionSequence", "ProducerIdentity", "advance"]

NO_PRODUCER_ID = -1
MAX_EPOCH = 2**15 - 2  # the last usable epoch; then a new producer id is asked for
_MASK = 2**31 - 1
_REMEMBERED_BATCHES = 5  # Java: ProducerStateEntry.NUM_BATCHES_TO_RETAIN


def advance(sequence: int, count: int) -> int:
    """The sequence ``count`` records later; 2^31-1 is followed by 0 (as in Java)."""
    return (sequence + count) & _MASK


class ProducerIdentity:
    """The producer id and epoch that fresh batches are stamped with.

    ``wanted`` is True while an id must be asked of a broker (at start, and when the epochs of the
    old one are used up).
    """

    __slots__ = ("_forgotten", "enabled", "epoch", "producer_id")

    transactional: ClassVar[bool] = False
    abort_only: bool = False
    """Nothing is sent again: whatever is left belongs to a transaction that is to be aborted."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self._forgotten: tuple[int, int] | None = None
        """The producer id and epoch that sequences were forgotten under last."""

    def __repr__(self) -> str:
        return f"<ProducerIdentity id={self.producer_id} epoch={self.epoch}>"

    @property
    def valid(self) -> bool:
        return not self.enabled or self.producer_id != NO_PRODUCER_ID

    @property
    def wanted(self) -> bool:
        return not self.valid

    def assign(self, producer_id: int, epoch: int) -> None:
        """Take up what a broker gave (InitProducerId)."""
        self.producer_id, self.epoch = producer_id, epoch

    def raise_epoch(self) -> bool:
        """Start over under a new epoch; False when they are used up and a new id is wanted."""
        if self.epoch >= MAX_EPOCH:
            self.producer_id, self.epoch = NO_PRODUCER_ID, -1
            return False
        self.epoch += 1
        return True

    def forget_sequences(self, sequences: Iterable[PartitionSequence]) -> bool:
        """Whether the sequences of a topic's partitions may be forgotten; they are, then."""
        if any(sequence.is_of(self) for sequence in sequences):
            self._forgotten = self.producer_id, self.epoch
        return True

    def take_up_topic(self) -> None:
        """A topic is used for the first time, or again after its sequences were forgotten."""
        if self._forgotten == (self.producer_id, self.epoch):
            self._forgotten = None
            self.raise_epoch()


class PartitionSequence:
    """Where one partition stands in its sequence."""

    __slots__ = (
        "epoch",
        "last_acked",
        "next",
        "numbered",
        "producer_id",
        "start_over",
        "unresolved",
    )

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.next = 0
        """The sequence of the next fresh record."""
        self.numbered = 0
        """How many batches were numbered so far."""
        self.last_acked = -1
        """The last sequence known to be in the log, -1 when none is."""
        self.unresolved = False
        """A batch ended without an answer: a gap may be left."""
        self.start_over = False
        """A new epoch is due, as soon as nothing of the partition is on the wire."""

    def may_stamp(self, unacked: Sequence[ProducerBatch], identity: ProducerIdentity) -> bool:
        """Whether a fresh batch may leave now. ``unacked``: the partition's, oldest first."""
        if not identity.valid or self.unresolved or self.start_over:
            return False
        if not unacked:
            return True
        if self.producer_id != identity.producer_id or self.epoch != identity.epoch:
            return False  # those of the old epoch come first; after the new one they are refused
        ahead = self.numbered - unacked[0].sequence_order
        return self.last_acked >= 0 and ahead < _REMEMBERED_BATCHES

    def is_of(self, identity: ProducerIdentity) -> bool:
        """Whether batches were numbered under the identity that is the current one."""
        used = self.producer_id != NO_PRODUCER_ID
        return used and (self.producer_id, self.epoch) == (identity.producer_id, identity.epoch)

    def stamp(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        """Number a fresh batch (sealed)."""
        if self.producer_id != identity.producer_id or self.epoch != identity.epoch:
            self.producer_id, self.epoch = identity.producer_id, identity.epoch
            self.next, self.last_acked = 0, -1
        self._number(batch)

    def _number(self, batch: ProducerBatch) -> None:
        batch.stamp(self.producer_id, self.epoch, self.next)
        batch.sequence_order = self.numbered
        self.next = advance(self.next, batch.count)
        self.numbered += 1

    def acknowledged(self, batch: ProducerBatch) -> None:
        if batch.producer_epoch != self.epoch or batch.producer_id != self.producer_id:
            return
        last = advance(batch.base_sequence, batch.count - 1)
        # A retry may be acknowledged after those that followed it. Numbers wrap, so what is less
        # than half of them ahead is later.
        if self.last_acked < 0 or (last - self.last_acked) & _MASK < _MASK // 2:
            self.last_acked = last

    def on_log_recreated(self) -> None:
        """The partition has another log now. A new epoch is right whatever that log has: named by
        name (before Kafka 4.1), it may have got batches before we were told of it."""
        self.start_over |= self.producer_id != NO_PRODUCER_ID

    def resolve(self) -> None:
        """Nothing is unacknowledged: look whether what ended without an answer left a gap."""
        if not self.unresolved:
            return
        self.unresolved = False
        expected = 0 if self.last_acked < 0 else advance(self.last_acked, 1)
        if self.next != expected:
            self.start_over = True

    def restart(self, unacked: Sequence[ProducerBatch], identity: ProducerIdentity) -> bool:
        """Take up the raised epoch if it is due and possible; True when numbers changed. Nothing of
        the partition is on the wire."""
        if not self.start_over or not identity.valid:
            return False
        # The log has no gaps: if the first one is not in it, nor are those that follow.
        if unacked and unacked[0].maybe_written:
            return False
        current = self.producer_id == identity.producer_id and self.epoch == identity.epoch
        if current and not identity.raise_epoch():
            return False  # goes on with the new id
        self.start_over = self.unresolved = False
        self.producer_id, self.epoch = identity.producer_id, identity.epoch
        self.next, self.last_acked = 0, -1
        for batch in unacked:
            batch.maybe_written = False
            self._number(batch)
        return True
