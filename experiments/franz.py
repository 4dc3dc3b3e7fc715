"""franz-go's producer, driven by the Go program in franz_go, which prints as Java's tool does."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.clients import client_config
from experiments.java import load_words, outcome
from kafkaclient.errors import ConfigError
from kafkaclient.testing.cluster import ToolResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.java import JavaOutcome
    from kafkaclient.perf.load import LoadSpec

__all__ = ["franz_command", "franz_program", "run_franz"]

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "experiments" / "franz_go"
_PROGRAM = _ROOT / "build" / "franz" / "load"


@cache
def franz_program() -> Path:
    """The program, which Go builds into ``build``; the first time, it downloads franz-go.

    Raises ConfigError without Go, and with Go's words if it cannot build the program.
    """
    go = shutil.which("go")
    if go is None:
        raise ConfigError("franz-go needs Go 1.26 or newer, and there is no program `go` here")
    built = subprocess.run(  # noqa: S603 - no words from outside
        [go, "build", "-trimpath", "-buildvcs=false", "-o", str(_PROGRAM), "."],
        cwd=_SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise ConfigError(
            f"Go cannot build the program for franz-go: {built.stderr.strip()[-600:]}"
        )
    return _PROGRAM


def franz_command(topic: str, config: Mapping[str, str], *words: str) -> list[str]:
    """The program's command line; its options have the names of Java's tool."""
    properties = dict(config)
    bootstrap = properties.pop("bootstrap.servers")
    return [
        str(franz_program()),
        *("--bootstrap-server", bootstrap, "--topic", topic, *words),
        *("--command-property", ",".join(f"{name}={value}" for name, value in properties.items())),
    ]


async def run_franz(
    bootstrap: str, topic: str, options: Mapping[str, str], spec: LoadSpec, record_size: int
) -> JavaOutcome:
    """The outcome of the load ``spec``, with acks=all and idempotence, franz-go's defaults.

    Raises ConfigError as :func:`franz_program`, KafkaError if the program fails.
    """
    command = franz_command(
        topic, client_config(bootstrap, options), *load_words(spec, record_size)
    )
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    told = ToolResult(process.returncode or 0, out.decode(), err.decode())
    return outcome("franz-go's load", topic, told)
