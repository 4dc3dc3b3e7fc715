"""The ``kafkaclient`` command; its libraries come with the extra ``kafkaclient[cli]``."""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False  # not imported: Ctrl-C during an import would show a traceback
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

_OPTIONAL = frozenset({"hdrh", "javaproperties", "prometheus_client", "rich", "typer", "uvloop"})

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main() -> None:
    """Run the command line; the entry point ``kafkaclient``."""
    try:
        _open_closed_streams()
        if isinstance(sys.stdout, io.TextIOWrapper):  # a name that it cannot encode ends nothing
            sys.stdout.reconfigure(errors="backslashreplace")
        from kafkaclient.cli.app import app  # what it needs may be missing

        app(prog_name="kafkaclient")  # imports the command
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _OPTIONAL:
            raise
        sys.exit(
            f"kafkaclient: the command line needs {library}, which is not installed: "
            "pip install 'kafkaclient[cli]'"
        )
    except OSError as error:  # not within a command: the help or the version cannot be written
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


class _ClosedOutput(io.TextIOBase):
    """Standard output that the caller has closed (``>&-``): a write fails, as in other commands."""

    encoding = "utf-8"

    def write(self, _: str, /) -> int:
        raise OSError(errno.EBADF, "standard output is closed")


class _StandardError(io.FileIO):
    """Standard error. What cannot be written, as when its reader has ended, is dropped: a message
    ends no command that has begun to change a cluster."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _open_closed_streams() -> None:
    """Open the null device for each of stdin, stdout and stderr that the caller has closed.

    Otherwise a socket gets the number of the closed descriptor, which ends the process in libuv."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is sys.__stderr__:  # also None
        raw = io.BufferedWriter(_StandardError(2, "w", closefd=False))
        encoding = getattr(sys.stderr, "encoding", "utf-8")
        sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)
