"""``StreamsMetricsCollector``: exports the metrics of a streams application to a registry."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import REGISTRY

from kafkaclient.prometheus import names
from kafkaclient.prometheus.page import LoopRead, MetricFamilies, Pages

if TYPE_CHECKING:
    import asyncio

    from prometheus_client import CollectorRegistry

    from kafkaclient.streams.metrics import StreamsMetricsSnapshot

_APP = ("application_id",)
_TABLES = (
    ((names.STREAMS_UP,), _APP),
    (names.STREAMS_STATE, ("application_id", "state")),
    (names.STREAMS, _APP),
    (names.STREAMS_TASK, ("application_id", "task")),
)


class StreamsFamilies(MetricFamilies):
    """The metric families of all applications of a registry."""

    def __init__(self) -> None:
        super().__init__(names.STREAMS_PREFIX, _TABLES)


_pages = Pages("application", StreamsFamilies)


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
        page = _pages.of(registry, timeout_s)
        self.name: str = app.config.application_id
        self._app = weakref.ref(app)
        self._tasks = tasks
        self._timeout_s = timeout_s
        if not page.add(self):
            raise ValueError(
                f"the registry has an application {self.name!r}: use one collector for each "
                "application"
            )

    def is_gone(self) -> bool:
        """Whether the application was dropped."""
        return self._app() is None

    has_ended = is_gone

    def request(self) -> LoopRead[StreamsMetricsSnapshot | None]:
        """Ask the application's event loop for the metrics; None: the application was dropped."""
        app = self._app()
        return LoopRead(None if app is None else app.loop, self._read, self._timeout_s)

    def _read(self) -> StreamsMetricsSnapshot | None:
        app = self._app()
        return None if app is None else app.metrics()

    def add_to(self, families: StreamsFamilies, found: StreamsMetricsSnapshot | None) -> bool:
        """Add the application's series. Returns whether it runs."""
        if found is None:
            return False
        for state in names.STREAMS_STATES:
            labels = (self.name, state.replace(" ", "_"))
            families.sample("state", labels, float(found.state.value == state))
        families.table(names.STREAMS, (self.name,), found.instance)
        for task, values in found.tasks.items() if self._tasks else ():
            families.table(names.STREAMS_TASK, (self.name, str(task)), values)
        return found.state.value in ("rebalancing", "running")
