"""OpenTelemetry for the producer: a span for each record, its context in the record's headers.

``KafkaclientInstrumentor().instrument()`` traces all producers of the process, and
:func:`instrument_producer` traces one. Needs the extra ``opentelemetry``. docs/opentelemetry.md
describes both.
"""

from __future__ import annotations

try:
    import opentelemetry.instrumentation.instrumentor
    import opentelemetry.semconv.attributes  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError(
        f"kafkaclient.opentelemetry needs OpenTelemetry's packages ({error}): "
        "pip install 'kafkaclient[opentelemetry]'"
    ) from error

from kafkaclient.opentelemetry.instrumentor import (
    KafkaclientInstrumentor,
    instrument_producer,
    uninstrument_producer,
)

__all__ = ["KafkaclientInstrumentor", "instrument_producer", "uninstrument_producer"]
