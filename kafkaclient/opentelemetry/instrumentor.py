"""Switches tracing and measuring on and off: for all producers of the process, or for one."""

from __future__ import annotations

import sys
import weakref
from functools import wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,
)

from kafkaclient.hooks import FinishedBatch, Hooks
from kafkaclient.opentelemetry.attributes import (
    ERROR_TYPE,
    broker_attributes,
    error_type,
    harmless,
    topic_attributes,
)
from kafkaclient.opentelemetry.bulk import traced_bulk_methods
from kafkaclient.opentelemetry.sending import traced_methods
from kafkaclient.opentelemetry.spans import SCOPE, Sampling, Spans
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Collection

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from kafkaclient.aiokafka import AIOKafkaProducer


_plain_start = Producer.start


class BatchMetrics(Hooks):
    """Measures the batches of one producer, until the ``instrumentation`` stops."""

    def __init__(
        self, meter: metrics.Meter, producer: Any, instrumentation: Instrumentation
    ) -> None:
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
        self._instrumentation = instrumentation

    def on_batch(self, batch: FinishedBatch) -> None:
        if self._instrumentation.stopped:
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


class KafkaclientInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Traces all producers of the process, also those that exist already::

        KafkaclientInstrumentor().instrument()

    ``opentelemetry-instrument`` calls it by the entry point ``kafkaclient``. Producers of
    ``kafkaclient.aiokafka`` are traced, too, unless another instrumentation has wrapped their
    ``send``.

    Options of ``instrument``, all by keyword: ``tracer_provider`` (default: the global one, also if
    it is set later), ``meter_provider`` (default: the global one; producers that are started while
    there is one are measured) and ``record_keys`` (default False: keys do not become attributes,
    because they often name people). ``uninstrument()`` undoes it; spans that are open still end
    with their outcomes.
    """

    _instrumentation: Instrumentation | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()  # it is a part of the package that it instruments

    def _instrument(self, **options: Any) -> None:
        instrumentation = Instrumentation(
            options.get("tracer_provider"),
            options.get("meter_provider"),
            record_keys=options.get("record_keys", False),
        )
        self._instrumentation = instrumentation
        for name, method in instrumentation.methods.items():
            _originals.setdefault(name, vars(Producer).get(name))
            setattr(Producer, name, method)

    def _uninstrument(self, **_: Any) -> None:
        instrumentation, self._instrumentation = self._instrumentation, None
        if instrumentation is not None:
            instrumentation.stop()
        for name, original in _originals.items():
            if original is None:
                delattr(Producer, name)  # it is a parent class's method
            else:
                setattr(Producer, name, original)
        _originals.clear()


_originals: dict[str, Any] = {}
"""The methods of Producer itself that were replaced; None: a parent class has the method."""


class Instrumentation:
    """The methods that take the place of a producer's own, and what they share. ``meter_provider``
    None: the global one, if one is set when a producer is started."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        record_keys: bool = False,
    ) -> None:
        self._meter_provider = meter_provider
        self._sampling = Sampling(tracer_provider)
        self.stopped = False
        spans, gate = Spans(self._sampling, record_keys=record_keys), self._sampling.gate

        @wraps(_plain_start)
        async def start(producer: Any) -> None:
            self._measure(producer)
            await _plain_start(producer)

        self.methods = {
            **traced_methods(gate, spans.start_record),
            **traced_bulk_methods(gate, spans),
            "start": start,
        }

    @harmless("preparing the metrics of a producer")
    def _measure(self, producer: Any) -> None:
        provider = self._meter_provider or metrics.get_meter_provider()
        if self.stopped or type(provider).__module__.startswith("opentelemetry.metrics"):
            return  # the API's own provider measures nothing
        config = producer.config
        hooks = tuple(hook for hook in config.hooks if not isinstance(hook, BatchMetrics))
        hook = BatchMetrics(metrics.get_meter(*SCOPE, provider), producer, self)
        producer.config = config.replace(hooks=(*hooks, hook))

    def stop(self) -> None:
        """Start no more spans, and measure no more batches."""
        self._sampling.stop()
        self.stopped = True


def instrument_producer(
    producer: Producer | AIOKafkaProducer,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    record_keys: bool = False,
) -> None:
    """Trace one producer, with the options of :class:`KafkaclientInstrumentor`. They count instead
    of the instrumentor's, if both are in use. Call it before ``start`` to have the producer
    measured as well. A second call replaces the options of the first.

    Raises:
        TypeError: ``producer`` is neither of the two. A ``SyncProducer`` is traced by
            :class:`KafkaclientInstrumentor`, together with all others.
    """
    target = _producer_of(producer)
    instrumentation = Instrumentation(tracer_provider, meter_provider, record_keys=record_keys)
    uninstrument_producer(producer)
    kind = type(target)
    # Not attributes of the producer: a method that is bound to it would keep it alive. Next to
    # Producer in the method resolution order: a subclass's methods call the traced ones by super().
    traced = type("TracedProducer", (Producer,), instrumentation.methods)
    bases = (traced,) if kind is Producer else (kind, traced)
    target.__class__ = type(kind.__name__, bases, {"__doc__": kind.__doc__})
    _instrumented[target] = (kind, instrumentation)


def uninstrument_producer(producer: Producer | AIOKafkaProducer) -> None:
    """Undo :func:`instrument_producer`; does nothing for another producer."""
    target = _producer_of(producer)
    kind, instrumentation = _instrumented.pop(target, (None, None))
    if kind is not None and instrumentation is not None:
        instrumentation.stop()
        target.__class__ = kind


_instrumented: WeakKeyDictionary[Any, tuple[type[Any], Instrumentation]] = WeakKeyDictionary()
"""Producers that are traced alone: their own classes, and how they are traced."""


def _producer_of(producer: Any) -> Any:
    """The producer that is traced: of a drop-in, the one that it stands on."""
    if isinstance(producer, Producer):
        return producer
    dropin = sys.modules.get("kafkaclient.aiokafka.producer")
    if dropin is not None and isinstance(producer, dropin.AIOKafkaProducer):
        return producer._producer
    raise TypeError(
        "one Producer, or one AIOKafkaProducer of kafkaclient.aiokafka, can be traced, not "
        f"{type(producer).__name__!r}. KafkaclientInstrumentor traces all producers of the process"
    )
