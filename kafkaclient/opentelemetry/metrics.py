"""The metrics of the semantic conventions, measured for each batch by the producer's hooks."""

from __future__ import annotations

import dataclasses
import weakref
from functools import wraps
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics

from kafkaclient.hooks import FinishedBatch, Hooks
from kafkaclient.opentelemetry.attributes import broker_attributes, topic_attributes
from kafkaclient.opentelemetry.failures import ERROR_TYPE, error_type, harmless
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

_plain_start = Producer.start


class Measuring:
    """Measures the producers that are started. ``provider`` None: the global meter provider, if one
    is set when a producer is started."""

    def __init__(self, provider: MeterProvider | None, name: str, version: str) -> None:
        self._provider = provider
        self._scope = (name, version)
        self.stopped = False

    def methods(self) -> dict[str, Any]:
        """The methods that take the place of a producer's own, by name."""

        @wraps(_plain_start)
        async def start(producer: Any) -> None:
            self._add_hook(producer)
            await _plain_start(producer)

        return {"start": start}

    @harmless("preparing the metrics of a producer")
    def _add_hook(self, producer: Any) -> None:
        provider = self._provider or metrics.get_meter_provider()
        if self.stopped or type(provider).__module__.startswith("opentelemetry.metrics"):
            return  # the API's own provider measures nothing
        config = producer.config
        hooks = tuple(hook for hook in config.hooks if not isinstance(hook, BatchMetrics))
        hook = BatchMetrics(metrics.get_meter(*self._scope, provider), producer, self)
        producer.config = dataclasses.replace(config, hooks=(*hooks, hook))


class BatchMetrics(Hooks):
    """Measures the batches of one producer."""

    def __init__(self, meter: metrics.Meter, producer: Any, measuring: Measuring) -> None:
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self._producer = weakref.ref(producer)
        self._measuring = measuring

    def on_batch(self, batch: FinishedBatch) -> None:
        if self._measuring.stopped:
            return
        attributes = topic_attributes(batch.topic)
        producer = self._producer()
        core = None if producer is None else producer._core
        if core is not None:
            attributes |= broker_attributes(core.metadata.view.brokers.get(batch.broker))
        if batch.error is not None:
            attributes[ERROR_TYPE] = error_type(batch.error)
        self._duration.record(batch.done_s - batch.created_s, attributes)
        if batch.sent_s is not None:
            self._sent.add(batch.records, attributes)
