"""The calls of a transactional producer (KIP-98, KIP-447, KIP-890), with their answers.

Version ranges end where this client stops, not where the codec does: AddPartitionsToTxn from 4 on
is spoken between brokers only, OffsetFetch from 10 on names topics by id.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall, InitProducerIdCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AddOffsetsToTxnCall",
    "AddPartitionsToTxnCall",
    "CoordinatorFound",
    "CoordinatorKind",
    "EndTxnCall",
    "EndTxnV2Call",
    "FetchedOffset",
    "FetchedOffsets",
    "FindCoordinatorCall",
    "InitTransactionsCall",
    "OffsetFetchCall",
    "PartitionCodes",
    "TxnEnded",
    "TxnIdentity",
    "TxnOffsetCommitCall",
    "TxnOffsetCommitV2Call",
]

_FIRST_BATCHED = 4
_NOT_ATTEMPTED = 55
_FIRST_FETCH_OF_GROUPS = 8


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates; Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorFound(NamedTuple):
    """The broker that coordinates a group or a transactional id."""

    error_code: int
    error_message: str | None
    node_id: int
    throttle_ms: int = 0


class PartitionCodes(NamedTuple):
    """An error code for each partition asked about; 0 is none."""

    codes: Mapping[TopicPartition, int]
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The first error met. OPERATION_NOT_ATTEMPTED only says that another one failed."""
        failed = [code for code in self.codes.values() if code]
        return min(failed, key=lambda code: code == _NOT_ATTEMPTED, default=0)


class TxnEnded(NamedTuple):
    """The answer to EndTxn; the identity to go on with is -1 before version 5 (KIP-890)."""

    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_ms: int = 0


class FetchedOffset(NamedTuple):
    """A group's committed offset of one partition; ``offset`` is -1 when there is none."""

    error_code: int
    offset: int
    leader_epoch: int
    metadata: str


class FetchedOffsets(NamedTuple):
    """The answer to OffsetFetch."""

    group_error_code: int
    offsets: Mapping[TopicPartition, FetchedOffset]
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The group's error, else the first of a partition."""
        codes = (self.group_error_code, *(o.error_code for o in self.offsets.values()))
        return next((code for code in codes if code), 0)


