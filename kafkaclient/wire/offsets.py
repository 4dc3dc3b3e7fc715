"""ListOffsets, versions 1 to 7: the offsets at which partitions begin, end, or reach a time.

Encoded and decoded by hand: every reader calls it, and without kafka-python's messages the import
of a reader takes half as long (see ``codec.py``). Version 2 added the isolation level and the
throttle time, 4 leader epochs, 6 is the first flexible version (KIP-482). Later versions only add
special timestamps that this client does not use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ProtocolError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey, Call, malformed
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.results import (
    INT32,
    INT64,
    NO_TAGS,
    compact_count,
    compact_string,
    framed,
    request,
    string,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.types import Buffer

LATEST_TIMESTAMP = -1
"""Requests the offset that the next record will get."""
EARLIEST_TIMESTAMP = -2
"""Requests the first offset in the log."""

_FIRST_WITH_ISOLATION = 2
_FIRST_WITH_EPOCHS = 4
_FIRST_FLEXIBLE = 6

_ANY_EPOCH = -1

# The smallest size of an element in bytes, which limits the counts that a peer can claim.
_MIN_TOPIC = 3
_MIN_PARTITION = 22


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
        flexible = version >= _FIRST_FLEXIBLE
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
                if version >= _FIRST_WITH_EPOCHS:
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
    reader = Reader(payload, flexible=version >= _FIRST_FLEXIBLE)
    reader.tagged_fields()  # of the response header
    throttle_ms = reader.int32() if version >= _FIRST_WITH_ISOLATION else 0
    found: list[PartitionOffset] = []
    for _ in reader.array(_MIN_TOPIC):
        topic = reader.string()
        for _ in reader.array(_MIN_PARTITION):
            partition, error_code = reader.int32(), reader.int16()
            timestamp, offset = reader.int64(), reader.int64()
            epoch = reader.int32() if version >= _FIRST_WITH_EPOCHS else -1
            reader.tagged_fields()
            found.append(PartitionOffset(topic, partition, error_code, offset, timestamp, epoch))
        reader.tagged_fields()
    reader.tagged_fields()
    return ListOffsetsResult(tuple(found), throttle_ms)
