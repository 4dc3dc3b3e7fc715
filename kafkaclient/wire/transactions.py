"""The calls of transactional producers (KIP-98, KIP-447, KIP-890), OffsetFetch, and the
transactions of all clients: ListTransactions and DescribeTransactions (KIP-664).

Some version ranges end below what the codec supports: from version 4 on only brokers send
AddPartitionsToTxn.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import ProtocolError
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import (
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    ApiKey,
    by_topic,
    compact_count,
    compact_string,
    framed,
    malformed,
    request,
)
from kafkaclient.wire.codec import CodecCall, or_unknown, partitions_in
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafkaclient.types import Buffer

_FIRST_COMMIT_BY_ID = 6  # KIP-1319
_MIN_TOPIC, _MIN_PARTITION = 18, 7  # bytes


class CoordinatorKind(IntEnum):
    """The two kinds of coordinators (Java: ``CoordinatorType``)."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorFound(NamedTuple):
    """The coordinator of a group or a transactional id."""

    error_code: int
    error_message: str | None
    node_id: int
    throttle_ms: int = 0


class PartitionCodes(NamedTuple):
    """An error code for each partition of the request; 0 means no error."""

    codes: Mapping[TopicPartition, int]
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The first error; OPERATION_NOT_ATTEMPTED only if there is no other."""
        failed = [code for code in self.codes.values() if code]
        return min(failed, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED, default=0)


class TxnEnded(NamedTuple):
    """The outcome; producer id and epoch of the next transaction, -1 before version 5 (KIP-890)."""

    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_ms: int = 0


class FetchedOffset(NamedTuple):
    """A group's committed offset of one partition; ``offset`` is -1 if there is none."""

    error_code: int
    offset: int
    leader_epoch: int
    metadata: str


class FetchedOffsets(NamedTuple):
    """A group's committed offsets."""

    group_error_code: int
    offsets: Mapping[TopicPartition, FetchedOffset]
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The group's error, otherwise the first error of a partition whose topic exists."""
        codes = (self.group_error_code, *(o.error_code for o in self.offsets.values()))
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return next((code for code in codes if code not in (0, unknown)), 0)


class TxnIdentity(NamedTuple):
    """The identity of the producer, in every request of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class FindCoordinatorCall(
    CodecCall[CoordinatorFound], api_key=ApiKey.FIND_COORDINATOR, versions=(1, 5)
):
    """Finds the coordinator of a group or a transactional id; any broker knows it."""

    kind: CoordinatorKind
    key: str

    def _fields(self) -> dict[str, Any]:
        # Version 4 is the first that can find several coordinators (KIP-699).
        return {"key_type": int(self.kind), "key": self.key, "coordinator_keys": [self.key]}

    def _result(self, message: Any) -> CoordinatorFound:
        found = message.coordinators[0] if message.coordinators else message
        return CoordinatorFound(
            found.error_code, found.error_message, found.node_id, message.throttle_time_ms
        )


@dataclass(frozen=True)
class AddPartitionsToTxnCall(
    CodecCall[PartitionCodes], api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 3)
):
    """Adds partitions to the transaction before their first record is written (transactions v1; in
    v2 Produce adds them)."""

    identity: TxnIdentity
    partitions: tuple[TopicPartition, ...]

    def _fields(self) -> dict[str, Any]:
        identity = self.identity
        return {
            "v3_and_below_transactional_id": identity.transactional_id,
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.producer_epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": numbers}
                for topic, numbers in by_topic(self.partitions).items()
            ],
        }

    def _result(self, message: Any) -> PartitionCodes:
        codes = {
            TopicPartition(topic.name, p.partition_index): p.partition_error_code
            for topic in message.results_by_topic_v3_and_below
            for p in topic.results_by_partition
        }
        return PartitionCodes(codes, message.throttle_time_ms)


@dataclass(frozen=True)
class AddOffsetsToTxnCall(CodecCall[TxnEnded], api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4)):
    """Adds a group's offsets to the transaction (transactions v1)."""

    identity: TxnIdentity
    group_id: str

    def _fields(self) -> dict[str, Any]:
        return {**self.identity._asdict(), "group_id": self.group_id}

    def _result(self, message: Any) -> TxnEnded:
        return TxnEnded(message.error_code, -1, -1, message.throttle_time_ms)


