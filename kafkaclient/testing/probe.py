"""Requests from a broker the members of its cluster."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kafkaclient.testing.settings import HOST
from kafkaclient.wire.metadata import MetadataCall

_CALL = MetadataCall(topics=(), allow_auto_topic_creation=False)
_VERSION = 4
_TIMEOUT_S = 2.0
_MAX_FRAME = 1 << 20


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
                writer.write(_CALL.encode(_VERSION, 0, ""))
                size = int.from_bytes(await reader.readexactly(4), signed=True)
                if not 0 < size < _MAX_FRAME:
                    return None
                return parse_membership(await reader.readexactly(size))
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


def parse_membership(response: bytes) -> Membership:
    """Parse a Metadata response of version 4, starting at its correlation id."""
    found = _CALL.decode(_VERSION, response[4:])
    return Membership(found.cluster_id, frozenset(broker.node_id for broker in found.brokers))
