"""``ProducerMetricsCollector``: exports the metrics of a producer to a Prometheus registry."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import Counter
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import REGISTRY

from kafkaclient.errors import ProducerClosedError, ProducerStateError
from kafkaclient.hooks import FinishedBatch, FinishedRequest, Hooks
from kafkaclient.prometheus.families import Families, FirstSeen, Reading
from kafkaclient.prometheus.histogram import BYTES, SECONDS, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from kafkaclient.producer.producer import Producer

P = TypeVar("P", bound="Producer")

_PRODUCE = "PRODUCE"


class ProducerMetricsCollector(Hooks):
    """Exports the metrics of one producer. Give it to the producer as ``hooks``, then call
    :meth:`observe`::

        metrics = ProducerMetricsCollector()
        producer = metrics.observe(Producer("localhost:9092", client_id="orders", hooks=metrics))

    Several producers can have the same registry: each needs a collector and a ``client.id`` of its
    own, which is the label ``client_id``. The registry may be read in any thread: the collector
    reads the producer on the producer's event loop. Before the start, and after the end, of the
    producer the page has ``kafkaclient_producer_up`` 0. A producer that was dropped has no series.

    Parameters:
        registry: prometheus-client's default registry, or another.
        topic_limit: for how many topics there are series by topic. Further topics count in
            ``kafkaclient_producer_series_left_out`` and in all series without a topic. Series of a
            topic end when the producer forgets the topic (``metadata.max.idle.ms``).
        partition_limit: the same for series by partition; 0: there are none.
        timeout_s: how long to wait for the producer's event loop, in seconds. If the loop does
            not answer in this time, ``kafkaclient_producer_up`` is 0, and the producer's other
            series are missing on this page.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        topic_limit: int = 200,
        partition_limit: int = 0,
        timeout_s: float = 2.0,
    ) -> None:
        self._registry = registry
        self._topics = FirstSeen(topic_limit)
        self._partitions = FirstSeen(partition_limit)
        self._timeout_s = timeout_s
        self._producer: weakref.ref[Producer] | None = None
        self._client_id = ""
        self._process = os.getpid()
        self._queue_times = Histogram(SECONDS)
        self._delivery_times = Histogram(SECONDS)
        self._batch_sizes = Histogram(BYTES)
        self._latencies: dict[int, Histogram] = {}
        self._failed_requests: Counter[int] = Counter()

    def observe(self, producer: P) -> P:
        """Export the metrics of ``producer`` from now on; returns ``producer``.

        Can be called before or after the producer's start, in any thread.

        Raises:
            ValueError: the producer does not have this collector among its ``hooks``; the
                collector observes another producer; a producer with the same ``client.id`` is in
                the registry, and has not been stopped; or the registry has other metrics with
                these names.
        """
        client_id = producer.config.client_id
        if self not in producer.config.hooks:
            raise ValueError(
                f"producer {client_id!r} does not report to this collector: create the producer "
                "with hooks=collector"
            )
        observed = self._observed()
        if observed is producer:
            return producer
        if self._producer is not None:
            raise ValueError("the collector observes another producer: create one for each")
        page = _page_of(self._registry)
        page.check_free(client_id)
        self._client_id = client_id
        self._process = os.getpid()
        self._producer = weakref.ref(producer)
        page.add(self)
        return producer

    # --- hooks, on the producer's event loop ----------------------------------------------------

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
        """Whether the producer cannot report any more: it is stopped, dropped, or the parent
        process's."""
        producer = self._observed()
        if producer is None or self._process != os.getpid():
            return True
        if producer._left_open() is not None:
            return False
        try:
            producer.metrics()
        except ProducerClosedError:
            return True
        except ProducerStateError:
            return False  # it has not been started yet
        return True

    def is_gone(self) -> bool:
        """Whether the producer was dropped, or belongs to the parent process."""
        return self._observed() is None or self._process != os.getpid()

    def request(self) -> tuple[Future[tuple[bool, Reading | None]], float]:
        """Ask for the producer's values; at once, if nothing can change them meanwhile.

        Returns a future of whether the producer runs, and of its values, None before the start;
        and the time (``time.monotonic``) until which to wait for the future.
        """
        future: Future[tuple[bool, Reading | None]] = Future()
        producer = self._observed()
        opened = None if producer is None else producer._left_open()
        loop = None if opened is None else opened.loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            self._answer(future)
        else:
            try:
                loop.call_soon_threadsafe(self._answer, future)
            except RuntimeError:  # the loop was closed meanwhile
                self._answer(future)
        return future, time.monotonic() + self._timeout_s

    def add_to(
        self,
        families: Families,
        future: Future[tuple[bool, Reading | None]],
        deadline_s: float,
    ) -> None:
        """Add the producer's series; ``future`` and ``deadline_s`` are from :meth:`request`."""
        try:
            up, read = future.result(max(deadline_s - time.monotonic(), 0.0))
        except TimeoutError:
            future.cancel()
            up, read = False, None
        families.add_up(self._client_id, up)
        if read is not None:
            families.add(self._client_id, read, self._topics, self._partitions)

    def _answer(self, future: Future[tuple[bool, Reading | None]]) -> None:
        if not future.set_running_or_notify_cancel():
            return  # the reader has given up
        try:
            future.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - the reader's thread raises it
            future.set_exception(error)

    def _read(self) -> tuple[bool, Reading | None]:
        producer = self._observed()
        if producer is None:
            return False, None
        try:
            partitions = self._partitions.is_wanted
            metrics = producer.metrics(partitions=partitions)
            load = producer.load(partitions=partitions)
        except ProducerStateError:  # not started, or a forked child's
            return False, None
        return producer._left_open() is not None, Reading(
            metrics,
            load,
            self._queue_times.read(),
            self._delivery_times.read(),
            self._batch_sizes.read(),
            {broker: latencies.read() for broker, latencies in self._latencies.items()},
            dict(self._failed_requests),
        )

    def _observed(self) -> Producer | None:
        return None if self._producer is None else self._producer()


class _Page:
    """A registry's collector for all producers: a page may have each family once only."""

    def __init__(self) -> None:
        # Replaced, never changed: threads may be reading it.
        self._collectors: tuple[ProducerMetricsCollector, ...] = ()

    def check_free(self, client_id: str) -> None:
        for other in self._collectors:
            if other.client_id == client_id and not other.has_ended():
                raise ValueError(
                    f"the registry has a producer with client.id {client_id!r}: give each "
                    "producer a client_id of its own"
                )

    def add(self, collector: ProducerMetricsCollector) -> None:
        """Add a collector, which replaces that of an ended producer with the same client.id."""
        kept = (
            other
            for other in self._collectors
            if not other.is_gone() and other.client_id != collector.client_id
        )
        self._collectors = (*kept, collector)

    def describe(self) -> Iterable[Metric]:
        """The names that no other collector of the registry may have."""
        return Families().all()

    def collect(self) -> Iterable[Metric]:
        collectors = [each for each in self._collectors if not each.is_gone()]
        asked = [(each, *each.request()) for each in collectors]  # all loops at the same time
        families = Families()
        for each, future, deadline_s in asked:
            each.add_to(families, future, deadline_s)
        return families.with_samples()


_pages: weakref.WeakKeyDictionary[CollectorRegistry, _Page] = weakref.WeakKeyDictionary()


def _page_of(registry: CollectorRegistry) -> _Page:
    page = _pages.get(registry)
    if page is None:
        page = _Page()
        registry.register(page)
        _pages[registry] = page
    return page
