"""Runs the Java classes of Kafka: its brokers and its tools."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.testing.jre import MINIMUM_VERSION
from kafkaclient.testing.settings import HEAP_MB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


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
