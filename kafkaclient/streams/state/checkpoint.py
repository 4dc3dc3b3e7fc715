"""How far a task's store is: a small file, replaced as a whole.

After Kafka Streams' ``OffsetCheckpoint``, with a checksum: a position that is too high would leave
out changes for good, and nothing else would notice.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kafkaclient.errors import StateStoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]

_FORMAT = re.compile(r"1\n(?P<store>\S+) (?P<offset>\d{1,19})\n")
_CHECKSUM = "crc32c "


class Checkpoint(NamedTuple):
    """Changes before this offset of the store's changelog are in the store."""

    store: str
    offset: int


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file, or leave it as it was. To be called when what the store has is on disk.

    Raises :class:`~kafkaclient.errors.StateStoreError` when it cannot be written.
    """
    text = f"1\n{checkpoint.store} {checkpoint.offset}\n"
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
    return Checkpoint(match["store"], int(match["offset"]))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