class TxnIdentity(NamedTuple):
    """Who asks: every call within a transaction carries it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class FindCoordinatorCall(CodecCall[CoordinatorFound]):
    """Who coordinates a group or a transactional id; any broker knows."""

    api_key: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR
    min_version: ClassVar[int] = 1
    max_version: ClassVar[int] = 5
    kind: CoordinatorKind
    key: str

    def _fields(self, version: int) -> dict[str, Any]:
        if version >= _FIRST_BATCHED:
            return {"key_type": int(self.kind), "coordinator_keys": [self.key]}
        return {"key_type": int(self.kind), "key": self.key}

    def _result(self, message: Any) -> CoordinatorFound:
        found = message.coordinators[0] if message.coordinators else message
        return CoordinatorFound(
            found.error_code, found.error_message, found.node_id, message.throttle_time_ms
        )


@dataclass(frozen=True, slots=True)
class InitTransactionsCall(InitProducerIdCall):
    """InitProducerId with a transactional id: ends what an older instance left open, and fences it.

    Version 3 can raise the epoch of the own identity (KIP-360), which recovery needs.
    """

    min_version: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnCall(CodecCall[PartitionCodes]):
    """Make partitions part of the transaction before anything is written to them (not with
    transactions v2, where Produce does it)."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 3
    identity: TxnIdentity
    partitions: tuple[TopicPartition, ...]

    def _fields(self, _version: int) -> dict[str, Any]:
        identity = self.identity
        return {
            "v3_and_below_transactional_id": identity.transactional_id,
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.producer_epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": numbers}
                for topic, numbers in _by_topic(self.partitions).items()
            ],
        }

    def _result(self, message: Any) -> PartitionCodes:
        codes = {
            TopicPartition(topic.name, p.partition_index): p.partition_error_code
            for topic in message.results_by_topic_v3_and_below
            for p in topic.results_by_partition
        }
        return PartitionCodes(codes, message.throttle_time_ms)


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnCall(CodecCall[TxnEnded]):
    """Make a group's offsets part of the transaction (not with transactions v2)."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 4
    identity: TxnIdentity
    group_id: str

    def _fields(self, _version: int) -> dict[str, Any]:
        return {**self.identity._asdict(), "group_id": self.group_id}

    def _result(self, message: Any) -> TxnEnded:
        return TxnEnded(message.error_code, -1, -1, message.throttle_time_ms)


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitCall(CodecCall[PartitionCodes]):
    """Commit a group's offsets with the transaction that they were made part of.

    Version 3 carries the member and its generation, so that a group fences those it has given up
    on (KIP-447).
    """

    api_key: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT
    min_version: ClassVar[int] = 3
    max_version: ClassVar[int] = 4
    identity: TxnIdentity
    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    def _fields(self, _version: int) -> dict[str, Any]:
        topics = _by_topic(self.offsets)
        return {
            **self.identity._asdict(),
            "group_id": self.group.group_id,
            "generation_id": self.group.generation_id,
            "member_id": self.group.member_id,
            "group_instance_id": self.group.group_instance_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        self._partition(TopicPartition(topic, number)) for number in numbers
                    ],
                }
                for topic, numbers in topics.items()
            ],
        }

    def _partition(self, tp: TopicPartition) -> dict[str, Any]:
        offset = self.offsets[tp]
        return {
            "partition_index": tp.partition,
            "committed_offset": offset.offset,
            "committed_leader_epoch": offset.leader_epoch,
            "committed_metadata": offset.metadata,
        }

    def _result(self, message: Any) -> PartitionCodes:
        codes = {
            TopicPartition(topic.name, p.partition_index): p.error_code
            for topic in message.topics
            for p in topic.partitions
        }
        return PartitionCodes(codes, message.throttle_time_ms)


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitV2Call(TxnOffsetCommitCall):
    """By version 5 the offsets become part of the transaction with this call (KIP-890)."""

    min_version: ClassVar[int] = 5
    max_version: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class EndTxnCall(CodecCall[TxnEnded]):
    """Commit or abort."""

    api_key: ClassVar[ApiKey] = ApiKey.END_TXN
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 4
    identity: TxnIdentity
    commit: bool

    def _fields(self, _version: int) -> dict[str, Any]:
        return {**self.identity._asdict(), "committed": self.commit}

    def _result(self, message: Any) -> TxnEnded:
        return TxnEnded(
            message.error_code,
            -1 if message.producer_id is None else message.producer_id,
            -1 if message.producer_epoch is None else message.producer_epoch,
            message.throttle_time_ms,
        )


@dataclass(frozen=True, slots=True)
class EndTxnV2Call(EndTxnCall):
    """By version 5 the transaction ends with a new epoch (KIP-890)."""

    min_version: ClassVar[int] = 5
    max_version: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class OffsetFetchCall(CodecCall[FetchedOffsets]):
    """A group's committed offsets. ``require_stable``: an offset that an open transaction is about
    to change is answered with UNSTABLE_OFFSET_COMMIT (KIP-447, version 7)."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH
    min_version: ClassVar[int] = 7
    max_version: ClassVar[int] = 9
    group_id: str
    partitions: tuple[TopicPartition, ...]
    require_stable: bool = True

    def _fields(self, version: int) -> dict[str, Any]:
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in _by_topic(self.partitions).items()
        ]
        fields: dict[str, Any] = {"require_stable": self.require_stable}
        if version < _FIRST_FETCH_OF_GROUPS:
            return fields | {"group_id": self.group_id, "topics": topics}
        group = {"group_id": self.group_id, "member_id": None, "member_epoch": -1}
        return fields | {"groups": [group | {"topics": topics}]}

    def _result(self, message: Any) -> FetchedOffsets:
        group = message.groups[0] if message.groups else message
        offsets = {
            TopicPartition(topic.name, p.partition_index): FetchedOffset(
                p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata or ""
            )
            for topic in group.topics
            for p in topic.partitions
        }
        return FetchedOffsets(group.error_code, offsets, message.throttle_time_ms)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return dict(topics)
