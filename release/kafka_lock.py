"""Creates the lock file of a Kafka version: ``python -m release.kafka_lock 4.3.1``.

Maven resolves and copies the jars once, and this module writes their hashes into the lock file.
Installations only read it.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.testing.jars import Jar, cache_dir

if TYPE_CHECKING:
    from collections.abc import Sequence


_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>lock</groupId><artifactId>lock</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_KAFKA = "org.apache.kafka"
_LOG4J = "org.apache.logging.log4j"
_LOG4J_VERSION = "2.25.4"  # for Kafka versions whose poms have no log4j
# Poms up to Kafka 3 contain this binding. With two bindings slf4j uses the first one that it finds.
_OTHER_BINDING = ("org.slf4j", "slf4j-reload4j")


def make_lock(version: str, maven: str) -> str:
    """The text of the lock file: a broker of this version, its tools, their dependencies."""
    roots = [(_KAFKA, "kafka_2.13", version), (_KAFKA, "kafka-tools", version)]
    jars = _resolve(roots, maven)
    # Kafka's published poms lack the bridge from slf4j to log4j, which its distribution contains.
    by_name = {(jar.group, jar.artifact): jar.version for jar in jars}
    slf4j = by_name["org.slf4j", "slf4j-api"]
    bridge = "log4j-slf4j-impl" if slf4j.startswith("1.") else "log4j-slf4j2-impl"
    log4j = by_name.get((_LOG4J, "log4j-core"), _LOG4J_VERSION)
    jars = _resolve([*roots, (_LOG4J, bridge, log4j)], maven)
    # All versions use the same log4j2.properties.
    jars = [jar for jar in jars if (jar.group, jar.artifact) != _OTHER_BINDING]
    return format_lock(version, jars)


def format_lock(version: str, jars: Sequence[Jar]) -> str:
    """The text of a lock file. Kafka's jars are first, which makes class loading faster."""
    ordered = sorted(jars, key=lambda jar: (jar.group != "org.apache.kafka", jar.coordinates))
    lines = [f"{jar.sha256} {jar.size:>8} {jar.coordinates}" for jar in ordered]
    head = (
        f"# The jars of a Kafka {version} broker with its tools, in the order of the class path.\n"
        "# SHA-256, size in bytes, Maven coordinates.\n"
        f"# Made by: python -m release.kafka_lock {version}\n"
    )
    return head + "\n".join(lines) + "\n"


def scan(repository: Path) -> list[Jar]:
    """The jars in a directory with Maven's layout."""
    jars = []
    for path in sorted(repository.rglob("*.jar")):
        *group, artifact, version, _ = path.relative_to(repository).parts
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        jars.append(Jar(".".join(group), artifact, version, digest, path.stat().st_size))
    return jars


def _resolve(roots: Sequence[tuple[str, str, str]], maven: str) -> list[Jar]:
    with tempfile.TemporaryDirectory() as scratch:
        pom, repository = Path(scratch, "pom.xml"), Path(scratch, "jars")
        dependencies = "".join(_DEPENDENCY.format(*root) for root in roots)
        pom.write_text(_POM.format(dependencies=dependencies), "utf-8")
        command = [maven, "--quiet", "--batch-mode", "--file", str(pom)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={repository}", "-Dmdep.useRepositoryLayout=true"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return scan(repository)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(prog="python -m release.kafka_lock", description=__doc__)
    parser.add_argument("version", help="a Kafka version, for example 4.3.1")
    parser.add_argument("--output", type=Path, help="the file to write; default: the user's cache")
    options = parser.parse_args(arguments)
    maven = shutil.which("mvn")
    if maven is None:
        sys.exit("creating a lock needs Maven: there is no `mvn` on the PATH")
    output: Path = options.output or cache_dir() / "locks" / f"kafka-{options.version}.lock"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(make_lock(options.version, maven), "utf-8")
    sys.stderr.write(f"wrote {output}\n")


if __name__ == "__main__":
    main()
