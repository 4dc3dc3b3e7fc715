"""A registry's page: all clients of one kind, each read on its own event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from concurrent.futures import Future
from math import isnan
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from kafkaclient.net.off_loop import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from kafkaclient.prometheus.names import Exported

T = TypeVar("T")

_log = logging.getLogger(__name__)

_KINDS = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class MetricFamilies:
    """The metric families of all clients of a kind: each name occurs once on a page."""

    def __init__(
        self, prefix: str, tables: Iterable[tuple[Iterable[Exported], Sequence[str]]]
    ) -> None:
        self._families: dict[str, Any] = {
            each.name: _KINDS[each.type](prefix + each.name, each.help, labels=labels)
            for table, labels in tables
            for each in table
        }

    def all(self) -> list[Metric]:
        """All families, also those without a sample."""
        return list(self._families.values())

    def table(
        self, table: Iterable[Exported], labels: Sequence[str], values: Mapping[str, float]
    ) -> None:
        """Add the samples of a table's metrics that have a value."""
        for each in table:
            value = values.get(each.source)
            if value is not None:
                self.sample(each.name, labels, value * each.scale)

    def sample(self, name: str, labels: Sequence[str], value: float) -> None:
        """Add a sample. NaN is left out: nothing happened yet, or not in the last minute."""
        if not isnan(value):
            self._families[name].add_metric(labels, value)


class LoopRead(Generic[T]):
    """A client's values, read on its event loop for another thread. ``read`` is called at once if
    the event loop does not run, or runs this call."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None, read: Callable[[], T], timeout_s: float
    ) -> None:
        self._read = read
        self._future: Future[T] = Future()
        self._deadline_s = time.monotonic() + timeout_s
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            self._answer()
        else:
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop was closed meanwhile
                self._answer()

    def _answer(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return  # the other thread has given up
        try:
            self._future.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - the other thread raises it
            self._future.set_exception(error)

    def result(self) -> T:
        """Wait for the values. Raises the errors of ``read``, and TimeoutError."""
        try:
            return self._future.result(max(self._deadline_s - time.monotonic(), 0.0))
        except TimeoutError:
            self._future.cancel()
            raise


class Collector(Protocol):
    """What a page needs to know of a client. All methods are called in any thread."""

    @property
    def name(self) -> str:
        """The label of all series: it is unique on the page."""

    def has_ended(self) -> bool:
        """Whether another client may have the name."""

    def is_gone(self) -> bool:
        """Whether the client can never be read again."""

    def request(self) -> LoopRead[Any]:
        """Ask the client's event loop for the client's values."""

    def add_to(self, families: Any, found: Any) -> bool:
        """Add the series of what :meth:`request` found. Returns whether the client runs."""


class Page:
    """A registry's collector for all clients of a kind: a page may have each family once only."""

    def __init__(self, kind: str, families: Callable[[], MetricFamilies]) -> None:
        self._kind = kind
        self._families = families
        self._collectors: dict[str, Collector] = {}
        self._lock = threading.Lock()
        guard(self)

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.off_loop.Forkable`."""
        self._lock = threading.Lock()

    def add(self, collector: Collector) -> bool:
        """Add a collector, which replaces an ended client's. False: a client that has not ended has
        the same name."""
        with self._lock:
            self._collectors = {
                name: each
                for name, each in self._collectors.items()
                if each is not collector and not each.is_gone()
            }
            other = self._collectors.get(collector.name)
            is_free = other is None or other.has_ended()
            if is_free:
                self._collectors[collector.name] = collector
            return is_free

    def describe(self) -> Iterable[Metric]:
        """The names that no other collector of the registry may have."""
        return self._families().all()

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            collectors = [each for each in self._collectors.values() if not each.is_gone()]
        asked = [(each, each.request()) for each in collectors]  # all loops at the same time
        families = self._families()
        for each, read in asked:
            up = False
            try:
                up = each.add_to(families, read.result())
            except TimeoutError:
                pass
            except Exception:  # noqa: BLE001 - other clients' series are on the same page
                _log.exception("the metrics of %s %r cannot be read", self._kind, each.name)
            families.sample("up", (each.name,), float(up))
        return [family for family in families.all() if family.samples]


class Pages:
    """The pages of clients of a kind, one for each registry."""

    def __init__(self, kind: str, families: Callable[[], MetricFamilies]) -> None:
        self._kind = kind
        self._families = families
        self._pages: weakref.WeakKeyDictionary[CollectorRegistry, Page] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def of(self, registry: CollectorRegistry, timeout_s: float) -> Page:
        """The registry's page. Checks what a collector was given: raises TypeError for what is no
        registry, ValueError for a wrong time or if the registry has metrics of these names."""
        if not hasattr(registry, "register"):
            raise TypeError(f"registry must be a CollectorRegistry, not {registry!r}")
        if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout_s must be a positive number of seconds: {timeout_s!r}")
        with self._lock:
            page = self._pages.get(registry)
            if page is None:
                page = Page(self._kind, self._families)
                registry.register(page)
                self._pages[registry] = page
            return page
