"""The process that sends: reads a job from stdin, writes ``started`` and then its result.

``python -m benchmarks.produce.worker``; the result is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks.produce.entries import AIO, CONFLUENT, DROP_IN, KAFKA_PYTHON, OURS, PEER, RAW
from benchmarks.produce.entry import Job
from benchmarks.produce.result import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from benchmarks.produce.result import Measured

    Way = Callable[[Job, Callable[[], None]], Awaitable[Measured]]

__all__ = ["MODULES", "main"]

MODULES = {
    OURS: "ours",
    DROP_IN: "drop_in",
    PEER: "peers_aiokafka",
    CONFLUENT: "peers_confluent",
    AIO: "peers_aioproducer",
    KAFKA_PYTHON: "peers_kafka_python",
    RAW: "raw",
}


def _way(job: Job) -> Way:
    try:
        module = import_module(f"benchmarks.produce.{MODULES[job.entry.client]}")
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{error.name} is not installed: pip install 'kafkaclient[bench]'"
        ) from None
    ways: Mapping[str, Way] = module.WAYS
    return ways[job.entry.way]


async def _run(job: Job) -> Measured:
    return await _way(job)(job, lambda: print("started", flush=True))


def main() -> None:
    """Run the job; the exit status is 0 also when it says that the entry is unavailable."""
    job = Job.from_json(sys.stdin.read())
    factory = None
    try:
        if job.entry.loop == "uvloop":
            factory = import_module("uvloop").new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            result = asdict(runner.run(_run(job)))
    except (UnavailableError, ModuleNotFoundError) as error:
        result = {"unavailable": str(error)}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
