"""A member of the group: ``python -m experiments.consumer_chaos.worker``.

Reads its options as a line of JSON from stdin. SIGUSR1 cancels its loop, SIGUSR2 the task that has
the consumer; then another loop begins, or another consumer. Stops after SIGTERM, or when stdin
ends. Writes its :class:`~experiments.counting.status.Status` as lines of JSON, and to a file what
it does: :class:`~experiments.consumer_chaos.member_log.MemberLog`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from experiments.consumer_chaos.member_log import MemberLog
from experiments.counting.routes import RoutedLoop
from experiments.counting.status import Status
from kafkaclient.consumer import Consumer, RebalanceListener
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Set

    from kafkaclient.types import TopicPartition

_REPORT_EVERY_S = 0.2
_PAUSES_S = ((0.0005, 0.5), (0.02, 0.005))
"""Share of the records whose handler waits, and for how long, unless the option ``is_swift``."""


class _Noted(RebalanceListener):
    def __init__(self, log: MemberLog) -> None:
        self._log = log

    def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        self._log.partitions("assigned", partitions)

    def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        self._log.partitions("revoked", partitions)

    def on_lost(self, partitions: Set[TopicPartition]) -> None:
        self._log.partitions("lost", partitions)


class _Worker:
    """One consumer after the other, until stopped."""

    def __init__(self, options: dict[str, Any], log: MemberLog, *, is_swift: bool) -> None:
        self._options = options
        self._pauses = () if is_swift else _PAUSES_S
        self._log = log
        self._rng = Random()
        self._consumer: Consumer | None = None
        self._membership: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def run(self) -> None:
        while not self._is_stopping:
            self._membership = asyncio.create_task(self._be_member())
            await asyncio.wait({self._membership})
            if not self._membership.cancelled():
                self._membership.result()

    async def _be_member(self) -> None:
        try:
            async with Consumer(**self._options, listener=_Noted(self._log)) as self._consumer:
                await self._run_loops(self._consumer)
        finally:
            self._log.stopped()

    async def _run_loops(self, consumer: Consumer) -> None:
        while True:
            self._loop = asyncio.create_task(self._consume(consumer))
            try:
                await asyncio.wait({self._loop})
            finally:
                if not self._loop.done():
                    self._loop.cancel()
                    await asyncio.wait({self._loop})
            if not self._loop.cancelled():
                self._loop.result()

    async def _consume(self, consumer: Consumer) -> None:
        assert consumer._runtime is not None
        gate = consumer._runtime.gate
        assert gate is not None
        async for record in consumer:
            surely = gate.is_in_session
            taken, drawn = time.time(), self._rng.random()
            for share, pause_s in self._pauses:
                if drawn < share:
                    await asyncio.sleep(pause_s)
                    break
            assert record.value is not None
            self._log.processed(
                *(taken, record.topic, record.partition, record.offset, record.value),
                surely=surely,
            )

    def cancel_loop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()

    def leave(self) -> None:
        if self._membership is not None:
            self._membership.cancel()

    def stop(self) -> None:
        self._is_stopping = True
        self.leave()

    async def report(self) -> None:
        while True:
            consumer = self._consumer
            running = consumer.assignment if consumer is not None and consumer.is_running else ()
            status = Status(running=[str(each) for each in running])
            sys.stdout.write(json.dumps(asdict(status)) + "\n")
            sys.stdout.flush()
            await asyncio.sleep(_REPORT_EVERY_S)


async def _main(options: dict[str, Any]) -> None:
    app = options["app"]
    disk = Path(app.pop("state_dir"))
    log = MemberLog(Path(options["logs"]) / f"{disk.name}-{os.getpid()}.members")
    worker = _Worker(app, log, is_swift=options.get("is_swift", False))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, worker.cancel_loop)
    loop.add_signal_handler(signal.SIGUSR2, worker.leave)
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    loop.add_reader(sys.stdin, worker.stop)  # readable means ended: nothing else is written to it
    reporting = asyncio.create_task(worker.report())
    try:
        await worker.run()
    finally:
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
        log.close()


def _run(options: dict[str, Any]) -> None:
    ports = {int(port): proxy for port, proxy in options["ports"].items()}
    with asyncio.Runner(loop_factory=lambda: RoutedLoop(ports)) as runner:
        runner.run(_main(options))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        _run(json.loads(sys.stdin.readline()))
    except KafkaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
