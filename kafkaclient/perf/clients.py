"""The protocol of clients that a load can drive, and this package's producer behind it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import fields
from functools import partial
from importlib import import_module
from math import isnan, nan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

import kafkaclient
from kafkaclient.errors import BufferFullError, ConfigError, KafkaError
from kafkaclient.perf.slices import BatchShare, Slice
from kafkaclient.perf.traffic import BrokerTraffic, PartitionTraffic, Traffic, unheard
from kafkaclient.producer.batches.waiters import Callback
from kafkaclient.producer.bulk.bulk_delivery import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.hooks import Hooks
    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.perf.traffic import Completed, KeyValue
    from kafkaclient.producer.batches.batch_result import Run
    from kafkaclient.producer.batches.delivery import Delivery


class LoadClient(Protocol):
    """A client as the load loop uses it: for one run, to one topic."""

    @property
    def name(self) -> str: ...

    async def start(self, completed: Completed) -> None:
        """Connect; ``completed`` is called for all records that have their outcome."""

    async def send(self, records: list[KeyValue], started: float) -> int:
        """Take records in order, each with one call of the client, and return how many.

        Waits for buffer space for the first record only; at least one record is taken. The
        records' latency runs from ``started``; a client that waits at any record counts from there.
        """

    async def begin_transaction(self) -> None:
        """Begin a transaction, to which all later records belong; needs ``transactional.id``."""

    async def commit_transaction(self) -> None:
        """Commit the transaction."""

    async def flush(self) -> None:
        """Return once ``completed`` was called for every record taken."""

    async def stop(self, timeout: float | None = None) -> None:
        """Disconnect; records without an outcome after ``timeout`` seconds fail."""

    def traffic(self) -> Traffic | None:
        """The records and requests so far, by broker and partition; None: not known.

        Can be called after ``stop``, and is complete then.
        """

    def metrics(self) -> MetricsSnapshot | None:
        """The client's metrics at the time of ``stop``; None if it has none."""


class KafkaclientClient:
    """This package's producer."""

    name = "kafkaclient"

    def __init__(
        self,
        config: Mapping[str, str],
        topic: str,
        *,
        dialer: Dialer | None = None,
        metrics: Hooks | None = None,
    ) -> None:
        hooks = () if metrics is None else metrics
        self._producer = kafkaclient.Producer(config, dialer=dialer, hooks=hooks)
        self._topic = topic
        self._completed: Completed = unheard
        self._started = False
        self._metrics: MetricsSnapshot | None = None

    async def start(self, completed: Completed) -> None:
        self._completed = completed
        await self._producer.start()
        self._started = True

    async def send(self, records: list[KeyValue], started: float) -> int:
        taken = self._send_nowait(records, started)
        if taken:
            return taken
        key, value = records[0]
        try:
            delivery = await self._producer.send(self._topic, value, key=key)
        except KafkaError as error:
            self._refused(started, error)
        else:
            self._watch(BatchShare(delivery, 1, len(value) + len(key or b"")), started)
        return 1

    def _send_nowait(self, records: list[KeyValue], started: float) -> int:
        """Hand over records until there is no buffer space; returns how many were taken."""
        given = Slice()
        while given.taken < len(records):
            try:
                given.hand_over(self._producer.send_nowait, self._topic, records)
            except BufferFullError:
                break
            except KafkaError as error:
                self._refused(started, error)
                given.taken += 1
        for run in given.runs.values():
            self._watch(run, started)
        return given.taken

    def _watch(self, run: BatchShare, started: float) -> None:
        run.last.add_done_callback(partial(self._answered, started, run.count, run.nbytes))

    async def begin_transaction(self) -> None:
        await self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        await self._producer.commit_transaction()

    async def flush(self) -> None:
        await self._producer.flush()

    async def stop(self, timeout: float | None = None) -> None:
        if self._started:
            # Like Kafka's tool, before the connections are closed that metrics are about.
            self._metrics = self._producer.metrics()
        await self._producer.stop(timeout)

    def traffic(self) -> Traffic | None:
        if not self._started:
            return None
        load = self._producer.load()
        skew = load.skew.get(self._topic, nan)
        names = [field.name for field in fields(BrokerTraffic)]
        partitions = (
            PartitionTraffic(p.partition, p.leader, p.records_sent, p.bytes_sent, p.batches_bound)
            for p in load.partitions
            if p.topic == self._topic
        )
        return Traffic(
            brokers=tuple(BrokerTraffic(*(getattr(b, n) for n in names)) for b in load.brokers),
            partitions=tuple(sorted(partitions, key=lambda each: each.partition)),
            skew=None if isnan(skew) else skew,
        )

    def metrics(self) -> MetricsSnapshot | None:
        return self._metrics

    def _answered(self, started: float, count: int, nbytes: int, last: Delivery) -> None:
        run = (last._batch_result, last._index - count + 1, count)
        self._count(started, nbytes, run)

    def _count(self, started: float, nbytes: int, run: Run) -> None:
        """Report the records of a batch, which may have been split meanwhile."""
        finished, total, before = perf_counter(), run[2], 0
        for part, first, count in parts_of(*run):
            share = nbytes * (before + count) // total - nbytes * before // total
            before += count
            if not part.done:
                again = partial(self._count, started, share)
                loop = asyncio.get_running_loop()
                part.when_done(first, Callback(loop, again, (part, first, count), 0))
            elif part.record_errors is None:
                self._completed(started, finished, count, share, part.error)
            else:
                for index in range(first, first + count):
                    self._completed(started, finished, 1, 0, part.error_of(index))

    def _refused(self, started: float, error: KafkaError) -> None:
        # Java's send() also calls the callback for a record that it refuses.
        self._completed(started, perf_counter(), 1, 0, error)


MakeClient: TypeAlias = "Callable[[Mapping[str, str], str], LoadClient]"
"""``make(config by Kafka's dotted names, topic)``: the client, not started."""

CLIENTS: dict[str, MakeClient] = {KafkaclientClient.name: KafkaclientClient}
"""The clients of an installation, by name."""


def client_maker(name: str) -> MakeClient:
    """Makes the client of this name: one of :data:`CLIENTS`, or in a clone of the repository one of
    ``benchmarks/perf_peers.py``. Raises ConfigError for an unknown name."""
    if name in CLIENTS:
        return CLIENTS[name]
    root = str(Path(__file__).parents[2])
    if root not in sys.path:  # as with ``python -m`` in a clone
        sys.path.append(root)
    try:
        peers: Mapping[str, MakeClient] = import_module("benchmarks.perf_peers").PEERS
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"no client {name!r}; there is {', '.join(CLIENTS)}: other producers are driven from a "
            "clone of the repository"
        ) from error
    if name not in peers:
        raise ConfigError(f"no client {name!r}; there are {', '.join([*CLIENTS, *peers])}")
    return peers[name]


def make_client(
    name: str,
    config: Mapping[str, str],
    topic: str,
    metrics: Hooks | None = None,
) -> LoadClient:
    """The client of this name, not started. ``metrics`` observes this package's producer; other
    clients do without. Raises ConfigError for an unknown name or option."""
    if metrics is not None and name == KafkaclientClient.name:
        return KafkaclientClient(config, topic, metrics=metrics)
    return client_maker(name)(config, topic)
