"""Fetch, versions 4 to 16, and ListOffsets, versions 1 to 7, encoded and decoded by hand.

Records in a response to Fetch are not copied. Version 9 added leader epochs (KIP-320), 11 the rack
and the preferred replica (KIP-392), 12 is the first flexible version (KIP-482) and finds diverging
logs (KIP-595), 13 names topics by id (KIP-516), 16 added the addresses of new leaders (KIP-951).
Version 7 added fetch sessions (KIP-227).

Every reader calls ListOffsets, and without kafka-python's messages the import of a reader takes
half as long (see ``codec.py``). Version 2 added the isolation level and the throttle time, 4 leader
epochs, 6 is the first flexible version (KIP-482). Later versions only add special timestamps that
this client does not use.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ProtocolError, UnsupportedVersionError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import (
    INT32,
    INT64,
    NO_TAGS,
    ApiKey,
    BrokerInfo,
    Call,
    compact_count,
    compact_string,
    framed,
    malformed,
    request,
    string,
)
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.types import Buffer


FETCH_FIRST_WITH_TOPIC_IDS = 13
"""Earlier versions name topics by name."""

_FIRST_WITH_LOG_START = 5
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_EPOCHS = 9
_FIRST_WITH_RACKS = 11
_FIRST_FLEXIBLE = 12
_LAST_WITH_REPLICA_ID = 14
_FIRST_WITH_ENDPOINTS = 16

_ID_SIZE = 16
_CONSUMER = -1
_DIVERGING_TAG, _LEADER_TAG, _ENDPOINTS_TAG = 0, 1, 0

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")

# The smallest size of an element in bytes, which limits the counts that a peer can claim.
_MIN_TOPIC = 2
_MIN_PARTITION = 23
_MIN_ABORTED = 16


class FetchPartition(NamedTuple):
    """The partition to fetch from ``offset`` on, up to about ``max_bytes``; a ``leader_epoch`` of
    -1 is not checked by the broker. ``last_epoch``: the leader epoch of the record before
    ``offset``. If the log has another record there, the response has a ``diverging_end``."""

    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_epoch: int = -1


class FetchTopic(NamedTuple):
    """The partitions to fetch of a topic; ``topic_id`` (16 bytes) is None without topic ids."""

    name: str
    topic_id: bytes | None
    partitions: Sequence[FetchPartition]


class SessionPart(NamedTuple):
    """What a request tells of its fetch session; by default there is none. Epoch 0 asks for a new
    one. ``forgotten``: partitions to remove from it. ``topics``: all of it, of which the request
    lists what has changed; None: the request lists all."""

    session_id: int = 0
    epoch: int = -1
    forgotten: Sequence[FetchTopic] = ()
    topics: Sequence[FetchTopic] | None = None


NO_SESSION = SessionPart()


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its producer, and the offset of its first record."""

    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    """The response for one partition.

    ``records`` has whole batches, and perhaps the beginning of one more. It is a view of the
    response and keeps it alive. Unknown offsets are -1. ``preferred_replica`` is -1 unless the
    client should fetch from another broker; the leader is -1 unless there is a newer one.
    ``diverging_end`` is -1 unless the log was truncated: from there on it has other records than
    those that were fetched.
    """

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    preferred_replica: int
    records: memoryview
    leader_id: int
    leader_epoch: int
    diverging_end: int = -1


class FetchResult(NamedTuple):
    """The partitions, and the addresses of new leaders. ``size``: bytes of the whole response.
    ``session_id`` is 0 without a session."""

    partitions: list[FetchedPartition]
    error_code: int
    throttle_ms: int
    endpoints: tuple[BrokerInfo, ...]
    size: int
    session_id: int = 0


