"""Downloads Kafka's jars, which a lock file lists, into the user's cache.

A lock file has every jar with its SHA-256. ``jgo`` downloads each jar from a Maven repository into
a temporary directory. The jar is checked and moved into the cache atomically, so the cache never
contains a partial jar. An interrupted download continues with the missing jars.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import platformdirs
from filelock import FileLock

from kafkaclient.errors import ConfigError
from kafkaclient.testing.errors import JarsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress


CACHE_VARIABLE = "KAFKACLIENT_CACHE"
"""The environment variable that overrides the cache directory."""
REPOSITORY_VARIABLE = "KAFKACLIENT_MAVEN_REPOSITORY"
"""The environment variable with the URL of a Maven repository instead of jgo's default."""

_WORKERS = 8  # concurrent downloads
_ATTEMPTS = 3  # attempts to download a jar
_TIMEOUT_S = 60  # seconds for one download
_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64}) +(?P<size>[0-9]+) +"
    r"(?P<group>[^\s:]+):(?P<artifact>[^\s:]+):(?P<version>[^\s:]+)"
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of a lock file. ``size`` is in bytes; ``sha256`` is checked after the download."""

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
        """The path in Maven's layout, relative to the root of a repository."""
        name = f"{self.artifact}-{self.version}.jar"
        return Path(*self.group.split("."), self.artifact, self.version, name)


Fetch: TypeAlias = Callable[[Jar, Path], Path]
"""Downloads a jar into a directory and returns its path. Raises OSError or RuntimeError."""


def cache_dir() -> Path:
    """The directory in ``KAFKACLIENT_CACHE``, or the user's cache directory of this package."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return platformdirs.user_cache_path("kafkaclient")


def shipped_versions() -> tuple[str, ...]:
    """The Kafka versions whose lock files are part of this package."""
    names = Path(__file__).parent.glob("kafka-*.lock")
    return tuple(sorted(path.stem.removeprefix("kafka-") for path in names))


def read_lock(version: str) -> tuple[Jar, ...]:
    """The jars of a Kafka version, from a lock file of this package or of the user.

    Raises ConfigError if there is no lock file for the version.
    """
    name = f"kafka-{version}.lock"
    for path in (Path(__file__).parent / name, cache_dir() / "locks" / name):
        if path.is_file():
            return parse_lock(path.read_text("utf-8"))
    raise ConfigError(
        f"no lock for Kafka {version}; there are locks for {', '.join(shipped_versions())}. Create "
        f"one with Maven in a clone of the repository: python -m release.kafka_lock {version}"
    )


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars of a lock file, in the order of the class path."""
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


def fetch_with_jgo(repository: str | None = None) -> Fetch:
    """A function that downloads from ``repository``, or from jgo's default Maven repository."""

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
    """The cached jars in one directory, which several processes may share."""

    def __init__(self, directory: Path | None = None, fetch: Fetch | None = None) -> None:
        self.directory = directory or cache_dir()
        self._fetch = fetch or fetch_with_jgo(os.environ.get(REPOSITORY_VARIABLE))
        self._stopped = threading.Event()

    def ensure(self, jars: Sequence[Jar]) -> tuple[Path, ...]:
        """The paths of the jars, in order. Downloads the missing jars.

        Raises :class:`~kafkaclient.testing.errors.JarsUnavailableError`. Jars that were downloaded
        before the error stay in the cache.
        """
        if self._missing(jars):
            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / "jars.lock"):
                # Check again: another process may have downloaded the jars before this lock.
                if missing := self._missing(jars):
                    self._fetch_all(missing)
        return tuple(self._path(jar) for jar in jars)

    def stop_fetching(self) -> None:
        """End an :meth:`ensure` in another thread after its current downloads."""
        self._stopped.set()

    def _path(self, jar: Jar) -> Path:
        return self.directory / "jars" / jar.path

    def _missing(self, jars: Sequence[Jar]) -> list[Jar]:
        # The checksum was checked after the download. The size detects truncated files.
        return [jar for jar in jars if _size(self._path(jar)) != jar.size]

    def _fetch_all(self, jars: Sequence[Jar]) -> None:
        total = sum(jar.size for jar in jars)
        with (
            show_progress(f"Fetching Kafka: {len(jars)} jars", total) as advance,
            tempfile.TemporaryDirectory(dir=self.directory, prefix="fetching-") as scratch,
            ThreadPoolExecutor(_WORKERS, "jars") as pool,
        ):
            tasks = {pool.submit(self._fetch_one, jar, Path(scratch), advance): jar for jar in jars}
            try:
                for task in as_completed(tasks):
                    task.result()
            except (OSError, RuntimeError) as error:
                raise self._unavailable(tasks[task], jars, error) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _unavailable(
        self, failed: Jar, jars: Sequence[Jar], cause: BaseException
    ) -> JarsUnavailableError:
        missing = [jar.coordinates for jar in self._missing(jars)]
        error = JarsUnavailableError(
            f"could not fetch {failed.coordinates}: {cause}. {len(missing)} of Kafka's jars are "
            f"missing in {self.directory / 'jars'}; downloaded jars are kept. Retry with a "
            f"network, set a Maven repository in {REPOSITORY_VARIABLE}, or copy this directory "
            "from a machine that has all jars"
        )
        error.missing = tuple(missing)
        return error

    def _fetch_one(self, jar: Jar, scratch: Path, advance: Callable[[int], None]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            if self._stopped.is_set():
                raise JarsUnavailableError("the download was stopped")
            # A new directory for each attempt: jgo accepts a partial file of an earlier attempt.
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
                advance(jar.size)
                return

    def _check(self, jar: Jar, path: Path) -> None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != jar.sha256:
            raise JarsUnavailableError(
                f"{jar.coordinates} is not the jar that the lock names: its SHA-256 is {digest} "
                f"instead of {jar.sha256}"
            )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


# --- The progress of a download on stderr: a bar on a terminal, else a few plain lines ------------


@contextmanager
def show_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a rich bar if stderr is a terminal and rich is installed, else plain lines.

    Yields the function that counts downloaded bytes. Several threads may call it."""
    bar = _bar() if sys.stderr.isatty() else None
    if bar is None:
        yield _lines(title, total)
        return
    with bar:
        yield partial(bar.advance, bar.add_task(title, total=total))


def _bar() -> Progress | None:
    try:
        import rich.console  # noqa: PLC0415 - rich is an extra, and slow to import
        import rich.progress  # noqa: PLC0415
    except ImportError:
        return None
    return rich.progress.Progress(
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
        console=rich.console.Console(stderr=True),
    )


def _lines(title: str, total: int) -> Callable[[int], None]:
    """Writes a line now, and one at each quarter."""
    done = 0
    lock = threading.Lock()

    def advance(size: int) -> None:
        nonlocal done
        with lock:
            before, done = 4 * done // total, done + size
            quarters = 4 * done // total
            if quarters > before:
                sys.stderr.write(f"{title}, {25 * quarters} %\n")

    sys.stderr.write(f"{title}, {total / 1e6:.0f} MB\n")
    return advance
