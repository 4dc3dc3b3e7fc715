"""The hash that places keyed records, equal to the Java client's (KIP-794 keeps it).

Compiled (``_murmur2.pyx``) or done by its pure-Python twin; ``COMPILED`` tells which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.wire._murmur2_py import murmur2, partition_for_key

    COMPILED: bool
else:
    _twin, COMPILED = load_twin("kafkaclient.wire._murmur2")
    murmur2, partition_for_key = _twin.murmur2, _twin.partition_for_key

__all__ = ["COMPILED", "murmur2", "partition_for_key"]
