"""OpenTelemetry: a span for each record that is sent, its context in the record's headers; spans of
consumers that are linked to it.

``KafkaclientInstrumentor().instrument()`` traces all producers and consumers of the process,
:func:`instrument_producer` and :func:`instrument_consumer` trace one, and :func:`process_span` is
the span of a record in process. Needs the extra ``opentelemetry``.
docs/how-to/opentelemetry.md describes both.
"""

from __future__ import annotations

try:
    from kafkaclient.opentelemetry.instrumentor import (
        KafkaclientInstrumentor,
        instrument_consumer,
        instrument_producer,
        process_span,
        uninstrument_producer,
    )
except ImportError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ImportError(
        f"kafkaclient.opentelemetry needs OpenTelemetry's packages ({error}): "
        "pip install 'kafkaclient[opentelemetry]'",
        name=error.name,
    ) from error

__all__ = [
    "KafkaclientInstrumentor",
    "instrument_consumer",
    "instrument_producer",
    "process_span",
    "uninstrument_producer",
]