_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class CommittedOffsets(PartitionCodes):
    """The answer to OffsetCommit and TxnOffsetCommit. The partitions that do not exist are apart,
    in ``unknown``: a repetition could write their offsets into a topic that is created again."""

    @property
    def error_code(self) -> int:
        """The first error of a partition that exists."""
        return PartitionCodes({p: c for p, c in self.codes.items() if c not in _UNKNOWN}).error_code

    @property
    def unknown(self) -> list[TopicPartition]:
        return [partition for partition, code in self.codes.items() if code in _UNKNOWN]


def topics_of(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
    ids: Mapping[TopicPartition, UUID] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The topics of a request that commits offsets. While a topic is created again, its partitions
    may have different ids: then it is there twice."""
    topics: defaultdict[tuple[str, UUID | None], list[dict[str, Any]]] = defaultdict(list)
    for where, given in offsets.items():
        offset = OffsetAndMetadata(given) if isinstance(given, int) else given
        entry = {
            "partition_index": where.partition,
            "committed_offset": offset.offset,
            "committed_leader_epoch": offset.leader_epoch,
            "committed_metadata": offset.metadata,
        }
        topics[where.topic, ids.get(where)].append(entry)
    return [
        {"name": name, "partitions": found} | ({"topic_id": topic_id} if topic_id else {})
        for (name, topic_id), found in topics.items()
    ]


@dataclass(frozen=True)
class TxnOffsetCommitCall(
    CodecCall[CommittedOffsets], api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(3, 4)
):
    """Commits a group's offsets with the transaction.

    Version 3 is the first with the member and its generation: the group's coordinator fences
    members that the group has removed (KIP-447).
    """

    identity: TxnIdentity
    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    def _fields(self) -> dict[str, Any]:
        return {
            **self.identity._asdict(),
            "group_id": self.group.group_id,
            "generation_id": self.group.generation_id,
            "member_id": self.group.member_id,
            "group_instance_id": self.group.group_instance_id,
            "topics": topics_of(self.offsets),
        }

    def _result(self, message: Any) -> CommittedOffsets:
        codes = {tp: p.error_code for tp, p in partitions_in(message.topics)}
        return CommittedOffsets(codes, message.throttle_time_ms)


class TxnOffsetCommitV2Call(TxnOffsetCommitCall, versions=(5, 5)):
    """Version 5 also adds the offsets to the transaction (KIP-890)."""


@dataclass(frozen=True)
class TxnOffsetCommitByIdCall(TxnOffsetCommitV2Call, versions=(5, 6)):
    """Version 6 names topics by id (KIP-1319): offsets of a topic that was deleted do not become
    those of a new topic with its name. By hand, because kafka-python has no version 6.
    ``topic_ids``: as in :class:`~kafkaclient.wire.groups.OffsetCommitByIdCall`."""

    topic_ids: Mapping[TopicPartition, UUID]

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        if version < _FIRST_COMMIT_BY_ID:
            return super().encode(version, correlation_id, client_id)
        who, group = self.identity, self.group
        topics = topics_of(self.offsets, self.topic_ids)
        out = request(self.api_key, version, correlation_id, client_id, flexible=True)
        out += compact_string(who.transactional_id) + compact_string(group.group_id)
        out += INT64.pack(who.producer_id) + INT16.pack(who.producer_epoch)
        out += INT32.pack(group.generation_id) + compact_string(group.member_id)
        out += compact_string(group.group_instance_id) + compact_count(len(topics))
        for topic in topics:
            out += topic["topic_id"].bytes + compact_count(len(topic["partitions"]))
            for p in topic["partitions"]:
                out += INT32.pack(p["partition_index"]) + INT64.pack(p["committed_offset"])
                out += INT32.pack(p["committed_leader_epoch"])
                out += compact_string(p["committed_metadata"]) + NO_TAGS
            out += NO_TAGS
        return framed(out + NO_TAGS)

    def decode(self, version: int, payload: Buffer) -> CommittedOffsets:
        if version < _FIRST_COMMIT_BY_ID:
            return super().decode(version, payload)
        names = {topic_id.bytes: tp.topic for tp, topic_id in self.topic_ids.items()}
        reader, codes = FieldReader(payload, flexible=True), {}
        try:
            reader.tagged_fields()  # the header's
            throttle_ms = reader.int32()
            for _ in reader.array(_MIN_TOPIC):
                name = names.get(bytes(reader.take(16)), "")
                for _ in reader.array(_MIN_PARTITION):
                    partition = TopicPartition(name, reader.int32())
                    codes[partition] = reader.int16()
                    reader.tagged_fields()
                reader.tagged_fields()
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return CommittedOffsets(codes, throttle_ms)


@dataclass(frozen=True)
class EndTxnCall(CodecCall[TxnEnded], api_key=ApiKey.END_TXN, versions=(0, 4)):
    """Commits or aborts the transaction."""

    identity: TxnIdentity
    commit: bool

    def _fields(self) -> dict[str, Any]:
        return {**self.identity._asdict(), "committed": self.commit}

    def _result(self, message: Any) -> TxnEnded:
        return TxnEnded(
            message.error_code,
            or_unknown(message.producer_id),
            or_unknown(message.producer_epoch),
            message.throttle_time_ms,
        )


class EndTxnV2Call(EndTxnCall, versions=(5, 5)):
    """In version 5 the response has the next producer epoch (KIP-890)."""


@dataclass(frozen=True)
class OffsetFetchCall(CodecCall[FetchedOffsets], api_key=ApiKey.OFFSET_FETCH, versions=(7, 9)):
    """Requests a group's committed offsets. With ``require_stable`` a partition whose offset is
    part of an open transaction gets UNSTABLE_OFFSET_COMMIT (KIP-447, version 7). Without
    ``partitions``: all offsets of the group."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    require_stable: bool = True

    def _fields(self) -> dict[str, Any]:
        topics = None
        if self.partitions is not None:
            topics = [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in by_topic(self.partitions).items()
            ]
        group = {"group_id": self.group_id, "topics": topics}
        # Version 8 is the first with several groups (KIP-709).
        return {**group, "groups": [group], "require_stable": self.require_stable}

    def _result(self, message: Any) -> FetchedOffsets:
        group = message.groups[0] if message.groups else message
        offsets = {
            tp: FetchedOffset(
                p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata or ""
            )
            for tp, p in partitions_in(group.topics, self._names())
        }
        return FetchedOffsets(group.error_code, offsets, message.throttle_time_ms)

    def _names(self) -> Mapping[UUID, str]:
        return {}


@dataclass(frozen=True)
class OffsetFetchByIdCall(OffsetFetchCall, versions=(10, 10)):
    """Version 10 names topics by id: the offsets of a topic that was deleted are not those of the
    topic that has its name now. A topic that the broker does not know gets UNKNOWN_TOPIC_ID."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, UUID] = field(kw_only=True)

    def _fields(self) -> dict[str, Any]:
        topics = [
            {"topic_id": self.topic_ids[topic], "partition_indexes": numbers}
            for topic, numbers in by_topic(self.partitions).items()
        ]
        groups = [{"group_id": self.group_id, "topics": topics}]
        return {"groups": groups, "require_stable": self.require_stable}

    def _names(self) -> Mapping[UUID, str]:
        return {topic_id: topic for topic, topic_id in self.topic_ids.items()}


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
