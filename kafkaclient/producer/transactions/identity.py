"""The producer id and epoch of a transactional producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError
from kafkaclient.producer.batches.idempotence import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.producer.batches.idempotence import PartitionSequence


class TransactionalIdentity(ProducerIdentity):
    """The identity that the coordinator assigns. Batches may leave while a transaction is open.

    ``on_sequence_gap(error)`` is called when a partition's sequence cannot go on within the
    transaction.
    """

    __slots__ = ("_on_sequence_gap", "open")

    transactional = True

    def __init__(self, on_sequence_gap: Callable[[KafkaError], None]) -> None:
        super().__init__(enabled=True)
        self._on_sequence_gap = on_sequence_gap
        self.open: bool = False
        """Whether batches may leave."""
        """Whether no batch is retried, because the transaction will be aborted."""

    @property
    def valid(self) -> bool:
        return self.open

    @property
    def wanted(self) -> bool:
        return False

    def forget_sequences(self, sequences: Iterable[PartitionSequence]) -> bool:
        # Only the coordinator raises the epoch. With transactions v2 each transaction has its own.
        return not any(sequence.is_of(self) for sequence in sequences)

    def raise_epoch(self) -> bool:
        # A gap within a transaction is not repaired: aborting the transaction brings a new epoch.
        self._on_sequence_gap(
            KafkaError(
                "a partition's log does not continue this producer's records: the topic was "
                "deleted and created again, or records are missing"
            )
        )
        return False
