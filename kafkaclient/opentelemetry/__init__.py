"""OpenTelemetry for the producer: a span for each record, its context in the record's headers.

``KafkaclientInstrumentor().instrument()`` traces all producers of the process, and
:func:`instrument_producer` traces one. Needs the extra ``opentelemetry``.
docs/how-to/opentelemetry.md describes both.
"""

from __future__ import annotations

try:
    from kafkaclient.opentelemetry.instrumentor import (
        KafkaclientInstrumentor,
        instrument_producer,
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

__all__ = ["KafkaclientInstrumentor", "instrument_producer", "uninstrument_producer"]
