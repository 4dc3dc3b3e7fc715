"""The group's commits, as the coordinators wrote them to ``__consumer_offsets``."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.consumer_chaos.strikes import OFFSETS_TOPIC
from experiments.readback import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Commit", "read_commits"]

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_OFFSET_KEYS = (0, 1)


class Commit(NamedTuple):
    """An offset that the coordinator accepted ``at`` seconds since 1970."""

    at: float
    topic: str
    partition: int
    offset: int


def commit_of(key: bytes, value: bytes, timestamp_ms: int, group: str) -> Commit | None:
    """The commit in a record of ``__consumer_offsets`` (OffsetCommitKey, OffsetCommitValue); None
    for another record and for another group."""
    (version,) = _INT16.unpack_from(key)
    if version not in _OFFSET_KEYS:
        return None
    found, end = _string(key, _INT16.size)
    if found != group:
        return None
    topic, end = _string(key, end)
    (partition,) = _INT32.unpack_from(key, end)
    (offset,) = _INT64.unpack_from(value, _INT16.size)
    return Commit(timestamp_ms / 1000, topic, partition, offset)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, at)
    begins = at + _INT16.size
    return data[begins : begins + size].decode(), begins + size


async def read_commits(bootstrap: str, group: str) -> list[Commit]:
    """All commits of the group, in the order of the log."""
    found: list[Commit] = []
    await read_topic(bootstrap, OFFSETS_TOPIC, _taker(group, found.append))
    return found


def _taker(group: str, take: Callable[[Commit], None]) -> Callable[[Any], None]:
    def take_message(message: Any) -> None:
        if message.value is None:
            return  # an offset is forgotten, because its topic was deleted
        commit = commit_of(message.key, message.value, message.timestamp, group)
        if commit is not None:
            take(commit)

    return take_message
