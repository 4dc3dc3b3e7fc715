"""The process of one client's load: ``python -m experiments.chaos.worker``.

Reads its :class:`Spec` as a line of JSON from stdin, writes a line to stdout when the client has
connected, and reads the time to begin at. Then it writes every record's outcome to a file, and each
second a :class:`Sample` to stdout as a line of JSON; the last line is the :class:`End`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.chaos.clients import cause_of, make_client
from experiments.chaos.outcomes import OutcomeWriter
from experiments.chaos.streams import Spec, order, stamp
from kafkaclient.time_limit import loop_factory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from experiments.chaos.clients import ChaosClient

__all__ = ["GIVE_UP_S", "End", "Load", "Sample", "run"]

GIVE_UP_S = 150.0
"""Seconds to wait for outcomes after the last record: more than ``delivery.timeout.ms``."""

_TICK_S = 0.004
_SLICE = 64
_TASKS = 4  # tasks that send to each producer
_SAMPLE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at a moment ``at`` seconds after the load began."""

    at: float
    sent: int
    acked: int
    failed: int
    rss_bytes: int
    tasks: int
    files: int


@dataclass(frozen=True, slots=True)
class End:
    """The facts about a load that are not in the file of outcomes."""

    sent: Sequence[int]
    """Number of records that each stream handed to the client."""
    causes: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    """Cause -> one of its error messages."""
    retried: int | None = None
    """Number of times that a record was sent again; None: the client does not count."""


class Load:
    """Sends a spec's records through started producers, and counts outcomes."""

    def __init__(
        self,
        spec: Spec,
        writer: OutcomeWriter,
        begins_at: float,
        clock: Callable[[], float],
    ) -> None:
        self.sent = [0] * len(spec.streams)
        self.acked = self.failed = 0
        self.causes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._spec = spec
        self._writer = writer
        self._begins_at = begins_at
        self._clock = clock

    def now(self) -> float:
        """Seconds since the load began."""
        return self._clock() - self._begins_at

    async def drive(self, producer: int, client: ChaosClient) -> None:
        """Send one producer's records, each when it is due, without waiting for earlier outcomes.

        Several tasks send at once, so that the first calls meet a client that does not yet know the
        topics.
        """
        spec, streams = self._spec, self._spec.streams
        places = order(spec, producer)
        rate, sent = spec.rate / spec.producers, 0
        await asyncio.sleep(max(0.0, -self.now()))

        async def send_due() -> None:
            nonlocal sent
            while (now := self.now()) < spec.seconds:
                # In slices, so that a load that is behind sees the end of its time.
                until = min(int(now * rate), sent + _SLICE)
                while sent < until:
                    place = places[sent % len(places)]
                    sent += 1
                    await self._send(client, producer, place, *self._target(streams[place]))
                await asyncio.sleep(0 if sent < int(self.now() * rate) else _TICK_S)

        await asyncio.gather(*[send_due() for _ in range(_TASKS)])

    @staticmethod
    def _target(stream: Any) -> tuple[str, bytes | None, int | None]:
        return stream.kind, stream.key, stream.partition

    async def _send(
        self,
        client: ChaosClient,
        producer: int,
        place: int,
        kind: str,
        key: bytes | None,
        partition: int | None,
    ) -> None:
        number, sent_at = self.sent[place], self.now()
        self.sent[place] = number + 1
        value = stamp(producer, place, number, sent_at, self._spec.record_size)
        done = partial(self._done, place, number, sent_at)
        try:
            await client.send(self._spec.topics[kind], value, key, partition, done)
        except Exception as error:  # noqa: BLE001 - each client has its own; all are counted
            done(error, -1, -1)

    def _done(
        self,
        place: int,
        number: int,
        sent_at: float,
        error: BaseException | None,
        partition: int,
        offset: int,
    ) -> None:
        if error is None:
            self.acked += 1
        else:
            self.failed += 1
            cause = cause_of(error)
            self.causes[cause] += 1
            self.examples.setdefault(cause, str(error))
        latency = self.now() - sent_at
        self._writer.add(place, number, error is None, sent_at, latency, partition, offset)

    def end(self, retried: int | None) -> End:
        """The load's facts, once every producer has stopped."""
        return End(self.sent, dict(self.causes), self.examples, retried)


async def run(
    spec: Spec,
    begins_at: Callable[[], Awaitable[float]],
    report: Callable[[dict[str, Any]], None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Make the load, and pass facts about it to ``report``.

    ``begins_at()`` is awaited once all producers have connected, and returns a time of ``clock``.
    """
    config = {"bootstrap.servers": spec.bootstrap, "client.id": "kafkaclient-chaos", **spec.options}
    clients = [make_client(spec.way or spec.client, config) for _ in range(spec.producers)]
    await asyncio.gather(*(client.start() for client in clients))
    report({"ready": True})
    begins = await begins_at()
    with OutcomeWriter(Path(spec.outcomes)) as writer:
        load = Load(spec, writer, begins, clock)
        sampler = asyncio.create_task(_sample(load, report))
        try:
            await asyncio.gather(
                *(load.drive(producer, client) for producer, client in enumerate(clients))
            )
            await asyncio.gather(*(client.stop(GIVE_UP_S) for client in clients))
        finally:
            sampler.cancel()
    retries = [client.retried() for client in clients]
    known = [number for number in retries if number is not None]
    report({"end": asdict(load.end(sum(known) if known else None))})


async def _sample(load: Load, report: Callable[[dict[str, Any]], None]) -> None:
    process = import_module("psutil").Process()
    while True:
        await asyncio.sleep(_SAMPLE_EVERY_S)
        sample = Sample(
            at=round(load.now(), 3),
            sent=sum(load.sent),
            acked=load.acked,
            failed=load.failed,
            rss_bytes=process.memory_info().rss,
            tasks=len(asyncio.all_tasks()),
            files=process.num_fds(),
        )
        report({"sample": asdict(sample)})


def _report(fact: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read the spec from stdin, and make its load."""
    spec = Spec.from_json(json.loads(sys.stdin.readline()))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(spec, lambda: asyncio.to_thread(_begins_at), _report))


def _begins_at() -> float:
    return float(json.loads(sys.stdin.readline()))


if __name__ == "__main__":
    main()
