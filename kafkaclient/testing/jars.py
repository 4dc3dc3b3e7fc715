"""Kafka's jars: which ones (a shipped lock), and how they get into the user's cache.

Nothing is resolved here: a lock names every jar with its SHA-256, ``lock.py`` makes locks.
``jgo`` knows where Maven artifacts are; each jar is fetched by itself into a directory of its own,
checked, and moved into the cache in one step, so that a cache never holds half a jar and an
interrupted download goes on with the jars that are missing.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import platformdirs
from filelock import FileLock

from kafkaclient.errors import ConfigError
from kafkaclient.testing.errors import JarsUnavailableError
from kafkaclient.testing.progress import Progress, default_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "CACHE_VARIABLE",
    "REPOSITORY_VARIABLE",
    "Fetch",
    "Jar",
    "JarCache",
    "cache_dir",
    "fetch_with_jgo",
    "format_lock",
    "parse_lock",
    "read_lock",
    "shipped_versions",
]

CACHE_VARIABLE = "KAFKACLIENT_CACHE"
"""Overrides the directory that jars are kept in."""
REPOSITORY_VARIABLE = "KAFKACLIENT_MAVEN_REPOSITORY"
"""The URL of a Maven repository to use instead of the one that jgo knows."""

_WORKERS = 8
_ATTEMPTS = 3
_TIMEOUT_S = 60
_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64}) +(?P<size>[0-9]+) +"
    r"(?P<group>[^\s:]+):(?P<artifact>[^\s:]+):(?P<version>[^\s:]+)"
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar; ``size`` in bytes serves the progress bar, ``sha256`` decides."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def path(self) -> Path:
        """Where Maven's layout has it, below the root of a repository."""
        name = f"{self.artifact}-{self.version}.jar"
        return Path(*self.group.split("."), self.artifact, self.version, name)


class Fetch(Protocol):
    """Fetches one jar into ``directory`` and returns its path; raises OSError or RuntimeError."""

    def __call__(self, jar: Jar, directory: Path) -> Path: ...


def cache_dir() -> Path:
    """The user's cache of this package, or what ``KAFKACLIENT_CACHE`` says."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return platformdirs.user_cache_path("kafkaclient")


def shipped_versions() -> tuple[str, ...]:
    """The Kafka versions whose locks come with this package."""
    names = Path(__file__).parent.glob("kafka-*.lock")
    return tuple(sorted(path.stem.removeprefix("kafka-") for path in names))


def read_lock(version: str) -> tuple[Jar, ...]:
    """The jars of a Kafka version: from this package, or from a lock the user made.

    Raises ConfigError when there is no lock for the version.
    """
    name = f"kafka-{version}.lock"
    for path in (Path(__file__).parent / name, cache_dir() / "locks" / name):
        if path.is_file():
            return parse_lock(path.read_text("utf-8"))
    raise ConfigError(
        f"no lock for Kafka {version}: there is one for {', '.join(shipped_versions())}. "
        f"Make one where Maven is installed: python -m kafkaclient.testing.lock {version}"
    )


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars that a lock names, in its order, which is the class path's."""
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(
                f"line {number} of the lock is not 'sha256 size group:artifact:version': {line!r}"
            )
        group, artifact, version = match["group"], match["artifact"], match["version"]
        jars.append(Jar(group, artifact, version, match["sha256"], int(match["size"])))
    return tuple(jars)


def format_lock(version: str, jars: Sequence[Jar]) -> str:
    """The text of a lock. Kafka's own jars go first, which saves searching in the others."""
    ordered = sorted(jars, key=lambda jar: (jar.group != "org.apache.kafka", jar.coordinates))
    lines = [f"{jar.sha256} {jar.size:>8} {jar.coordinates}" for jar in ordered]
    head = (
        f"# The jars of a Kafka {version} broker with its tools, in the order of the class path.\n"
        "# SHA-256, size in bytes, Maven coordinates.\n"
        f"# Made by: python -m kafkaclient.testing.lock {version}\n"
    )
    return head + "\n".join(lines) + "\n"


