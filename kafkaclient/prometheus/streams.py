"""``StreamsMetricsCollector``: exports the metrics of a streams application to a registry."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from concurrent.futures import Future
from math import isnan
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from kafkaclient.prometheus.families import Pages
from kafkaclient.prometheus.names import (
    STREAMS,
    STREAMS_PREFIX,
    STREAMS_STATES,
    STREAMS_TASK,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from kafkaclient.streams.metrics import StreamsMetricsSnapshot

_log = logging.getLogger(__name__)

_APP = ("application_id",)
_STATE = ("application_id", "state")
_TASK = ("application_id", "task")


class Application(Protocol):
    """A :class:`kafkaclient.streams.StreamsApp`, as far as the collector uses it."""

    @property
    def config(self) -> Any: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop | None: ...
    def metrics(self) -> StreamsMetricsSnapshot: ...


class StreamsMetricsCollector:
    """Exports the metrics of one application's instance::

        app = StreamsApp("localhost:9092", application_id="words", ...)
        StreamsMetricsCollector(app)
        prometheus_client.start_http_server(9000)
        asyncio.run(app.run())

    The series have the label ``application_id``, and ``task`` if there are ``tasks``. Before
    the first run of the application the page has only ``kafkaclient_streams_up``, which is 0, and
    ``kafkaclient_streams_state``. The registry may be read in any thread: the
    collector reads the application on its event loop. An application that was dropped has no
    series.

    Parameters:
        app: several applications can have the same registry, each with an ``application_id`` of
            its own.
        registry: prometheus-client's default registry, or another.
        tasks: whether there are series for each task.
        timeout_s: how long to wait for the application's event loop, in seconds. If the loop does
            not answer in this time, the application has only the series
            ``kafkaclient_streams_up`` on this page, which is 0.

    Raises:
        ValueError: the registry has an application with this ``application_id``, or other metrics
            with these names; ``timeout_s`` is no positive number.
        TypeError: ``registry`` is no registry.
    """

    def __init__(
        self,
        app: Application,
        registry: CollectorRegistry = REGISTRY,
        *,
        tasks: bool = False,
        timeout_s: float = 2.0,
    ) -> None:
        if not hasattr(registry, "register"):
            raise TypeError(f"registry must be a CollectorRegistry, not {registry!r}")
        if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout_s must be a positive number of seconds: {timeout_s!r}")
        self.application_id: str = app.config.application_id
        self._app = weakref.ref(app)
        self._tasks = tasks
        self._timeout_s = timeout_s
        _pages.of(registry).add(self)

    def is_gone(self) -> bool:
        """Whether the application was dropped."""
        return self._app() is None

    def request(self) -> tuple[Future[StreamsMetricsSnapshot | None], float]:
        """Ask the application's event loop for the metrics; without a loop they are read at once.
        Returns the future, and until when to wait for it (``time.monotonic``)."""
        future: Future[StreamsMetricsSnapshot | None] = Future()
        app = self._app()
        loop = None if app is None else app.loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            self._answer(future)
        else:
            try:
                loop.call_soon_threadsafe(self._answer, future)
            except RuntimeError:  # the loop was closed meanwhile
                self._answer(future)
        return future, time.monotonic() + self._timeout_s

    def _answer(self, future: Future[StreamsMetricsSnapshot | None]) -> None:
        if not future.set_running_or_notify_cancel():
            return  # the reader has given up
        app = self._app()
        try:
            future.set_result(None if app is None else app.metrics())
        except BaseException as error:  # noqa: BLE001 - the reader's thread raises it
            future.set_exception(error)

    def add_to(
        self, families: Families, future: Future[StreamsMetricsSnapshot | None], until: float
    ) -> None:
        """Wait for the answer, and add the series. Raises nothing: other applications' series are
        on the same page."""
        name = self.application_id
        try:
            found = future.result(max(until - time.monotonic(), 0.0))
        except TimeoutError:
            future.cancel()
        except Exception:  # noqa: BLE001 - it is logged
            _log.exception("the metrics of application %r cannot be read", name)
        else:
            if found is not None:  # else the application was dropped
                families.add(name, found, tasks=self._tasks)
            return
        families.add_up(name, up=False)


class Families:
    """The metric families of all applications of a registry: each name occurs once on a page."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}
        self._add(
            GaugeMetricFamily,
            "up",
            "1: the application runs. 0: it does not, or its event loop did not answer in time.",
            _APP,
        )
        self._add(
            GaugeMetricFamily, "state", "1 for the state of the instance, 0 for the others.", _STATE
        )
        for table, labels in ((STREAMS, _APP), (STREAMS_TASK, _TASK)):
            for each in table:
                kind = CounterMetricFamily if each.is_counter else GaugeMetricFamily
                self._add(kind, each.name, each.help, labels)

    def _add(self, kind: Any, name: str, help_text: str, labels: tuple[str, ...]) -> None:
        self._families[name] = kind(STREAMS_PREFIX + name, help_text, labels=labels)

    def all(self) -> list[Metric]:
        """All families, also those without a sample."""
        return list(self._families.values())

    def with_samples(self) -> list[Metric]:
        return [family for family in self._families.values() if family.samples]

    def add_up(self, application_id: str, *, up: bool) -> None:
        self._families["up"].add_metric((application_id,), float(up))

    def add(self, application_id: str, found: StreamsMetricsSnapshot, *, tasks: bool) -> None:
        """The series of an application."""
        self.add_up(application_id, up=found.state.value in ("rebalancing", "running"))
        for state in STREAMS_STATES:
            value = float(found.state.value == state)
            self._families["state"].add_metric((application_id, state.replace(" ", "_")), value)
        self._table(STREAMS, (application_id,), found.instance)
        for task, values in found.tasks.items() if tasks else ():
            self._table(STREAMS_TASK, (application_id, str(task)), values)

    def _table(self, table: Any, labels: tuple[str, ...], values: dict[str, float]) -> None:
        for each in table:
            value = values.get(each.source)
            if value is not None and not isnan(value):
                self._families[each.name].add_metric(labels, value * each.scale)


class _Page:
    """A registry's collector for all applications."""

    def __init__(self) -> None:
        self._collectors: dict[str, StreamsMetricsCollector] = {}
        self._lock = threading.Lock()

    def add(self, collector: StreamsMetricsCollector) -> None:
        name = collector.application_id
        with self._lock:
            other = self._collectors.get(name)
            if other is not None and not other.is_gone():
                raise ValueError(
                    f"the registry has an application {name!r}: use one collector for each "
                    "application"
                )
            self._collectors[name] = collector

    def describe(self) -> Iterable[Metric]:
        """The names that no other collector of the registry may have."""
        return Families().all()

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            collectors = [each for each in self._collectors.values() if not each.is_gone()]
        asked = [(each, *each.request()) for each in collectors]  # all loops at the same time
        families = Families()
        for each, future, until in asked:
            each.add_to(families, future, until)
        return families.with_samples()


_pages = Pages(_Page)
