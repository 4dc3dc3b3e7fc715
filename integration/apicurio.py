"""Apicurio Registry on 127.0.0.1, with the API of Confluent's schema registry. One archive of Maven
Central has all of it; it is kept in the cache of Kafka's jars."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.testing.broker import free_ports
from kafkaclient.testing.jars import REPOSITORY_VARIABLE, Jar, JarCache
from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator


class Archive(Jar):
    """An archive beside the jars of a module, with the classifier ``all``."""

    @property
    def path(self) -> Path:
        return super().path.with_name(f"{self.artifact}-{self.version}-all.tar.gz")


ARCHIVE = Archive(
    "io.apicurio",
    "apicurio-registry-app",
    "2.6.13.Final",
    "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba",
    142198683,
)


def _fetch(archive: Jar, directory: Path) -> Path:
    from jgo.maven import MavenContext  # noqa: PLC0415 - slow

    given = os.environ.get(REPOSITORY_VARIABLE)
    context = MavenContext(
        repo_cache=directory, remote_repos=None if given is None else {"given": given}, timeout=300
    )
    component = context.project(archive.group, archive.artifact).at_version(archive.version)
    return Path(component.artifact(classifier="all", packaging="tar.gz").resolve())


@contextmanager
def running_apicurio(directory: Path) -> Iterator[str]:
    """The URL of a new, empty registry, unpacked into ``directory``."""
    [archive] = JarCache(fetch=_fetch).ensure([ARCHIVE])
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    [port] = free_ports(1)
    command = [
        str(find_java().path),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dquarkus.http.host=127.0.0.1",
        f"-Dquarkus.http.port={port}",
        "-jar",
        str(next(directory.glob("*-runner.jar"))),
    ]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
        try:
            _wait_ready(process, f"{url}/subjects")
            yield url
        finally:
            process.terminate()
            process.wait(20)


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the registry has ended; see its log"
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - http on 127.0.0.1
                return
        except urllib.error.URLError:
            time.sleep(0.2)
    raise TimeoutError(url)