def fetch_with_jgo(repository: str | None = None) -> Fetch:
    """Fetch from the Maven repository that jgo knows, or from the one at this URL."""

    def fetch(jar: Jar, directory: Path) -> Path:
        from jgo.maven import MavenContext  # noqa: PLC0415 - slow, and only the first use needs it

        context = MavenContext(
            repo_cache=directory,
            remote_repos=None if repository is None else {"given": repository},
            timeout=_TIMEOUT_S,
        )
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        return Path(component.artifact().resolve())

    return fetch


class JarCache:
    """The jars below one directory. Any number of processes may share it."""

    def __init__(
        self,
        directory: Path | None = None,
        fetch: Fetch | None = None,
        progress: Callable[[str, int], Progress] = default_progress,
    ) -> None:
        self.directory = directory or cache_dir()
        self._fetch = fetch or fetch_with_jgo(os.environ.get(REPOSITORY_VARIABLE))
        self._progress = progress
        self._stopped = threading.Event()

    def ensure(self, jars: Sequence[Jar]) -> tuple[Path, ...]:
        """The jars' paths, in order, once all are there; fetches those that are not.

        Raises :class:`~kafkaclient.testing.errors.JarsUnavailableError`; what was fetched until
        then stays and is not fetched again.
        """
        if self._missing(jars):
            with self._locked():
                # Another process may have fetched them while this one waited for the lock.
                self._fetch_all(self._missing(jars))
        return tuple(self._path(jar) for jar in jars)

    def stop_fetching(self) -> None:
        """Let an :meth:`ensure` in another thread end after the jars under way."""
        self._stopped.set()

    def _path(self, jar: Jar) -> Path:
        return self.directory / "jars" / jar.path

    def _missing(self, jars: Sequence[Jar]) -> list[Jar]:
        # The digest was checked before the jar got its name; the size finds a damaged disk.
        return [jar for jar in jars if _size(self._path(jar)) != jar.size]

    def _fetch_all(self, jars: Sequence[Jar]) -> None:
        if not jars:
            return
        total = sum(jar.size for jar in jars)
        with (
            self._progress(f"Fetching Kafka: {len(jars)} jars", total) as progress,
            tempfile.TemporaryDirectory(dir=self.directory, prefix="fetching-") as scratch,
            ThreadPoolExecutor(_WORKERS, "jars") as pool,
        ):
            tasks = {
                pool.submit(self._fetch_one, jar, Path(scratch), progress): jar for jar in jars
            }
            try:
                self._finish(tasks)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _finish(self, tasks: dict[Future[None], Jar]) -> None:
        done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
        failed = next((task for task in done if task.exception() is not None), None)
        if failed is None:
            return
        cause = failed.exception()
        if not isinstance(cause, OSError | RuntimeError):
            failed.result()
        missing = [jar.coordinates for jar in self._missing(list(tasks.values()))]
        error = JarsUnavailableError(
            f"could not fetch {tasks[failed].coordinates}: {cause}. {len(missing)} of the jars of "
            f"Kafka are missing in {self.directory / 'jars'}; those already there are kept. "
            "Run it again with a network, name a Maven repository in "
            f"{REPOSITORY_VARIABLE}, or copy that directory from a machine that has it"
        )
        error.missing = tuple(missing)
        raise error from cause

    def _fetch_one(self, jar: Jar, scratch: Path, progress: Progress) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            if self._stopped.is_set():
                raise JarsUnavailableError("the fetching was stopped")
            # A new place for each attempt: jgo takes a file that is there for a whole one.
            place = scratch / f"{jar.artifact}-{jar.version}-{attempt}"
            try:
                fetched = self._fetch(jar, place)
                self._check(jar, fetched)
            except (OSError, RuntimeError):
                if attempt == _ATTEMPTS:
                    raise
            else:
                target = self._path(jar)
                target.parent.mkdir(parents=True, exist_ok=True)
                fetched.replace(target)
                progress.advance(jar.size)
                return

    def _check(self, jar: Jar, path: Path) -> None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != jar.sha256:
            raise JarsUnavailableError(
                f"{jar.coordinates} is not the jar that the lock names: SHA-256 {digest} "
                f"instead of {jar.sha256}"
            )

    def _locked(self) -> FileLock:
        self.directory.mkdir(parents=True, exist_ok=True)
        return FileLock(self.directory / "jars.lock")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
