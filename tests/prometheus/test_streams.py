"""``StreamsMetricsCollector``: a streams application on a Prometheus page."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kafkaclient.prometheus import StreamsMetricsCollector
from kafkaclient.prometheus.names import STREAMS, STREAMS_STATES, STREAMS_TASK
from kafkaclient.streams.metrics import AppState
from tests.prometheus.streams_scrape import App

if TYPE_CHECKING:
    from kafkaclient.streams import StreamsApp


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def collect(app: Any, registry: CollectorRegistry, **options: Any) -> StreamsMetricsCollector:
    as_app: StreamsApp = app
    return StreamsMetricsCollector(as_app, registry, **options)


def series(registry: CollectorRegistry) -> dict[str, float]:
    """The page's samples by name and labels."""
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("kafkaclient_streams_"): float(value) for name, value in pairs}


def test_an_application(registry: CollectorRegistry) -> None:
    app = App()
    collect(app, registry)
    found = series(registry)
    label = '{application_id="words"}'
    assert found[f"up{label}"] == 1
    assert found[f"records_processed_total{label}"] == 20
    assert found[f"process_latency_avg_seconds{label}"] == pytest.approx(0.025)
    assert found[f"commits_total{label}"] == 1
    assert found[f"rebalance_seconds_total{label}"] == pytest.approx(0.3)
    assert found[f"standby_lag_records{label}"] == 7
    assert found['state{application_id="words",state="running"}'] == 1
    assert found['state{application_id="words",state="pending_shutdown"}'] == 0
    assert not any(name.startswith("task_") for name in found)


def test_tasks(registry: CollectorRegistry) -> None:
    app = App()
    collect(app, registry, tasks=True)
    found = series(registry)
    assert found['task_records_processed_total{application_id="words",task="0_0"}'] == 20
    assert found['task_running{application_id="words",task="0_0"}'] == 1
    assert found['task_lag_records{application_id="words",task="0_1"}'] == 7


def test_all_metrics_exist(registry: CollectorRegistry) -> None:
    """Each source is a metric of the application."""
    found = App().metrics()
    assert {each.source for each in STREAMS} <= found.instance.keys()
    by_task = {name for values in found.tasks.values() for name in values}
    assert {each.source for each in STREAMS_TASK} <= by_task
    assert set(STREAMS_STATES) == {state.value for state in AppState}


def test_an_application_that_has_ended(registry: CollectorRegistry) -> None:
    app = App()
    app.state = AppState.ERROR
    collect(app, registry)
    found = series(registry)
    assert found['up{application_id="words"}'] == 0
    assert found['state{application_id="words",state="error"}'] == 1
    assert found['records_processed_total{application_id="words"}'] == 20
    with pytest.raises(ValueError, match="the registry has an application 'words'"):
        collect(App(), registry)
    del app
    gc.collect()
    assert series(registry) == {}
    other = App()
    collect(other, registry)
    assert series(registry)['up{application_id="words"}'] == 1


def test_an_application_that_cannot_be_read(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = App("one"), App("other")
    collect(one, registry)
    collect(other, registry)
    one.metrics = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    found = series(registry)
    assert found['up{application_id="one"}'] == 0
    assert found['up{application_id="other"}'] == 1
    assert "ZeroDivisionError" in caplog.text


async def test_the_applications_event_loop_reads(registry: CollectorRegistry) -> None:
    app = App()
    app.loop = asyncio.get_running_loop()
    collect(app, registry)
    assert (await asyncio.to_thread(series, registry))['up{application_id="words"}'] == 1
    assert series(registry)['up{application_id="words"}'] == 1  # in the loop itself


def test_an_event_loop_that_does_not_answer(registry: CollectorRegistry) -> None:
    app = App()
    loop: Any = SimpleNamespace(is_running=lambda: True, call_soon_threadsafe=lambda *_: None)
    app.loop = loop
    collect(app, registry, timeout_s=0.01)
    assert series(registry) == {'up{application_id="words"}': 0}
    loop.is_running = lambda: False  # such as a closed one
    assert series(registry)['up{application_id="words"}'] == 1


def test_wrong_arguments(registry: CollectorRegistry) -> None:
    app: Any = App()
    with pytest.raises(TypeError, match="must be a CollectorRegistry"):
        StreamsMetricsCollector(app, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout_s"):
        StreamsMetricsCollector(app, registry, timeout_s=0)
    Gauge("kafkaclient_streams_up", "another", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        StreamsMetricsCollector(app, registry)
