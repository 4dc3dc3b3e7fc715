"""Checks the arguments of ``send_many`` that have an item for each record."""

from __future__ import annotations

from collections.abc import Mapping

from kafkaclient.errors import InvalidRecordError

_ONE_ITEM = (str, bytes, bytearray, memoryview, Mapping)


def check_column(name: str, column: object) -> None:
    """Raise InvalidRecordError unless ``column`` can have an item for each record. Text, bytes and
    a mapping are one value, although they can be iterated over."""
    if isinstance(column, _ONE_ITEM) or not hasattr(column, "__iter__"):
        raise InvalidRecordError(
            f"{name} must be a sequence with an item for each record, not a "
            f"{type(column).__name__}; nothing was sent"
        )
