"""Starts a supervisor and sends it commands, also those for a broker's fault proxy."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self

from kafkaclient import errors
from kafkaclient.testing import errors as local_errors
from kafkaclient.testing.errors import ClusterNotRunningError, LocalClusterError
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jvm import Jvm, find_java
from kafkaclient.testing.proxy import FaultProxy
from kafkaclient.testing.supervisor import SOCKET_FILE, Launch

if TYPE_CHECKING:
    from collections.abc import Coroutine
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


P = ParamSpec("P")


def _remote(
    method: Callable[Concatenate[FaultProxy, P], object],
) -> Callable[Concatenate[RemoteProxy, P], Coroutine[Any, Any, None]]:
    """A coroutine method that calls the method of the proxy in the supervisor."""
    parameters = signature(method)

    @functools.wraps(method)
    async def call(proxy: RemoteProxy, /, *args: P.args, **kwargs: P.kwargs) -> None:
        given = parameters.bind(proxy, *args, **kwargs).arguments
        _, *named = given.items()
        arguments = {name: value for name, value in named if name != "which"}
        await proxy._fault(method.__name__, **arguments, **given.get("which", {}))

    return call


class RemoteProxy:
    """The methods of :class:`~kafkaclient.testing.proxy.FaultProxy` as coroutines.

    See there for details. Predicates over frames (``when``) are not supported, because they cannot
    be sent to another process. The coroutines return None, except for :meth:`cut`."""

    def __init__(self, control: SupervisorClient, broker: int) -> None:
        self._control = control
        self.broker = broker

    def __repr__(self) -> str:
        return f"<RemoteProxy of broker {self.broker}>"

    delay_produce = _remote(FaultProxy.delay_produce)
    delay_all = _remote(FaultProxy.delay_all)
    round_trip = _remote(FaultProxy.round_trip)
    stall = _remote(FaultProxy.stall)
    resume = _remote(FaultProxy.resume)
    heal = _remote(FaultProxy.heal)
    cut_before = _remote(FaultProxy.cut_before)
    cut_after = _remote(FaultProxy.cut_after)
    truncate_request = _remote(FaultProxy.truncate_request)
    truncate_response = _remote(FaultProxy.truncate_response)
    corrupt_request = _remote(FaultProxy.corrupt_request)
    corrupt_response = _remote(FaultProxy.corrupt_response)

    async def cut(self, *, reset: bool = False) -> int:
        """Close every connection now. Returns the number of connections."""
        return int(await self._fault("cut", reset=reset) or 0)

    async def _fault(self, fault: str, **arguments: Any) -> int | None:
        if "when" in arguments:
            raise TypeError(f"{fault}: a predicate cannot be sent to another process")
        if "xor" in arguments:  # JSON has no integer keys
            arguments["xor"] = list(arguments["xor"].items())
        if arguments.get("keep", 0) is None:
            del arguments["keep"]
        result: int | None = await asyncio.to_thread(
            self._control.call, "fault", broker=self.broker, fault=fault, arguments=arguments
        )
        return result
