"""An instance: ``python -m experiments.counting.worker``.

Reads its options as a line of JSON from stdin. Stops after SIGTERM, or when stdin ends, which means
that the experiment's process is gone. Writes its :class:`Status` as a line of JSON ten times a
second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from typing import Any

from experiments.counting.routes import RoutedLoop
from experiments.counting.status import Status
from kafkaclient.errors import KafkaError
from kafkaclient.streams import StreamsApp
from kafkaclient.streams.tasks import TaskState

__all__ = ["add_one", "burn"]

_REPORT_EVERY_S = 0.1
_NUMBER_BYTES = 8


def add_one(known: bytes | None, padding: bytes) -> tuple[int, bytes]:
    """A key's next number, and the value to store: the number with bytes that make it large."""
    number = int.from_bytes((known or b"")[:_NUMBER_BYTES], "big") + 1
    return number, number.to_bytes(_NUMBER_BYTES, "big") + padding


def burn(cpu_s: float) -> None:
    """Use this much of the thread's CPU time, without giving way to the event loop."""
    ends = time.thread_time() + cpu_s
    while time.thread_time() < ends:
        pass


def status(app: StreamsApp) -> Status:
    """The status of this instance."""
    tasks, read = app.tasks(), app.changelog_bytes
    return Status(
        running=[str(t.task) for t in tasks if t.state is TaskState.RUNNING],
        restoring=[str(t.task) for t in tasks if t.state is TaskState.RESTORING],
        copies={str(t.task): t.lag for t in tasks if t.state is TaskState.STANDBY},
        restored_bytes=read.restored,
        followed_bytes=read.followed,
    )


async def _report(app: StreamsApp) -> None:
    while True:
        sys.stdout.write(json.dumps(asdict(status(app))) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(_REPORT_EVERY_S)


def _register(app: StreamsApp, source: str, target: str, store: str, options: Any) -> None:
    padding = os.urandom(max(0, options["value_size"] - _NUMBER_BYTES))
    cpu_s = options["cpu_ms"] / 1000

    @app.processor(source, store=store)
    async def count(record: Any, store: Any, emit: Any) -> None:
        burn(cpu_s)
        number, value = add_one(store.get(record.key), padding)
        store[record.key] = value
        await emit(target, b"%d" % number, record.key)


async def _main(options: dict[str, Any]) -> None:
    app = StreamsApp(**options["app"])
    for source, target, store in options["processors"]:
        _register(app, source, target, store, options)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, app.stop)
    loop.add_reader(sys.stdin, app.stop)  # readable means ended: nothing else is written to it
    reporting = asyncio.create_task(_report(app))
    try:
        await app.run()
    finally:
        reporting.cancel()


def _run(options: dict[str, Any]) -> None:
    ports = {int(port): proxy for port, proxy in options["ports"].items()}
    with asyncio.Runner(loop_factory=lambda: RoutedLoop(ports)) as runner:
        runner.run(_main(options))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    try:
        _run(json.loads(sys.stdin.readline()))
    except KafkaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
