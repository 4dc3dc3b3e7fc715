"""``ProducerMetricsCollector``: exports the metrics of a producer to a Prometheus registry."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY

from kafkaclient.errors import ProducerStateError
from kafkaclient.hooks import FinishedBatch, FinishedRequest, Hooks
from kafkaclient.prometheus.families import (
    BYTES,
    SECONDS,
    FirstSeen,
    Histogram,
    ProducerFamilies,
    ProducerReading,
)
from kafkaclient.prometheus.page import LoopRead, Pages

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kafkaclient.producer.producer import Producer

_log = logging.getLogger(__name__)

_PRODUCE = "PRODUCE"
_pages = Pages("producer", ProducerFamilies)


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
        self._page = _pages.of(registry, timeout_s)
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
    def name(self) -> str:
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

    def request(self) -> LoopRead[ProducerReading | None]:
        """Ask the producer's event loop for the producer's values; None: it cannot be read any
        more."""
        return LoopRead(None if self.has_ended() else self._loop, self._read, self._timeout_s)

    def add_to(self, families: ProducerFamilies, found: ProducerReading | None) -> bool:
        """Add the producer's series. Returns whether it runs."""
        if found is None:
            return False
        families.add(self._client_id, found, self._topics, self._partitions)
        return found.up

    def _read(self) -> ProducerReading | None:
        producer, loop = self._observed(), self._loop
        if producer is None:
            return None
        partitions = self._partitions.is_wanted
        try:
            metrics = producer.metrics(partitions=partitions)
            load = producer.load(partitions=partitions)
        except ProducerStateError:  # this is a forked child
            return None
        return ProducerReading(
            not self.has_ended() and loop is not None and loop.is_running(),
            metrics,
            load,
            self._queue_times.read(),
            self._delivery_times.read(),
            self._batch_sizes.read(),
            {broker: latencies.read() for broker, latencies in self._latencies.items()},
            dict(self._failed_requests),
        )

    def _observed(self) -> Producer | None:
        if self._producer is None or self._process != os.getpid():
            return None
        return self._producer()
