"""The requests that move leaders and grow topics, each on its own connection.

aiokafka's admin client cannot elect leaders, and hangs while the broker that it asks is paused. The
requests here go to a broker that is up, which forwards them to the controller.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import KafkaError
from kafkaclient.wire.api import INT32, NO_TAGS, ApiKey, compact_string, uvarint
from kafkaclient.wire.metadata import MetadataCall
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["add_partitions", "elect_preferred", "leaders", "reassign"]

Address = tuple[str, int]

_CLIENT_ID = "kafkaclient-chaos"
_HEADER = struct.Struct(">hhih")
_TIMEOUT_S = 10.0
_MAX_FRAME = 8 << 20
_NULL = uvarint(0)
_METADATA_VERSION = 12


async def reassign(address: Address, replicas: Mapping[str, Mapping[int, Sequence[int]]]) -> None:
    """Give partitions these replicas, of which the first is the preferred leader (KIP-455).

    Raises KafkaError if the cluster refuses, OSError or TimeoutError if it does not answer.
    """
    topics = [
        compact_string(topic)
        + _array(
            INT32.pack(partition) + _array(map(INT32.pack, nodes)) + NO_TAGS
            for partition, nodes in partitions.items()
        )
        + NO_TAGS
        for topic, partitions in replicas.items()
    ]
    body = INT32.pack(_milliseconds()) + _array(topics) + NO_TAGS
    reader = await _ask(address, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
    reader.int32()  # throttle time
    _check(reader.int16(), "moving leaders", reader.nullable_string())


async def elect_preferred(address: Address, partitions: Mapping[str, Sequence[int]]) -> None:
    """Make the preferred replicas leaders (KIP-183, KIP-460), except for those that are down.

    Raises as :func:`reassign`.
    """
    topics = [
        compact_string(topic) + _array(map(INT32.pack, numbers)) + NO_TAGS
        for topic, numbers in partitions.items()
    ]
    body = b"\x00" + _array(topics) + INT32.pack(_milliseconds()) + NO_TAGS
    reader = await _ask(address, ApiKey.ELECT_LEADERS, 2, body)
    reader.int32()  # throttle time
    _check(reader.int16(), "electing preferred leaders", None)


async def add_partitions(address: Address, topics: Mapping[str, int]) -> None:
    """Raise the number of partitions of topics to these. Raises as :func:`reassign`."""
    wanted = [
        compact_string(topic) + INT32.pack(count) + _NULL + NO_TAGS
        for topic, count in topics.items()
    ]
    body = _array(wanted) + INT32.pack(_milliseconds()) + b"\x00" + NO_TAGS
    reader = await _ask(address, ApiKey.CREATE_PARTITIONS, 2, body)
    reader.int32()  # throttle time
    for _ in reader.array(5):
        topic, code = reader.string(), reader.int16()
        _check(code, f"adding partitions to {topic}", reader.nullable_string())
        reader.tagged_fields()


async def leaders(address: Address, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """The leader of each (topic, partition) that this broker knows; -1: the partition has none.

    Raises OSError, TimeoutError or KafkaError if the broker does not answer.
    """
    call = MetadataCall(tuple(topics), allow_auto_topic_creation=False)
    frame = call.encode(_METADATA_VERSION, 1, _CLIENT_ID)
    payload = await _exchange(address, frame)
    result = call.decode(_METADATA_VERSION, payload[4:])
    return {
        (topic.name, partition.partition): partition.leader
        for topic in result.topics
        if topic.name is not None
        for partition in topic.partitions
    }


async def _ask(address: Address, api: ApiKey, version: int, body: bytes) -> FieldReader:
    """The response of a request with a flexible version, positioned at its body."""
    client = _CLIENT_ID.encode()
    head = _HEADER.pack(api, version, 1, len(client)) + client + NO_TAGS
    frame = INT32.pack(len(head) + len(body)) + head + body
    reader = FieldReader(await _exchange(address, frame), flexible=True)
    reader.int32()  # correlation id
    reader.tagged_fields()
    return reader


async def _exchange(address: Address, frame: bytes) -> bytes:
    async with asyncio.timeout(_TIMEOUT_S):
        try:
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(frame)
                (size,) = INT32.unpack(await reader.readexactly(INT32.size))
                if not 0 < size < _MAX_FRAME:
                    raise KafkaError(f"{address[0]}:{address[1]} sent a frame of {size} bytes")
                return await reader.readexactly(size)
            finally:
                writer.close()
        except EOFError as error:
            raise KafkaError(f"{address[0]}:{address[1]} closed the connection") from error


def _array(entries: Iterable[bytes]) -> bytes:
    items = list(entries)
    return uvarint(len(items) + 1) + b"".join(items)


def _milliseconds() -> int:
    return int(_TIMEOUT_S * 1000)


def _check(code: int, what: str, detail: str | None) -> None:
    if code:
        raise broker_error(code, what, detail)
