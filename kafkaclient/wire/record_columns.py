"""Decodes the records of batches into columns, in one pass and without an object per record.

Compiled (``_record_columns.pyx``) or done by its pure-Python twin; ``COMPILED`` tells which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.wire._record_columns_py import RecordColumns

    COMPILED: bool
else:
    _twin, COMPILED = load_twin("kafkaclient.wire._record_columns")
    RecordColumns = _twin.RecordColumns

__all__ = ["COMPILED", "RecordColumns"]
