"""Runs Kafka's Java tools on this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkaclient.testing.broker import Jvm

__all__ = ["ToolResult", "run_tool"]

_HEAP_MB = 512


class ToolResult(NamedTuple):
    """The exit code and the output of a Java tool."""

    returncode: int
    stdout: str
    stderr: str


async def run_tool(
    jvm: Jvm, main_class: str, arguments: tuple[str, ...], stdin: bytes
) -> ToolResult:
    """Run one of Kafka's Java classes, without log4j output."""
    command = jvm.command(
        main_class, arguments, heap_mb=_HEAP_MB, properties={"log4j2.level": "OFF"}
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
