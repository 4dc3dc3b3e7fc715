"""How far a task's store is: a small file, replaced as a whole.

After Kafka Streams' ``OffsetCheckpoint``, with a checksum: a position that is too high would leave
out changes for good, and nothing else would notice.
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
    """What a checkpoint is judged by."""

    topic_id: UUID | None
    """None: not known, as before Kafka 2.8."""
    delete_retention_s: float
    """``delete.retention.ms``: brokers keep deletions for as long, then nobody is told of them."""


UNKNOWN_CHANGELOG = ChangelogTopic(None, 86_400.0)


class Checkpoint(NamedTuple):
    """Changes before this offset of the store's changelog are in the store."""

    store: str
    offset: int
    topic_id: UUID | None = None
    """The changelog's; None: not known."""
    current_at: float = 0.0
    """When the store had all of its changelog, in seconds since 1970: it can lack deletions that
    came later."""

    def problem(self, changelog: ChangelogTopic, now: float) -> str | None:
        """Why the store must not be gone on with; None: it may."""
        if None not in (self.topic_id, changelog.topic_id) and self.topic_id != changelog.topic_id:
            return "its changelog was deleted and created again"
        age_s = now - self.current_at
        if age_s > changelog.delete_retention_s:
            return (
                f"it is {age_s:.0f} s old, and its changelog keeps deletions for "
                f"{changelog.delete_retention_s:.0f} s (delete.retention.ms)"
            )
        return None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file, or leave it as it was. To be called when what the store has is on disk.

    Raises :class:`~kafkaclient.errors.StateStoreError` when it cannot be written.
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
            f"the checkpoint {path} cannot be written: {error}. The one before is still there; "
            "make room, or correct the permissions, and start again"
        ) from error


def read_checkpoint(path: Path) -> Checkpoint | None:
    """None when there is no such file. Raises :class:`~kafkaclient.errors.StateStoreError` when it
    is not what was written."""
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
            f"the checkpoint {path} is damaged: its {len(data)} bytes do not fit their checksum"
        )
    store, offset = match["store"], int(match["offset"])
    if match["current_ms"] is None:  # of an earlier version of this package
        return Checkpoint(store, offset, None, written_at)
    topic_id = None if match["topic"] == "-" else UUID(match["topic"])
    return Checkpoint(store, offset, topic_id, int(match["current_ms"]) / 1000)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
