"""Starts a supervisor and sends it commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from kafkaclient import errors
from kafkaclient.testing import errors as local_errors
from kafkaclient.testing.errors import ClusterNotRunningError, LocalClusterError
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jre import find_java
from kafkaclient.testing.jvm import Jvm
from kafkaclient.testing.supervisor import SOCKET_FILE, Launch

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.testing.settings import ClusterSpec


START_TIMEOUT_S = 180.0  # seconds that brokers may take to be ready
_SOCKET_TIMEOUT_S = 30.0  # seconds that a supervisor may take to accept commands
_CONNECT_POLL_S = 0.02  # seconds between two connection attempts
_LOG_FILE = "supervisor.log"

Say = Callable[[str], None]


class SupervisorClient:
    """Sends commands to the supervisor of ``directory``. It may be used from any thread.

    Each command uses its own connection, so a slow command does not delay the others.
    """

    description: dict[str, Any]
    """The supervisor's description at :meth:`describe`. Only its constant parts are used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def launch(self) -> Launch:
        """The arguments of the supervisor."""
        return Launch.read(self.directory)

    def describe(self) -> Self:
        """Ask for the description; raises what :meth:`call` raises."""
        self.description = self.call("describe")
        return self

    def wait(self, supervisor: subprocess.Popen[bytes]) -> None:
        """Wait until a new supervisor accepts commands. Raises LocalClusterError if it does not."""
        deadline = time.monotonic() + _SOCKET_TIMEOUT_S
        while not _accepts(self.directory / SOCKET_FILE):
            if supervisor.poll() is not None or time.monotonic() > deadline:
                text = (self.directory / _LOG_FILE).read_text("utf-8", "replace").strip()
                raise LocalClusterError(f"the cluster's supervisor did not start:\n{text}")
            time.sleep(_CONNECT_POLL_S)

    def call(self, command: str, *, say: Say | None = None, **arguments: Any) -> Any:
        """Run a command and return its result. ``say`` gets lines of progress.

        Raises the error that the supervisor reports, and ClusterNotRunningError if the supervisor
        does not run.
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
        raise ClusterNotRunningError(f"the cluster in {self.directory} stopped during {command!r}")


def _result(message: dict[str, Any]) -> Any:
    if "error" not in message:
        return message["result"]
    kind = message["kind"]
    known: type[Exception] = getattr(local_errors, kind, getattr(errors, kind, LocalClusterError))
    raise known(message["error"])


async def prepare_launch(spec: ClusterSpec, *, keep: bool, compose: str | None = None) -> Launch:
    """Find Java and the jars. Missing jars are downloaded with a progress bar."""
    cache = JarCache()
    try:
        return await asyncio.to_thread(_prepare, spec, cache, keep, compose)
    finally:
        cache.stop_fetching()


def _prepare(spec: ClusterSpec, cache: JarCache, keep: bool, compose: str | None) -> Launch:
    java = find_java()
    jars = cache.ensure(read_lock(spec.version))
    classes = _fingerprint(spec.version, java.path, java.banner, spec.long_lived)
    users = () if spec.security is None else (sorted(spec.security.users.items()),)
    settings = _fingerprint(
        spec.version, sorted(spec.config.items()), *users, *sorted(spec.features.items())
    )
    archive = cache.directory / "classes" / f"{classes}.jsa"
    template = cache.directory / "formats" / f"{settings}.checkpoint"
    return Launch(spec, Jvm(java.path, jars, archive, java.major), template, keep, compose)


def launch_supervisor(
    directory: Path, launch: Launch, *, attached: bool
) -> subprocess.Popen[bytes]:
    """Start a supervisor in ``directory``; then call :meth:`SupervisorClient.wait`.

    An attached supervisor ends when stdin of the returned process is closed, also by the end of
    this process. The supervisor has its own session, so that a Ctrl-C does not reach it: this
    process handles the Ctrl-C and cleans up."""
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


async def start_brokers(
    directory: Path,
    supervisor: subprocess.Popen[bytes],
    timeout_s: float,
    say: Say | None = None,
) -> SupervisorClient:
    """Start the brokers of a new supervisor. Returns when each of them sees all other brokers."""
    control = SupervisorClient(directory)
    await asyncio.to_thread(control.wait, supervisor)
    await asyncio.to_thread(control.call, "start", say=say, timeout_s=timeout_s)
    return await asyncio.to_thread(control.describe)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
