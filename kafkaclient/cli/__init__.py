"""The ``kafkaclient`` command; its libraries come with the extra ``kafkaclient[cli]``."""

from __future__ import annotations

import sys

__all__ = ["main"]

_OPTIONAL = frozenset({"hdrh", "javaproperties", "prometheus_client", "rich", "typer", "uvloop"})

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main() -> None:
    """Run the command line; the entry point ``kafkaclient``."""
    try:
        from kafkaclient.cli.app import app  # noqa: PLC0415 - what it needs may be missing

        app(prog_name="kafkaclient")  # imports the command
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _OPTIONAL:
            raise
        sys.exit(
            f"kafkaclient: the command line needs {library}, which is not installed: "
            "pip install 'kafkaclient[cli]'"
        )
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
