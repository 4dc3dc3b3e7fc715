"""The checkpoint of a task's store: a small file with its changelog position, replaced atomically.

Like Kafka Streams' ``OffsetCheckpoint``, plus a checksum: with too high a position the store would
silently lack changes.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from crc32c import crc32c

from kafkaclient.errors import StateStoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "UNKNOWN_CHANGELOG",
    "ChangelogTopic",
    "Checkpoint",
    "read_checkpoint",
    "write_checkpoint",
]

_FORMAT = re.compile(
    r"(?P<version>[12])\n(?P<store>\S+) (?P<offset>\d{1,19})"
    r"(?: (?P<topic>-|[0-9a-f-]{36}) (?P<current_ms>\d{1,15}))?\n"
)
_CHECKSUM = "crc32c "


class ChangelogTopic(NamedTuple):
    """Properties of a changelog topic that decide whether a checkpoint is still valid."""

    topic_id: UUID | None
    """None: unknown, for example before Kafka 2.8."""
    delete_retention_s: float
    """``delete.retention.ms``: brokers drop tombstones after it, and readers miss the deletion."""


UNKNOWN_CHANGELOG = ChangelogTopic(None, 86_400.0)


class Checkpoint(NamedTuple):
    """The store contains all changes before ``offset`` of its changelog."""

    store: str
    offset: int
    topic_id: UUID | None = None
    """Topic id of the changelog. None: unknown."""
    current_at: float = 0.0
    """When the store last had its whole changelog, in seconds since 1970."""

    def problem(self, changelog: ChangelogTopic, now: float) -> str | None:
        """Why the store must not be used any more. None: the store is valid."""
        if None not in (self.topic_id, changelog.topic_id) and self.topic_id != changelog.topic_id:
            return "its changelog was deleted and created again"
        age_s = now - self.current_at
        if age_s > changelog.delete_retention_s:
            return (
                f"its checkpoint is {age_s:.0f} s old, and its changelog keeps deletions for "
                f"{changelog.delete_retention_s:.0f} s (delete.retention.ms)"
            )
        return None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file atomically. Call it after the store is flushed to disk.

    Raises :class:`~kafkaclient.errors.StateStoreError` if it cannot be written. The old file then
    remains.
    """
    topic = checkpoint.topic_id or "-"
    current_ms = int(checkpoint.current_at * 1000)
    text = f"2\n{checkpoint.store} {checkpoint.offset} {topic} {current_ms}\n"
    text += f"{_CHECKSUM}{crc32c(text.encode()):08x}\n"
    new = path.with_suffix(".new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise StateStoreError(
            f"the checkpoint {path} cannot be written: {error}. The previous checkpoint remains: "
            "free disk space or correct the permissions, and restart"
        ) from error


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint. None if the file does not exist. Raises
    :class:`~kafkaclient.errors.StateStoreError` if the file is unreadable or damaged."""
    try:
        data = path.read_bytes()
        written_at = path.stat().st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateStoreError(f"the checkpoint {path} cannot be read: {error}") from error
    content, separator, checksum = data.rpartition(_CHECKSUM.encode())
    match = _FORMAT.fullmatch(content.decode("utf-8", "replace"))
    if not separator or match is None or checksum != b"%08x\n" % crc32c(content):
        raise StateStoreError(
            f"the checkpoint {path} is damaged: its {len(data)} bytes do not match their checksum"
        )
    store, offset = match["store"], int(match["offset"])
    if match["current_ms"] is None:  # format 1
        return Checkpoint(store, offset, None, written_at)
    topic_id = None if match["topic"] == "-" else UUID(match["topic"])
    return Checkpoint(store, offset, topic_id, int(match["current_ms"]) / 1000)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
