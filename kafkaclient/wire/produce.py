"""Produce, the hot path, versions 3 to 13, encoded and decoded by hand.

Version 9 is the first flexible one (KIP-482); 8 added the refused records (KIP-467), 10 the hints
about new leaders (KIP-951). Version 13 names topics by id (KIP-516).
``_produce_py.py`` is the source, compiled or as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin
from kafkaclient.wire.results import PartitionResult, ProduceResult, RecordError

if TYPE_CHECKING:
    from kafkaclient.wire._produce_py import (
        FIRST_WITH_TOPIC_IDS,
        MAX_VERSION,
        MIN_VERSION,
        decode_response,
        encode_request,
    )
else:
    _twin, _ = load_twin("kafkaclient.wire._produce")
    FIRST_WITH_TOPIC_IDS = _twin.FIRST_WITH_TOPIC_IDS
    MAX_VERSION, MIN_VERSION = _twin.MAX_VERSION, _twin.MIN_VERSION
    decode_response, encode_request = _twin.decode_response, _twin.encode_request

FIRST_OF_TRANSACTIONS_V2 = 12
"""From here on a Produce makes its partitions part of the transaction by itself (KIP-890)."""

__all__ = [
    "FIRST_OF_TRANSACTIONS_V2",
    "FIRST_WITH_TOPIC_IDS",
    "MAX_VERSION",
    "MIN_VERSION",
    "PartitionResult",
    "ProduceResult",
    "RecordError",
    "decode_response",
    "encode_request",
]
