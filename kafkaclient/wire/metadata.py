"""Metadata, versions 4 to 13, encoded and decoded by hand.

A producer may use ten thousand partitions, and requests their metadata every few minutes on a busy
event loop. Two shortcuts make decoding cheap. A topic whose bytes have not changed since the last
response is not decoded again (:class:`TopicCache`). Consecutive partitions with equal numbers of
replicas are unpacked together (:class:`_Shape`). Version 7 added leader epochs, 9 is the first
flexible version (KIP-482), 10 added topic ids (KIP-516), 13 the top-level error (KIP-1102). Leader
epochs before version 9 are left out, as in Java: brokers before Kafka 2.4 may send an old epoch
after they have restarted (KAFKA-9212).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING
from uuid import UUID

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import (
    INT32,
    NO_TAGS,
    ApiKey,
    BrokerInfo,
    Call,
    MetadataResult,
    PartitionView,
    TopicInfo,
    compact_count,
    compact_string,
    framed,
    malformed,
    request,
    string,
)
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

_FIRST_WITH_OFFLINE_REPLICAS = 5
_FIRST_WITH_EPOCHS = 7
_FIRST_WITH_RELIABLE_EPOCHS = 9
_FIRST_WITH_OPERATIONS = 8
_FIRST_FLEXIBLE = 9
_FIRST_WITH_TOPIC_IDS = 10
_LAST_WITH_CLUSTER_OPERATIONS = 10
_FIRST_WITH_ERROR = 13

_NO_ID = bytes(16)

# The smallest size of an element in bytes, which limits the counts that a peer can claim.
_MIN_TOPIC = 5
_MIN_PARTITION = 12
_NODE = 4

_BEFORE_NODES = 14
_MOST_NODES = 126
"""The most replicas that a compact array counts in one byte."""


class TopicCache:
    """The topics in the last responses, with their bytes. A topic with unchanged bytes is returned
    as the same object."""

    __slots__ = ("_topics", "_version")

    def __init__(self) -> None:
        self._version = 0
        self._topics: dict[str, tuple[bytes, TopicInfo]] = {}

    def forget(self, name: str) -> None:
        """Remove a topic that is not requested any more."""
        self._topics.pop(name, None)

    def at(self, data: bytes, start: int, name: str, version: int) -> tuple[int, TopicInfo] | None:
        """The position behind the topic at ``start``, and the topic; None if it has changed. The
        bytes of a topic contain their counts, so no topic's bytes are a prefix of another's."""
        known = self._topics.get(name)
        if known is None or version != self._version or not data.startswith(known[0], start):
            return None
        return start + len(known[0]), known[1]

    def keep(self, encoded: bytes, topic: TopicInfo, version: int) -> None:
        if version != self._version:  # bytes of different versions cannot be compared
            self._version = version
            self._topics.clear()
        self._topics[topic.name] = encoded, topic


@dataclass(frozen=True)
class MetadataCall(Call[MetadataResult], api_key=ApiKey.METADATA, versions=(4, 13)):
    """Requests brokers, topics and leaders. ``topics`` None means all topics, ``()`` no topic.

    Topics that are unchanged in ``cache`` are not decoded again.
    """

    # Version 4 is the first that can forbid the broker to create missing topics.
    topics: tuple[str, ...] | None = ()
    allow_auto_topic_creation: bool = True
    cache: TopicCache | None = field(default=None, repr=False, compare=False)

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        flexible = version >= _FIRST_FLEXIBLE
        tags = NO_TAGS if flexible else b""
        frame = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        count = compact_count if flexible else INT32.pack
        frame += count(-1 if self.topics is None else len(self.topics))
        before = _NO_ID if version >= _FIRST_WITH_TOPIC_IDS else b""
        text = compact_string if flexible else string
        for topic in self.topics or ():
            frame += before + text(topic) + tags
        frame.append(self.allow_auto_topic_creation)
        if _FIRST_WITH_OPERATIONS <= version <= _LAST_WITH_CLUSTER_OPERATIONS:
            frame.append(0)  # without the operations that are permitted on the cluster
        if version >= _FIRST_WITH_OPERATIONS:
            frame.append(0)  # without the operations that are permitted on the topics
        return framed(frame + tags)

    def decode(self, version: int, payload: Buffer) -> MetadataResult:
        try:
            return self._decode(version, bytes(payload))
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error

    def _decode(self, version: int, data: bytes) -> MetadataResult:
        reader = FieldReader(data, flexible=version >= _FIRST_FLEXIBLE)
        reader.tagged_fields()  # of the response header
        throttle_ms = reader.int32()
        brokers = BrokerInfo.read_array(reader)
        cluster_id = reader.nullable_string()
        controller_id = reader.int32()
        cache = self.cache or TopicCache()
        # Only requested topics are kept: otherwise the memory would grow without limit.
        requested = None if self.topics is None else frozenset(self.topics)
        topics = [_topic(reader, data, version, cache, requested) for _ in reader.array(_MIN_TOPIC)]
        if _FIRST_WITH_OPERATIONS <= version <= _LAST_WITH_CLUSTER_OPERATIONS:
            reader.int32()
        error_code = reader.int16() if version >= _FIRST_WITH_ERROR else 0
        reader.tagged_fields()
        # The name is null if the request named the topic by id, which this client never does.
        known = tuple(topic for topic in topics if topic is not None)
        return MetadataResult(brokers, cluster_id, controller_id, known, throttle_ms, error_code)


def _topic(
    reader: FieldReader,
    data: bytes,
    version: int,
    cache: TopicCache,
    requested: frozenset[str] | None,
) -> TopicInfo | None:
    start = reader.position
    error_code = reader.int16()
    name = reader.nullable_string()
    known = None if name is None else cache.at(data, start, name, version)
    if known is not None:
        reader.position, topic = known
        return topic
    topic_id = None
    if version >= _FIRST_WITH_TOPIC_IDS:
        encoded_id = bytes(reader.take(len(_NO_ID)))
        if encoded_id != _NO_ID:
            topic_id = UUID(bytes=encoded_id)
    is_internal = reader.int8() != 0
    partitions = _partitions(reader, version)
    if version >= _FIRST_WITH_OPERATIONS:
        reader.int32()
    reader.tagged_fields()
    if name is None:
        return None
    topic = TopicInfo(name, error_code, topic_id, is_internal, partitions)
    if requested is None or name in requested:
        cache.keep(data[start : reader.position], topic, version)
    return topic


_Nodes = dict[bytes, tuple[tuple[int, ...], tuple[int, ...]]]
"""Encoded bytes -> replicas and in-sync replicas; many partitions have the same."""


def _partitions(reader: FieldReader, version: int) -> tuple[PartitionView, ...]:
    count = len(reader.array(_MIN_PARTITION))
    found: list[PartitionView] = []
    nodes: _Nodes = {}
    while len(found) < count:
        shape = _shape_at(reader, version)
        if shape is None:
            found.append(_partition(reader, version))
        else:
            shape.unpack(reader, count - len(found), found, nodes)
    return tuple(found)


def _partition(reader: FieldReader, version: int) -> PartitionView:
    """The next partition, whatever its shape, field by field."""
    reader.int16()  # the error has no information that the leader does not have
    partition, leader = reader.int32(), reader.int32()
    epoch = reader.int32() if version >= _FIRST_WITH_EPOCHS else -1
    if version < _FIRST_WITH_RELIABLE_EPOCHS:
        epoch = -1
    replicas = tuple([reader.int32() for _ in reader.array(_NODE)])
    isr = tuple([reader.int32() for _ in reader.array(_NODE)])
    if version >= _FIRST_WITH_OFFLINE_REPLICAS:
        reader.advance(_NODE * len(reader.array(_NODE)))
    reader.tagged_fields()
    return PartitionView(partition, leader, epoch, replicas, isr)


class _Shape:
    """The layout, from version 7 on, of partitions without tagged fields that have these numbers of
    replicas, in-sync and offline replicas. Consecutive partitions are unpacked together."""

    __slots__ = ("_counts", "_expected", "_flexible", "_isr", "_nodes", "_partition", "_replicas")

    def __init__(self, flexible: bool, *lengths: int) -> None:
        self._flexible = flexible
        layout, counts, expected, slices = ">", [], [], []
        fields = 0
        for length in lengths:
            layout += f"{'B' if flexible else 'i'}{length}i"
            counts.append(fields)
            expected.append(length + flexible)
            slices.append(slice(fields + 1, fields + 1 + length))
            fields += 1 + length
        if flexible:
            layout += "B"
            counts.append(fields)
            expected.append(0)  # tagged fields
        self._replicas, self._isr = slices[:2]
        self._counts, self._expected = itemgetter(*counts), tuple(expected)
        self._nodes = struct.Struct(layout)
        # The first two bytes are the error, as in _partition().
        self._partition = struct.Struct(f">2xiii{self._nodes.size}s")

    def unpack(
        self, reader: FieldReader, most: int, found: list[PartitionView], nodes: _Nodes
    ) -> None:
        """Add at most ``most`` partitions to ``found``, until one has another shape. The first
        partition has this shape."""
        size, start, before = self._partition.size, reader.position, len(found)
        most = min(most, reader.remaining // size)
        run = self._partition.iter_unpack(reader.data[start : start + most * size])
        new, add = tuple.__new__, found.append  # half the time of the constructor
        for partition, leader, epoch, encoded in run:
            both = nodes.get(encoded)
            if both is None:
                both = self._replicas_in(encoded)
                if both is None:
                    break
                nodes[encoded] = both
            # All flexible versions have reliable epochs.
            add(new(PartitionView, (partition, leader, epoch if self._flexible else -1, *both)))
        reader.advance(size * (len(found) - before))

    def _replicas_in(self, encoded: bytes) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Replicas and in-sync replicas; None if the bytes have another shape."""
        fields = self._nodes.unpack(encoded)
        if self._counts(fields) != self._expected:
            return None
        return fields[self._replicas], fields[self._isr]


_shape = lru_cache(maxsize=256)(_Shape)


def _shape_at(reader: FieldReader, version: int) -> _Shape | None:
    """The shape of the next partition. None if the partition is cut off, has tagged fields or an
    unusual number of replicas, or the version is older than 7."""
    if version < _FIRST_WITH_EPOCHS:
        return None
    data, end, flexible = reader.data, reader.end, version >= _FIRST_FLEXIBLE
    at = reader.position + _BEFORE_NODES
    lengths = []
    for _ in ("replicas", "in-sync replicas", "offline replicas"):
        if at + (1 if flexible else INT32.size) > end:
            return None
        length = data[at] - 1 if flexible else INT32.unpack_from(data, at)[0]
        if not 0 <= length <= _MOST_NODES:
            return None
        lengths.append(length)
        at += (1 if flexible else INT32.size) + _NODE * length
    if at + flexible > end or (flexible and data[at] != 0):
        return None
    return _shape(flexible, *lengths)
