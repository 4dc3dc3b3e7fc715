"""What the tests of the wire share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid5

from kafkaclient.wire.codec import decode_request

if TYPE_CHECKING:
    from kafkaclient.wire.api import Call


def sent(call: Call[Any], version: int) -> Any:
    """A call's request, as a broker reads it."""
    frame = decode_request(call.encode(version, 1, "me")[4:])
    assert (frame.api_key, frame.version, frame.client_id) == (call.api_key, version, "me")
    return frame.message


def id_of(topic: str) -> UUID:
    return uuid5(NAMESPACE_OID, topic)
