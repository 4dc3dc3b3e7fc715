"""InitProducerId, versions 0 to 5 (KIP-98), encoded and decoded by hand.

Version 2 is the first flexible version (KIP-482), 3 added the present identity (KIP-360).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import (
    INT32,
    NO_TAGS,
    ApiKey,
    Call,
    compact_string,
    framed,
    malformed,
    request,
    string,
)
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

_FIRST_FLEXIBLE = 2
_FIRST_WITH_IDENTITY = 3

_IDENTITY = struct.Struct(">qh")  # producer id and epoch
_RESULT = struct.Struct(">ihqh")  # throttle time in ms, error code, producer id and epoch


class InitProducerIdResult(NamedTuple):
    """The identity of an idempotent producer; both numbers are -1 with an error."""

    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_ms: int


@dataclass(frozen=True)
class InitProducerIdCall(
    Call[InitProducerIdResult], api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5)
):
    """Requests a new producer id, or from version 3 on the next epoch of one (KIP-360)."""

    transactional_id: str | None = None
    timeout_ms: int = 60_000
    producer_id: int = -1
    producer_epoch: int = -1

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        flexible = version >= _FIRST_FLEXIBLE
        frame = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        frame += (compact_string if flexible else string)(self.transactional_id)
        frame += INT32.pack(self.timeout_ms)
        if version >= _FIRST_WITH_IDENTITY:
            frame += _IDENTITY.pack(self.producer_id, self.producer_epoch)
        return framed(frame + NO_TAGS if flexible else frame)

    def decode(self, version: int, payload: Buffer) -> InitProducerIdResult:
        reader = FieldReader(payload, flexible=version >= _FIRST_FLEXIBLE)
        try:
            reader.tagged_fields()  # of the response header
            throttle_ms, error_code, producer_id, epoch = reader.unpack(_RESULT)
            reader.tagged_fields()
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return InitProducerIdResult(error_code, producer_id, epoch, throttle_ms)


class InitTransactionsCall(InitProducerIdCall, versions=(3, 5)):
    """InitProducerId with a transactional id: ends the transaction of an older instance and fences
    that instance. Recovery needs version 3, which can raise the producer's own epoch (KIP-360)."""
