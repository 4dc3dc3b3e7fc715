"""Reads the Kafka protocol's primitive types from bytes that a peer chose.

Every length is checked against what is left before anything is read or allocated, so that a
hostile peer can neither read past the end nor make this process allocate more than it sent.
``_reader_py.py`` is the source, compiled or as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.wire._reader_py import Reader
else:
    Reader = load_twin("kafkaclient.wire._reader")[0].Reader

__all__ = ["Reader"]
