"""Tracing is off before and after each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.opentelemetry import KafkaclientInstrumentor, attributes
from kafkaclient.testing.fake import FakeCluster
from tests.opentelemetry.support import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_is_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of tracing is logged once in a process, whatever test it is in."""
    monkeypatch.setattr(attributes, "_logged", set())


@pytest.fixture
def seen() -> Seen:
    return Seen()


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
