"""The user's side of a supervisor: starting one, and giving it commands."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkaclient import errors
from kafkaclient.testing import errors as local_errors
from kafkaclient.testing.errors import ClusterNotRunningError, LocalClusterError
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jre import find_java
from kafkaclient.testing.supervisor import SOCKET_FILE, Launch

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.testing.settings import ClusterSpec

__all__ = ["START_TIMEOUT_S", "Control", "launch_supervisor", "prepare_launch"]

START_TIMEOUT_S = 180.0
"""How long brokers may take to be ready; seconds."""

_SOCKET_TIMEOUT_S = 30.0
_CONNECT_POLL_S = 0.02
_LOG_FILE = "supervisor.log"

Say = Callable[[str], None]


class Control:
    """Commands for the supervisor that works in ``directory``; safe to use from any thread.

    Each command is a connection of its own, so that a slow one keeps no other waiting.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def wait(self, supervisor: subprocess.Popen[bytes]) -> None:
        """Return when the supervisor just started takes commands.

        Raises LocalClusterError when it does not get that far.
        """
        deadline = time.monotonic() + _SOCKET_TIMEOUT_S
        while not _accepts(self.directory / SOCKET_FILE):
            if supervisor.poll() is not None or time.monotonic() > deadline:
                text = (self.directory / _LOG_FILE).read_text("utf-8", "replace").strip()
                raise LocalClusterError(f"the cluster's supervisor did not start:\n{text}")
            time.sleep(_CONNECT_POLL_S)

    def call(self, command: str, *, say: Say | None = None, **arguments: Any) -> Any:
        """Run a command and return its result; ``say`` gets lines of progress.

        Raises the error that the supervisor reports, and ClusterNotRunningError when there is no
        supervisor (any more).
        """
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self.directory / SOCKET_FILE))
                request = json.dumps({"command": command, **arguments})
                connection.sendall(request.encode() + b"\n")
                with connection.makefile("rb") as answers:
                    for line in answers:
                        message = json.loads(line)
                        if "progress" not in message:
                            return _result(message)
                        if say is not None:
                            say(message["progress"])
        except OSError as error:
            raise ClusterNotRunningError(
                f"no cluster is running in {self.directory}: {error}"
            ) from error
        raise ClusterNotRunningError(f"the cluster in {self.directory} ended during {command!r}")


def _result(message: dict[str, Any]) -> Any:
    if "error" not in message:
        return message["result"]
    kind = message["kind"]
    known: type[Exception] = getattr(local_errors, kind, getattr(errors, kind, LocalClusterError))
    raise known(message["error"])


def prepare_launch(spec: ClusterSpec, cache: JarCache, *, keep: bool) -> Launch:
    """Find Java and the jars, fetching what is missing; shows a progress bar while it does."""
    java = find_java()
    jars = cache.ensure(read_lock(spec.version))
    classes = _fingerprint(spec.version, java.path, java.banner, spec.long_lived)
    users = () if spec.security is None else (sorted(spec.security.users.items()),)
    settings = _fingerprint(
        spec.version, sorted(spec.config.items()), *users, *sorted(spec.features.items())
    )
    return Launch(
        brokers=spec.brokers,
        racks=None if spec.racks is None else list(spec.racks),
        config=dict(spec.config),
        version=spec.version,
        java=str(java.path),
        java_major=java.major,
        jars=[str(jar) for jar in jars],
        archive=str(cache.directory / "classes" / f"{classes}.jsa"),
        template=str(cache.directory / "formats" / f"{settings}.checkpoint"),
        keep=keep,
        security=None if spec.security is None else spec.security.to_json(),
        features=dict(spec.features),
        long_lived=spec.long_lived,
        heap_mb=spec.heap_mb,
    )


def launch_supervisor(
    directory: Path, launch: Launch, *, attached: bool
) -> subprocess.Popen[bytes]:
    """Start a supervisor in ``directory``; :meth:`Control.wait` tells when it takes commands.

    Attached, it ends when the returned process's stdin is closed, by this process or by its end.
    In a session of its own in both cases: a Ctrl-C is for the one who can clean up.
    """
    launch.write(directory)
    command = [sys.executable, "-m", "kafkaclient.testing.supervisor", str(directory)]
    with (directory / _LOG_FILE).open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - this package's own module
            [*command, "--attached"] if attached else command,
            stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
