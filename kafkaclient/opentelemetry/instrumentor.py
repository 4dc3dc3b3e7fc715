"""Switches tracing and measuring on and off: for all clients of the process, or for one."""

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

from kafkaclient.consumer.consumer import Consumer
from kafkaclient.errors import ConsumerStateError
from kafkaclient.hooks import FinishedBatch, Hooks
from kafkaclient.opentelemetry.attributes import (
    ERROR_TYPE,
    broker_attributes,
    error_type,
    harmless,
    is_consumed_elsewhere,
    topic_attributes,
)
from kafkaclient.opentelemetry.bulk import traced_bulk_methods
from kafkaclient.opentelemetry.consuming import ConsumerHook, Consuming
from kafkaclient.opentelemetry.sending import traced_methods
from kafkaclient.opentelemetry.spans import SCOPE, Sampling, Spans
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from kafkaclient.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from kafkaclient.consumer.records import Record
    from kafkaclient.sync.consumer import SyncConsumer


_plain_start = Producer.start
_plain_consumer_start = Consumer.start


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
    """Traces all producers of the process, also those that exist already, and all consumers that
    are started after it::

        KafkaclientInstrumentor().instrument()

    ``opentelemetry-instrument`` calls it by the entry point ``kafkaclient``. Those of
    ``kafkaclient.aiokafka`` are traced, too, unless another instrumentation has wrapped their
    ``send`` or ``getone``.

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
        for kind, methods in (
            (Producer, instrumentation.methods),
            (Consumer, instrumentation.consumer_methods),
        ):
            for name, method in methods.items():
                _originals.setdefault((kind, name), vars(kind).get(name))
                setattr(kind, name, method)

    def _uninstrument(self, **_: Any) -> None:
        instrumentation, self._instrumentation = self._instrumentation, None
        if instrumentation is not None:
            instrumentation.stop()
        for (kind, name), original in _originals.items():
            if original is None:
                delattr(kind, name)  # it is a parent class's method
            else:
                setattr(kind, name, original)
        _originals.clear()


_originals: dict[tuple[type, str], Any] = {}
"""The classes' own methods that were replaced; None: a parent class has the method."""


class Instrumentation:
    """The methods that take the place of the clients' own, and what they share. ``meter_provider``
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
        self.consuming = Consuming(tracer_provider, meter_provider, record_keys=record_keys)

        @wraps(_plain_start)
        async def start(producer: Any) -> None:
            self._measure(producer)
            await _plain_start(producer)

        @wraps(_plain_consumer_start)
        async def start_consumer(consumer: Any) -> None:
            if _hook_of(consumer) is None and not is_consumed_elsewhere(consumer):
                _add_hook(consumer, self.consuming)
            await _plain_consumer_start(consumer)

        self.methods = {
            **traced_methods(gate, spans.start_record),
            **traced_bulk_methods(gate, spans),
            "start": start,
        }
        self.consumer_methods = {"start": start_consumer}

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
        self.stopped = self.consuming.stopped = True


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
    _instrumented[type(target)] = (kind, instrumentation)


def uninstrument_producer(producer: Producer | AIOKafkaProducer) -> None:
    """Undo :func:`instrument_producer`; does nothing for another producer."""
    target = _producer_of(producer)
    kind, instrumentation = _instrumented.pop(type(target), (None, None))
    if kind is not None and instrumentation is not None:
        instrumentation.stop()
        target.__class__ = kind


_instrumented: WeakKeyDictionary[type[Any], tuple[type[Any], Instrumentation]] = WeakKeyDictionary()
"""The class of each producer that is traced alone: the class it had, and how it is traced."""


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


def instrument_consumer(
    consumer: Consumer[Any, Any] | AIOKafkaConsumer | SyncConsumer[Any, Any],
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    record_keys: bool = False,
) -> None:
    """Trace and measure one consumer, with the options of :class:`KafkaclientInstrumentor`. They
    count instead of the instrumentor's, if both are in use, and replace those of an earlier call.

    Raises ConsumerStateError if the consumer was started already.
    """
    target = _consumer_of(consumer)
    if target._runtime is not None:
        raise ConsumerStateError("the consumer is started: call instrument_consumer() before")
    _add_hook(target, Consuming(tracer_provider, meter_provider, record_keys=record_keys))


def process_span(
    record: Record[Any, Any],
    consumer: Consumer[Any, Any] | AIOKafkaConsumer | SyncConsumer[Any, Any] | None = None,
    *,
    child: bool = False,
) -> AbstractContextManager[Span]:
    """The span of a record in process: the current span inside of ``with``::

        async for record in consumer:
            with process_span(record, consumer):
                await handle(record)

    It is linked to the span that has sent the record; with ``child`` it is that one's child, in the
    same trace, and has its baggage. An error that leaves the block fails the span, without its
    text. ``consumer`` gives the span its group and client id, and the providers that the consumer
    was instrumented with; otherwise those of :class:`KafkaclientInstrumentor` count, else the
    global ones. Works with any record that has ``topic``, ``partition``, ``offset``, ``key``,
    ``value`` and ``headers``.
    """
    target = None if consumer is None else _consumer_of(consumer)
    hook = None if target is None else _hook_of(target)
    instrumentation = KafkaclientInstrumentor()._instrumentation
    if hook is not None and not hook.consuming.stopped:
        consuming = hook.consuming
    else:
        consuming = _default if instrumentation is None else instrumentation.consuming
    return consuming.process(record, target, child=child)


_default = Consuming()
"""Without an instrumentation: the global providers."""


def _consumer_of(consumer: Any) -> Any:
    """The consumer that a drop-in or a SyncConsumer stands on."""
    return getattr(consumer, "_consumer", consumer)


def _hook_of(consumer: Any) -> ConsumerHook | None:
    return next((each for each in consumer.config.hooks if isinstance(each, ConsumerHook)), None)


def _add_hook(consumer: Any, consuming: Consuming) -> None:
    hooks = tuple(hook for hook in consumer.config.hooks if not isinstance(hook, ConsumerHook))
    consumer.config = consumer.config.replace(hooks=(*hooks, ConsumerHook(consuming)))
