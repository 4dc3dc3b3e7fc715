"""Text files that are written as a whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pathlib import Path

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")


def write_whole(path: Path, text: str) -> None:
    """Replace the file atomically: a reader never sees a part of the text, and on a full disk the
    earlier content stays. A device, a pipe or an open descriptor, as ``/dev/stdout``, is written
    to. Raises OSError, which names the file, also for a file that may not be written.
    """
    try:
        if (descriptor := _descriptor(path)) is not None:
            # Opened by its name, a file behind it would be truncated, and a socket refused.
            with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        elif path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="") as file:
                file.write(text)
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _descriptor(path: Path) -> int | None:
    name = str(path)
    found = _DESCRIPTOR.fullmatch(name)
    return int(found[1]) if found else _STREAMS.get(name)


def _replace(path: Path, text: str) -> None:
    before = path.stat() if path.exists() else None
    if before is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    new = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        with new.open("x", encoding="utf-8", newline="") as file:
            if before is not None:  # the text may be for the file's owner alone
                with suppress(OSError, AttributeError):  # only root may; Windows has no owners
                    os.chown(new, before.st_uid, before.st_gid)
                new.chmod(stat.S_IMODE(before.st_mode))
            file.write(text)
        new.replace(path)
    except BaseException:
        with suppress(OSError):  # there is none, if none could be created
            new.unlink()
        raise
