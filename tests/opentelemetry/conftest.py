"""Tracing is off before and after each test; each form of a span is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.opentelemetry import KafkaclientInstrumentor
from kafkaclient.testing.fake import FakeCluster
from tests.opentelemetry.support import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[pytest.param(False, id="direct"), pytest.param(True, id="sdk")])
def seen(request: pytest.FixtureRequest) -> Seen:
    """Spans of both kinds: made at their end, and started by the SDK."""
    return Seen(own=request.param)


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster()
    cluster.round_trip_s = 0.001
    cluster.create_topic("t", 6, 3)
    return cluster


@pytest.fixture
def instrumentor() -> Iterator[KafkaclientInstrumentor]:
    found = KafkaclientInstrumentor()
    yield found
    if found.is_instrumented_by_opentelemetry:
        found.uninstrument()


@pytest.fixture
def traced(seen: Seen, instrumentor: KafkaclientInstrumentor) -> Seen:
    instrumentor.instrument(tracer_provider=seen.provider)
    return seen
