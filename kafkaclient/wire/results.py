"""The values in responses to Metadata and Produce, and the bytes of hand-made requests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.wire.api import BrokerInfo


# --- Writes the Kafka protocol's primitive types --------------------------------------------------

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

NO_TAGS = b"\x00"
"""The end of a struct without tagged fields (KIP-482)."""

_REQUEST_HEADER = struct.Struct(">hhi")

# The same few texts and numbers are written in every request.
_cached = lru_cache(maxsize=1024)


def request(
    api_key: int, version: int, correlation_id: int, client_id: str, *, flexible: bool
) -> bytearray:
    """The beginning of a request: 4 bytes for the frame's size, and the header."""
    frame = bytearray(INT32.size)
    frame += _REQUEST_HEADER.pack(api_key, version, correlation_id)
    frame += string(client_id)  # never compact: see the schema of RequestHeader
    return frame + NO_TAGS if flexible else frame


def framed(request: bytearray) -> bytes:
    """The request, with its size in the first 4 bytes."""
    INT32.pack_into(request, 0, len(request) - INT32.size)
    return bytes(request)


@_cached
def string(text: str | None) -> bytes:
    """A string with a length of 2 bytes; raises ValueError for more than 32767 bytes."""
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"string of {len(encoded)} bytes; at most 32767 fit")
    return INT16.pack(len(encoded)) + encoded


@_cached
def compact_string(text: str | None) -> bytes:
    if text is None:
        return uvarint(0)
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


@_cached
def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_count(elements: int) -> bytes:
    """The length of an array in a flexible version (KIP-482); -1: the array is null."""
    return uvarint(elements + 1)


# --- The values in responses to Metadata and Produce ----------------------------------------------


class PartitionView(NamedTuple):
    """A partition and its leader; ``leader`` is -1 if there is none. ``leader_epoch`` is -1 if the
    broker that sent the metadata does not know epochs."""

    partition: int
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic in the metadata. ``topic_id`` is None before Kafka 2.8 (Metadata v10)."""

    name: str
    error_code: int
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionView, ...]


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """The response to Metadata; ``error_code`` is 0 before version 13 (KIP-1102)."""

    brokers: tuple[BrokerInfo, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicInfo, ...]
    throttle_ms: int
    error_code: int = 0


class RecordError(NamedTuple):
    """A record that the broker rejected: its index in the batch, and the broker's reason."""

    batch_index: int
    message: str | None


class PartitionResult(NamedTuple):
    """The outcome of one partition's batch.

    ``base_offset`` is -1 unless the batch was written. ``log_append_time_ms`` is -1 unless the
    topic has ``message.timestamp.type=LogAppendTime``. ``leader_id`` and ``leader_epoch`` are -1
    unless the broker knows a newer leader (version 10 on).
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[RecordError, ...]
    error_message: str | None
    leader_id: int
    leader_epoch: int


class ProduceResult(NamedTuple):
    """The outcome of each partition, and the addresses of new leaders."""

    partitions: list[PartitionResult]
    throttle_ms: int
    endpoints: tuple[BrokerInfo, ...]
