"""``ProducerMetricsCollector``: exports the metrics of a producer to a Prometheus registry."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import Counter
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import REGISTRY

from kafkaclient.errors import ProducerStateError
from kafkaclient.hooks import FinishedBatch, FinishedRequest, Hooks
from kafkaclient.net.off_loop import guard
from kafkaclient.prometheus.families import (
    BYTES,
    SECONDS,
    Families,
    FirstSeen,
    Histogram,
    Pages,
    Reading,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from kafkaclient.producer.producer import Producer

_log = logging.getLogger(__name__)

_PRODUCE = "PRODUCE"


class Scrape(NamedTuple):
    """What was read of a producer."""

    up: bool
    """Whether the producer runs."""
    reading: Reading | None
    """None: the producer cannot be read any more."""


class PendingScrape(NamedTuple):
    """A scrape that the producer's event loop was asked for."""

    future: Future[Scrape]
    deadline_s: float
    """Until when to wait for the future (``time.monotonic``)."""


class ProducerMetricsCollector(Hooks):
    """Exports the metrics of one producer: give it to the producer as ``hooks``::

        producer = Producer("localhost:9092", client_id="orders", hooks=ProducerMetricsCollector())

    The producer's series are on the page from the end of its start. After its end, or while its
    event loop does not run, they keep their last values, and ``kafkaclient_producer_up`` is 0. A
    producer that was dropped has no series.

    Several producers can have the same registry: each needs a collector and a ``client.id`` of its
    own, which is the label ``client_id``. A producer that is started while another one has its
    collector, or its ``client.id`` on the page, gets no series; an error is logged. After the
    other one's end both are free. So the producers of a :class:`kafkaclient.SyncProducer` in
    forked children can use one collector. The registry may be read in any thread: the collector
    reads the producer on the producer's event loop.

    Parameters:
        registry: prometheus-client's default registry, or another.
        topic_limit: for how many topics there are series by topic. Further topics count in
            ``kafkaclient_producer_series_left_out`` and in all series without a topic. Series of a
            topic end when the producer forgets the topic (``metadata.max.idle.ms``).
        partition_limit: the same for series by partition; 0: there are none.
        timeout_s: how long to wait for the producer's event loop, in seconds. If the loop does
            not answer in this time, ``kafkaclient_producer_up`` is 0, and the producer's other
            series are missing on this page.

    Raises:
        ValueError: a limit is negative, ``timeout_s`` is no positive number, or the registry has
            other metrics with these names.
        TypeError: ``registry`` is no registry.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        topic_limit: int = 200,
        partition_limit: int = 0,
        timeout_s: float = 2.0,
    ) -> None:
        if topic_limit < 0 or partition_limit < 0:
            raise ValueError("topic_limit and partition_limit must not be negative")
        if not hasattr(registry, "register"):
            raise TypeError(f"registry must be a CollectorRegistry, not {registry!r}")
        if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout_s must be a positive number of seconds: {timeout_s!r}")
        self._page = _pages.of(registry)
        self._topics = FirstSeen(topic_limit)
        self._partitions = FirstSeen(partition_limit)
        self._timeout_s = timeout_s
        self._producer: weakref.ref[Producer] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client_id = ""
        self._process = 0
        self._reset()

    def _reset(self) -> None:
        self._queue_times = Histogram(SECONDS)
        self._delivery_times = Histogram(SECONDS)
        self._batch_sizes = Histogram(BYTES)
        self._latencies: dict[int, Histogram] = {}
        self._failed_requests: Counter[int] = Counter()

    # --- hooks, on the producer's event loop ----------------------------------------------------

    def on_start(self, producer: Any) -> None:
        if self._producer is not None:
            if not self.has_ended():
                _log.error(
                    "%r has no series: its collector is in use, create one for each producer",
                    producer,
                )
                producer._core.leave_out(self)  # else its batches count as the other producer's
                return
            self._reset()
        self._loop = asyncio.get_running_loop()
        self._client_id = producer.config.client_id
        self._process = os.getpid()
        self._producer = weakref.ref(producer)
        if not self._page.add(self):
            _log.error(
                "%r has no series: the registry has a producer with client.id %r, give each "
                "producer a client_id of its own",
                producer,
                self._client_id,
            )

    def on_batch(self, batch: FinishedBatch) -> None:
        sent_s = batch.sent_s
        self._queue_times.observe((batch.done_s if sent_s is None else sent_s) - batch.created_s)
        if sent_s is not None:
            self._batch_sizes.observe(batch.bytes)
        if batch.error is None:
            self._delivery_times.observe(batch.done_s - batch.created_s)

    def on_request(self, request: FinishedRequest) -> None:
        if request.error is not None:
            self._failed_requests[request.broker] += 1
        elif request.api == _PRODUCE:
            latencies = self._latencies.get(request.broker)
            if latencies is None:
                latencies = self._latencies[request.broker] = Histogram(SECONDS)
            latencies.observe(request.latency_s)

    # --- reading, in any thread -----------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """``client.id`` of the observed producer."""
        return self._client_id

    def has_ended(self) -> bool:
        """Whether the producer is stopped or dropped, its event loop is closed, or it is the parent
        process's."""
        producer, loop = self._observed(), self._loop
        return producer is None or producer.is_stopped or loop is None or loop.is_closed()

    def is_gone(self) -> bool:
        """Whether the producer cannot be read: it was dropped, or is the parent process's."""
        return self._observed() is None

    def request(self) -> PendingScrape:
        """Ask the producer's event loop for the producer's values; they are read at once if the
        event loop does not run, or runs this call."""
        future: Future[Scrape] = Future()
        loop = None if self.has_ended() else self._loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            self._answer(future)
        else:
            try:
                loop.call_soon_threadsafe(self._answer, future)
            except RuntimeError:  # the loop was closed meanwhile
                self._answer(future)
        return PendingScrape(future, time.monotonic() + self._timeout_s)

    def add_to(self, families: Families, scrape: PendingScrape) -> None:
        """Wait for ``scrape``, and add the producer's series. Raises nothing: other producers'
        series are on the same page."""
        up = False
        try:
            left_s = max(scrape.deadline_s - time.monotonic(), 0.0)
            up, reading = scrape.future.result(left_s)
            if reading is not None:
                families.add(self._client_id, reading, self._topics, self._partitions)
        except TimeoutError:
            scrape.future.cancel()
        except Exception:  # noqa: BLE001 - it is logged
            up = False
            _log.exception("the metrics of producer %r cannot be read", self._client_id)
        families.add_up(self._client_id, up)

    def _answer(self, future: Future[Scrape]) -> None:
        if not future.set_running_or_notify_cancel():
            return  # the reader has given up
        try:
            future.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - the reader's thread raises it
            future.set_exception(error)

    def _read(self) -> Scrape:
        producer = self._observed()
        if producer is None:
            return Scrape(up=False, reading=None)
        partitions = self._partitions.is_wanted
        try:
            metrics = producer.metrics(partitions=partitions)
            load = producer.load(partitions=partitions)
        except ProducerStateError:  # this is a forked child
            return Scrape(up=False, reading=None)
        reading = Reading(
            metrics,
            load,
            self._queue_times.read(),
            self._delivery_times.read(),
            self._batch_sizes.read(),
            {broker: latencies.read() for broker, latencies in self._latencies.items()},
            dict(self._failed_requests),
        )
        loop = self._loop
        return Scrape(not self.has_ended() and loop is not None and loop.is_running(), reading)

    def _observed(self) -> Producer | None:
        if self._producer is None or self._process != os.getpid():
            return None
        return self._producer()


class _Page:
    """A registry's collector for all producers: a page may have each family once only."""

    def __init__(self) -> None:
        self._collectors: dict[str, ProducerMetricsCollector] = {}
        self._lock = threading.Lock()
        guard(self)

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.off_loop.Forkable`."""
        self._lock = threading.Lock()

    def add(self, collector: ProducerMetricsCollector) -> bool:
        """Add a collector, which replaces an ended producer's. False: a producer that has not
        ended has the same client.id."""
        with self._lock:
            self._collectors = {
                client_id: each
                for client_id, each in self._collectors.items()
                if each is not collector and not each.is_gone()
            }
            other = self._collectors.get(collector.client_id)
            is_free = other is None or other.has_ended()
            if is_free:
                self._collectors[collector.client_id] = collector
            return is_free

    def describe(self) -> Iterable[Metric]:
        """The names that no other collector of the registry may have."""
        return Families().all()

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            collectors = [each for each in self._collectors.values() if not each.is_gone()]
        asked = [(each, each.request()) for each in collectors]  # all loops at the same time
        families = Families()
        for each, scrape in asked:
            each.add_to(families, scrape)
        return families.with_samples()


_pages = Pages(_Page)