@dataclass(frozen=True)
class FetchCall(Call[FetchResult], api_key=ApiKey.FETCH, versions=(4, 16)):
    """Reads records from the partitions' leader, or from a follower that the leader has named.

    The broker waits up to ``max_wait_ms`` for ``min_bytes``. The response has at most
    ``max_bytes``, except that the first batch is always sent whole (KIP-74).
    """

    topics: tuple[FetchTopic, ...]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    rack: str = ""
    session: SessionPart = NO_SESSION

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """Raises UnsupportedVersionError for a version outside the range, and for a version with
        topic ids if a topic has no id."""
        self._check_version(version)
        flexible = version >= _FIRST_FLEXIBLE
        count = compact_count if flexible else INT32.pack
        tags = NO_TAGS if flexible else b""
        out = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        if version <= _LAST_WITH_REPLICA_ID:
            out += INT32.pack(_CONSUMER)
        out += _LIMITS.pack(self.max_wait_ms, self.min_bytes, self.max_bytes, self.read_committed)
        if version >= _FIRST_WITH_SESSIONS:
            out += _SESSION.pack(self.session.session_id, self.session.epoch)
        out += count(len(self.topics))
        for topic in self.topics:
            out += self._named(topic, version)
            out += count(len(topic.partitions))
            for partition in topic.partitions:
                out += _partition_wanted(partition, version)
                out += tags
            out += tags
        if version >= _FIRST_WITH_SESSIONS:
            out += count(len(self.session.forgotten))
            for topic in self.session.forgotten:
                out += self._named(topic, version) + count(len(topic.partitions))
                out += b"".join(INT32.pack(each.partition) for each in topic.partitions) + tags
        if version >= _FIRST_WITH_RACKS:
            out += compact_string(self.rack) if flexible else string(self.rack)
        return framed(out + tags)

    def decode(self, version: int, payload: Buffer) -> FetchResult:
        """The values of a response, without topics whose id is not in the request or session."""
        self._check_version(version)
        reader = FieldReader(payload, flexible=version >= _FIRST_FLEXIBLE)
        reader.tagged_fields()  # of the response header
        throttle_ms = reader.int32()
        error_code = session_id = 0
        if version >= _FIRST_WITH_SESSIONS:
            error_code, session_id = reader.int16(), reader.int32()
        topics = self.topics if self.session.topics is None else self.session.topics
        names = {topic.topic_id: topic.name for topic in topics if topic.topic_id is not None}
        partitions: list[FetchedPartition] = []
        for _ in reader.array(_MIN_TOPIC):
            topic = _name_of(reader, version, names)
            found = [_partition(reader, version, topic or "") for _ in reader.array(_MIN_PARTITION)]
            partitions += found if topic is not None else []
            reader.tagged_fields()
        tags = reader.tagged_fields()
        hints = tags.get(_ENDPOINTS_TAG) if version >= _FIRST_WITH_ENDPOINTS else None
        endpoints = BrokerInfo.read_tag(hints)
        return FetchResult(partitions, error_code, throttle_ms, endpoints, len(payload), session_id)

    def _check_version(self, version: int) -> None:
        if not self.min_version <= version <= self.max_version:
            raise UnsupportedVersionError(
                f"Fetch version {version}: this client supports {self.min_version} to "
                f"{self.max_version}"
            )

    @staticmethod
    def _named(topic: FetchTopic, version: int) -> bytes:
        if version < FETCH_FIRST_WITH_TOPIC_IDS:
            named = compact_string if version >= _FIRST_FLEXIBLE else string
            return named(topic.name)
        if topic.topic_id is None:
            raise UnsupportedVersionError(
                f"Fetch version {version} names topics by id, and topic {topic.name!r} has none"
            )
        return topic.topic_id


class FetchByNameCall(FetchCall, versions=(4, FETCH_FIRST_WITH_TOPIC_IDS - 1)):
    """Fetch in the versions that name topics by name."""


def _partition_wanted(wanted: FetchPartition, version: int) -> bytes:
    out = INT32.pack(wanted.partition)
    if version >= _FIRST_WITH_EPOCHS:
        out += INT32.pack(wanted.leader_epoch)
    out += INT64.pack(wanted.offset)
    if version >= _FIRST_FLEXIBLE:
        out += INT32.pack(wanted.last_epoch)
    if version >= _FIRST_WITH_LOG_START:
        out += INT64.pack(-1)  # the log start offset of a follower
    return out + INT32.pack(wanted.max_bytes)


def _name_of(reader: FieldReader, version: int, names: Mapping[bytes, str]) -> str | None:
    if version < FETCH_FIRST_WITH_TOPIC_IDS:
        return reader.string()
    return names.get(bytes(reader.take(_ID_SIZE)))


