"""Which records get a span: OpenTelemetry's sampler, asked as rarely as its answers allow.

The SDK's samplers answer by the parent's span context, and by the trace id alone for a record
without parent. So their answer is kept for all records of one context. For records without parent,
``TraceIdRatioBased`` samples each trace id with the same probability: the number of records up to
the next sampled one is drawn at once, and that record gets a trace id that the sampler accepts.
Other samplers are asked about each record.
"""

from __future__ import annotations

import logging
from random import randrange
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import SpanKind

from kafkaclient.opentelemetry.failures import FAILURES, report
from kafkaclient.opentelemetry.headers import pairs_of, unsampled_pairs_of
from kafkaclient.opentelemetry.sending import Gate

if TYPE_CHECKING:
    from contextvars import ContextVar

    from opentelemetry.trace import Tracer, TracerProvider

    from kafkaclient.opentelemetry.headers import Pairs

_log = logging.getLogger(__name__)


class Sampling:
    """The sampling of one instrumentation; ``gate`` is what its methods ask.

    ``provider`` None: the global tracer provider, also if the program sets it later.
    """

    def __init__(self, provider: TracerProvider | None, name: str, version: str) -> None:
        if provider is not None and not hasattr(provider, "get_tracer"):
            raise TypeError(f"tracer_provider must be a TracerProvider, not {provider!r}")
        self._provider = provider
        self._scope = (name, version)
        self._tracer: Tracer | None = None
        self._ratio: float | None = None
        """The share of records without parent that are sampled; None: the sampler is asked."""
        self._by_context = False
        """Whether the sampler's answer is the same for all records of one context."""
        self._stopped = False
        self.bound = 2**64
        """The trace ids of sampled records without parent are below it in their lower 64 bits."""
        self.variable = _context_variable()
        self.gate = Gate(self.variable, self._decide)

    def stop(self) -> None:
        """No record gets a span or a context any more."""
        self._stopped = True
        self.gate.stop()

    @property
    def tracer(self) -> Tracer:
        """The tracer; the API's own, which records nothing, until there is a tracer provider."""
        if self._tracer is not None:
            return self._tracer
        provider = self._provider or trace.get_tracer_provider()
        name, version = self._scope
        tracer = trace.get_tracer(name, version, provider)
        if not isinstance(provider, trace.ProxyTracerProvider):
            self._use(tracer)
            self._tracer = tracer  # last: another thread uses what is set by now
        return tracer

    @property
    def is_final(self) -> bool:
        """Whether a record that the gate samples is sampled: the tracer would say the same."""
        return self._ratio is not None

    def _use(self, tracer: Any) -> None:
        """Find out which of the sampler's answers are known. Two threads may do so at once."""
        try:
            self._learn_sampler(tracer)
        except Exception as error:  # noqa: BLE001 - an SDK whose private names have changed
            self._by_context, self._ratio = False, None
            _log.info("the sampler is asked about each record: %r", error)

    def _learn_sampler(self, tracer: Any) -> None:
        sampler = getattr(tracer, "sampler", None)
        self._by_context = sampler is not None and _is_known(sampler)
        if not self._by_context:
            return  # a sampler of the user's own, or a tracer that is not the SDK's
        root: Any = getattr(sampler, "_root", sampler)
        ratio = _ratio_of(root)
        if ratio is not None and 0 < ratio < 1:
            # No other code starts spans with this scope's tracer.
            ids = accepted_ids(tracer.id_generator, root.bound)
            if ids is None:
                return
            tracer.id_generator = ids
            self.bound = root.bound
        self._ratio = ratio
        if ratio is not None:
            self.gate.sample(ratio)

    def _decide(self, context: Context) -> Pairs | None:
        """For :class:`Gate`: None if a record in this context gets a span, else its headers."""
        try:
            return self._decided(context)
        except FAILURES as error:
            report("deciding whether a record gets a span", error)
            return ()

    def _decided(self, context: Context) -> Pairs | None:
        if self._stopped or not is_instrumentation_enabled():
            return ()
        tracer = self.tracer
        if self._tracer is None:  # no provider yet: the API propagates the context, no more
            return pairs_of(context) if context else ()
        parent = trace.get_current_span(context).get_span_context()
        if not parent.is_valid:
            return self._decide_root(context)
        if self._by_context and not self._samples_children(tracer, context, parent.trace_id):
            headers = unsampled_pairs_of(context)
            self.gate.remember_unsampled(context, headers)
            return headers
        return None

    def _decide_root(self, context: Context) -> Pairs | None:
        if self._ratio is None:
            return None
        if self.gate.skip_record():
            return pairs_of(context) if context else ()  # there may be baggage
        self.gate.draw()
        return None

    def _samples_children(self, tracer: Any, context: Context, trace_id: int) -> bool:
        result = tracer.sampler.should_sample(context, trace_id, "send", SpanKind.PRODUCER)
        return bool(result.decision.is_recording())


def _context_variable() -> ContextVar[Context]:
    """The variable that has OpenTelemetry's current context."""
    variable: ContextVar[Context] | None
    runtime = getattr(context_api, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    return variable or _OtherRuntime()  # type: ignore[return-value]


class _OtherRuntime:
    """In place of the variable, for a runtime context that is not made of context variables."""

    def get(self) -> Context:
        try:
            return context_api.get_current()
        except FAILURES as error:
            report("reading the current context", error)
            return Context()


def _is_known(sampler: Any) -> bool:
    """Whether this is a sampler of the SDK whose answer depends on the context alone."""
    try:
        from opentelemetry.sdk.trace import sampling  # noqa: PLC0415 - the SDK may be missing
    except ImportError:
        return False
    methods = (
        sampling.StaticSampler.should_sample,
        sampling.TraceIdRatioBased.should_sample,
    )
    if type(sampler).should_sample is sampling.ParentBased.should_sample:
        parts = [value for value in vars(sampler).values() if isinstance(value, sampling.Sampler)]
        return all(type(part).should_sample in methods for part in parts)
    return getattr(type(sampler), "should_sample", None) in methods


def _ratio_of(root: Any) -> float | None:
    """The probability with which a root sampler of the SDK samples a record."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON  # noqa: PLC0415

    descriptions = {ALWAYS_ON.get_description(): 1.0, ALWAYS_OFF.get_description(): 0.0}
    return descriptions.get(root.get_description(), getattr(root, "rate", None))


def accepted_ids(ids: Any, bound: int) -> Any:
    """An id generator whose trace ids are below ``bound`` in their lower 64 bits, so that
    TraceIdRatioBased accepts them; None if ``ids`` makes other than random ids."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class AcceptedIds(RandomIdGenerator):
        accepted = True

        def generate_trace_id(self) -> int:
            upper = super().generate_trace_id() >> 64
            return (upper or 1) << 64 | randrange(max(1, bound))

    if getattr(ids, "accepted", False):
        return ids  # of an earlier instrumentation with the same provider
    return AcceptedIds() if type(ids) is RandomIdGenerator else None
