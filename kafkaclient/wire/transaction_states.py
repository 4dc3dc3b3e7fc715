"""ListTransactions and DescribeTransactions: the transactions of all clients (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall


class TxnState(StrEnum):
    """The state of a transactional id at its coordinator (Java: ``TransactionState``)."""

    EMPTY = "Empty"
    """Nothing was written yet with the current producer epoch."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """No transaction is open; the last one was committed."""
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    UNKNOWN = "Unknown"
    """The broker is newer than this client."""

    @classmethod
    def _missing_(cls, value: object) -> TxnState:
        return cls.UNKNOWN


class TransactionListing(NamedTuple):
    """A transactional id, and the state of its last transaction."""

    transactional_id: str
    producer_id: int
    state: TxnState


class ListedTransactions(NamedTuple):
    """The transactional ids that one broker coordinates."""

    error_code: int
    transactions: tuple[TransactionListing, ...]
    throttle_ms: int = 0


@dataclass(frozen=True)
class ListTransactionsCall(
    CodecCall[ListedTransactions], api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 0)
):
    """Lists the transactional ids that a broker coordinates; empty ``states`` means all states."""

    states: tuple[TxnState, ...] = ()

    def _fields(self) -> dict[str, Any]:
        return {"state_filters": [str(state) for state in self.states], "producer_id_filters": []}

    def _result(self, message: Any) -> ListedTransactions:
        listed = tuple(
            TransactionListing(t.transactional_id, t.producer_id, TxnState(t.transaction_state))
            for t in message.transaction_states
        )
        return ListedTransactions(message.error_code, listed, message.throttle_time_ms)


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator describes it. ``started_ms`` is -1 without an open
    transaction. ``partitions``: the partitions of the open transaction that have no marker yet."""

    transactional_id: str
    state: TxnState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: frozenset[TopicPartition]


class DescribedTransactions(NamedTuple):
    """The response for one transactional id; ``description`` is None with an error."""

    error_code: int
    description: TransactionDescription | None
    throttle_ms: int = 0


@dataclass(frozen=True)
class DescribeTransactionsCall(
    CodecCall[DescribedTransactions], api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0)
):
    """Describes a transactional id. Must go to its coordinator."""

    transactional_id: str

    def _fields(self) -> dict[str, Any]:
        return {"transactional_ids": [self.transactional_id]}

    def _result(self, message: Any) -> DescribedTransactions:
        (found,) = message.transaction_states
        if found.error_code:
            return DescribedTransactions(found.error_code, None, message.throttle_time_ms)
        description = TransactionDescription(
            found.transactional_id,
            TxnState(found.transaction_state),
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            frozenset(TopicPartition(t.topic, p) for t in found.topics for p in t.partitions),
        )
        return DescribedTransactions(0, description, message.throttle_time_ms)