def _partition(reader: FieldReader, version: int, topic: str) -> FetchedPartition:
    partition = reader.int32()
    error_code = reader.int16()
    high_watermark = reader.int64()
    last_stable_offset = reader.int64()
    log_start_offset = reader.int64() if version >= _FIRST_WITH_LOG_START else -1
    aborted = tuple(_aborted(reader) for _ in reader.array(_MIN_ABORTED))
    preferred_replica = reader.int32() if version >= _FIRST_WITH_RACKS else -1
    size = reader.uvarint() - 1 if reader.flexible else reader.int32()
    records = reader.take(max(size, 0))
    leader_id = leader_epoch = -1
    tags = reader.tagged_fields()
    if _LEADER_TAG in tags:
        leader = FieldReader(tags[_LEADER_TAG], flexible=True)
        leader_id, leader_epoch = leader.int32(), leader.int32()
    diverging_end = -1
    if _DIVERGING_TAG in tags:
        diverging = FieldReader(tags[_DIVERGING_TAG], flexible=True)
        diverging.int32()  # the epoch of the records before the end
        diverging_end = diverging.int64()
    return FetchedPartition(
        topic,
        partition,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        preferred_replica,
        records,
        leader_id,
        leader_epoch,
        diverging_end,
    )


def _aborted(reader: FieldReader) -> AbortedTransaction:
    transaction = AbortedTransaction(reader.int64(), reader.int64())
    reader.tagged_fields()
    return transaction


LATEST_TIMESTAMP = -1
"""Requests the offset that the next record will get."""
EARLIEST_TIMESTAMP = -2
"""Requests the first offset in the log."""

_FIRST_WITH_ISOLATION = 2
_FIRST_LIST_WITH_EPOCHS = 4
_FIRST_FLEXIBLE_LIST = 6

_ANY_EPOCH = -1

# The smallest size of an element in bytes, which limits the counts that a peer can claim.
_MIN_LISTED_TOPIC = 3
_MIN_LISTED_PARTITION = 22


class PartitionOffset(NamedTuple):
    """The offset found in one partition; -1 if there is none."""

    topic: str
    partition: int
    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


class ListOffsetsResult(NamedTuple):
    """One entry per partition of the request."""

    partitions: tuple[PartitionOffset, ...]
    throttle_ms: int


@dataclass(frozen=True)
class ListOffsetsCall(Call[ListOffsetsResult], api_key=ApiKey.LIST_OFFSETS, versions=(1, 7)):
    """Offsets by timestamp (default: the end). Must go to the partitions' leader.

    With ``read_committed`` the end is where the oldest open transaction begins. With ``replica_id``
    -2 any replica answers, with the beginning or end of its own log. ``epochs``: the leader epochs
    of the metadata (KIP-320). A broker with another epoch refuses instead of answering with offsets
    of a log that is not the leader's any more.
    """

    partitions: Mapping[str, Sequence[int]]
    timestamp: int = LATEST_TIMESTAMP
    read_committed: bool = False
    replica_id: int = -1
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        flexible = version >= _FIRST_FLEXIBLE_LIST
        tags = NO_TAGS if flexible else b""
        text = compact_string if flexible else string
        count = compact_count if flexible else INT32.pack
        wanted = INT64.pack(self.timestamp) + tags
        frame = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        frame += INT32.pack(self.replica_id)
        if version >= _FIRST_WITH_ISOLATION:
            frame.append(self.read_committed)
        frame += count(len(self.partitions))
        for topic, partitions in self.partitions.items():
            frame += text(topic) + count(len(partitions))
            for partition in partitions:
                frame += INT32.pack(partition)
                if version >= _FIRST_LIST_WITH_EPOCHS:
                    tp = TopicPartition(topic, partition)
                    frame += INT32.pack(self.epochs.get(tp, _ANY_EPOCH))
                frame += wanted
            frame += tags
        return framed(frame + tags)

    def decode(self, version: int, payload: Buffer) -> ListOffsetsResult:
        try:
            return _decode(version, payload)
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error


def _decode(version: int, payload: Buffer) -> ListOffsetsResult:
    reader = FieldReader(payload, flexible=version >= _FIRST_FLEXIBLE_LIST)
    reader.tagged_fields()  # of the response header
    throttle_ms = reader.int32() if version >= _FIRST_WITH_ISOLATION else 0
    found: list[PartitionOffset] = []
    for _ in reader.array(_MIN_LISTED_TOPIC):
        topic = reader.string()
        for _ in reader.array(_MIN_LISTED_PARTITION):
            partition, error_code = reader.int32(), reader.int16()
            timestamp, offset = reader.int64(), reader.int64()
            epoch = reader.int32() if version >= _FIRST_LIST_WITH_EPOCHS else -1
            reader.tagged_fields()
            found.append(PartitionOffset(topic, partition, error_code, offset, timestamp, epoch))
        reader.tagged_fields()
    reader.tagged_fields()
    return ListOffsetsResult(tuple(found), throttle_ms)
