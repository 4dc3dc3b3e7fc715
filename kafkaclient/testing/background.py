"""Named clusters that keep running after the command that started them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from filelock import FileLock

from kafkaclient.errors import ConfigError
from kafkaclient.testing.cluster import ClusterHandle
from kafkaclient.testing.control import (
    START_TIMEOUT_S,
    SupervisorClient,
    launch_supervisor,
    prepare_launch,
    start_brokers,
)
from kafkaclient.testing.errors import ClusterNotRunningError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from kafkaclient.testing.settings import ClusterSpec


DEFAULT_NAME = "default"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class BackgroundCluster(ClusterHandle):
    """A cluster that :meth:`up` starts and :meth:`down` stops.

    A file in the user's state directory names the directory of the cluster's supervisor. A file
    whose supervisor no longer runs, for example after a reboot, is ignored.
    """

    def __init__(self, name: str, running: SupervisorClient) -> None:
        super().__init__(running)
        self.name = name

    @classmethod
    async def up(
        cls,
        name: str,
        spec: ClusterSpec,
        *,
        say: Callable[[str], None] | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> BackgroundCluster:
        """The running cluster with this name, which is started if necessary.

        ``say`` gets lines of progress, in another thread. Raises ConfigError if a cluster with this
        name runs with another ``spec``, and the errors of :meth:`LocalCluster.start`.
        """
        entry = _entry(name)
        with _locked(entry):
            found = await asyncio.to_thread(cls.find, name)
            if found is not None:
                found._check_spec(spec)
                return found
            launch = await prepare_launch(spec, keep=False)
            directory = Path(tempfile.mkdtemp(prefix="kafkaclient-"))
            supervisor = launch_supervisor(directory, launch, attached=False)
            try:
                running = await start_brokers(directory, supervisor, timeout_s, say)
                entry.write_text(json.dumps({"directory": str(directory)}), "utf-8")
            except BaseException:
                await asyncio.to_thread(_terminate, supervisor, directory)
                raise
        return cls(name, running)

    @classmethod
    def find(cls, name: str) -> BackgroundCluster | None:
        """The running cluster with this name, or None."""
        try:
            directory = Path(json.loads(_entry(name).read_text("utf-8"))["directory"])
            return cls(name, SupervisorClient(directory).describe())
        except (FileNotFoundError, ClusterNotRunningError):
            return None

    @classmethod
    def names(cls) -> list[str]:
        """The names of the clusters that were started and not stopped."""
        return sorted(each.stem for each in _folder().glob("*.json"))

    @classmethod
    async def down(cls, name: str) -> bool:
        """Stop the cluster with this name and delete its data. Returns False if there is none."""
        entry = _entry(name)
        with _locked(entry):
            found = await asyncio.to_thread(cls.find, name)
            if found is not None:
                await found._call("stop")
            entry.unlink(missing_ok=True)
            return found is not None

    def _check_spec(self, spec: ClusterSpec) -> None:
        running = self._running.launch.spec
        if running != spec:
            raise ConfigError(
                f"the cluster {self.name!r} is already running with other settings "
                f"({running.brokers} brokers of Kafka {running.version}); stop it with "
                "`kafkaclient cluster down`, or choose another --name"
            )


def _entry(name: str) -> Path:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"the cluster name {name!r} is not valid; use up to 64 letters, digits, '-', '_', '.'"
        )
    return _folder() / f"{name}.json"


def _folder() -> Path:
    return platformdirs.user_state_path("kafkaclient") / "clusters"


def _locked(entry: Path) -> FileLock:
    """A lock for one `up` or `down` at a time: a second `up` finds the cluster of the first."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(entry.with_suffix(".lock"))


def _terminate(supervisor: subprocess.Popen[bytes], directory: Path) -> None:
    supervisor.terminate()
    supervisor.wait()
    shutil.rmtree(directory, ignore_errors=True)
