"""What coordinators tell of transactions that are not one's own (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall

__all__ = [
    "DescribeTransactionsCall",
    "DescribedTransactions",
    "ListTransactionsCall",
    "ListedTransactions",
    "TransactionDescription",
    "TransactionListing",
    "TxnState",
]


class TxnState(StrEnum):
    """What a coordinator has come to with a transactional id (Java: ``TransactionState``)."""

    EMPTY = "Empty"
    """Nothing was written yet under the epoch of now."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """Nothing is open, and what was last was committed."""
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    UNKNOWN = "Unknown"
    """Of a broker that is newer than this client."""

    @classmethod
    def _missing_(cls, value: object) -> TxnState:
        return cls.UNKNOWN


class TransactionListing(NamedTuple):
    """A transactional id, and where its last transaction stands."""

    transactional_id: str
    producer_id: int
    state: TxnState


class ListedTransactions(NamedTuple):
    """The answer of one broker to ListTransactions: what it coordinates."""

    error_code: int
    transactions: tuple[TransactionListing, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListTransactionsCall(CodecCall[ListedTransactions]):
    """The transactional ids that a broker coordinates, of these states (none: of all)."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    states: tuple[TxnState, ...] = ()

    def _fields(self, _version: int) -> dict[str, Any]:
        return {"state_filters": [str(state) for state in self.states], "producer_id_filters": []}

    def _result(self, message: Any) -> ListedTransactions:
        listed = tuple(
            TransactionListing(t.transactional_id, t.producer_id, TxnState(t.transaction_state))
            for t in message.transaction_states
        )
        return ListedTransactions(message.error_code, listed, message.throttle_time_ms)


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator knows it. ``started_ms`` is -1 without an open
    transaction; ``partitions`` are those of the open one that have no marker yet."""

    transactional_id: str
    state: TxnState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: frozenset[TopicPartition]


class DescribedTransactions(NamedTuple):
    """The answer to DescribeTransactions for one id; ``description`` is None with an error."""

    error_code: int
    description: TransactionDescription | None
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTransactionsCall(CodecCall[DescribedTransactions]):
    """What the coordinator of an id knows of it."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    transactional_id: str

    def _fields(self, _version: int) -> dict[str, Any]:
        return {"transactional_ids": [self.transactional_id]}

    def _result(self, message: Any) -> DescribedTransactions:
        (told,) = message.transaction_states
        if told.error_code:
            return DescribedTransactions(told.error_code, None, message.throttle_time_ms)
        description = TransactionDescription(
            told.transactional_id,
            TxnState(told.transaction_state),
            told.producer_id,
            told.producer_epoch,
            told.transaction_timeout_ms,
            told.transaction_start_time_ms,
            frozenset(TopicPartition(t.topic, p) for t in told.topics for p in t.partitions),
        )
        return DescribedTransactions(0, description, message.throttle_time_ms)
