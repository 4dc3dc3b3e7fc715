"""Asks a broker for the members of its cluster with a minimal Metadata request.

The request is encoded by hand, because importing the codecs would delay the start of the brokers.
"""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

from kafkaclient.testing.settings import HOST
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.reader import Reader

__all__ = ["Membership", "membership", "parse_membership"]

_VERSION = 4
_TIMEOUT_S = 2.0
_MAX_FRAME = 1 << 20
# API key, version, correlation id, null client id, no topics, no topic creation.
_REQUEST = struct.pack(">hhihi?", ApiKey.METADATA, _VERSION, 0, -1, 0, False)
_SIZE = struct.Struct(">i")


class Membership(NamedTuple):
    """The cluster's id and the brokers that are up (registered and not fenced)."""

    cluster_id: str | None
    brokers: frozenset[int]


async def membership(port: int) -> Membership | None:
    """The answer of the broker at this port on 127.0.0.1; None if it does not answer."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(_SIZE.pack(len(_REQUEST)) + _REQUEST)
                (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                if not 0 < size < _MAX_FRAME:
                    return None
                return parse_membership(await reader.readexactly(size))
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


def parse_membership(response: bytes) -> Membership:
    """Parse a Metadata response of version 4, starting at its correlation id."""
    reader = Reader(response, flexible=False)
    reader.advance(8)  # correlation id, throttle time
    brokers = set()
    for _ in reader.array(12):
        brokers.add(reader.int32())
        reader.string()  # host
        reader.int32()  # port
        reader.nullable_string()  # rack
    return Membership(reader.nullable_string(), frozenset(brokers))
