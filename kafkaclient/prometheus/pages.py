"""One page for each registry: a page may have each family once only, whatever it is about."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    P = TypeVar("P", bound=Collector)
else:
    P = TypeVar("P")


class Pages(Generic[P]):
    """The pages of one kind. ``new`` makes one, which is registered as its registry's collector."""

    def __init__(self, new: Callable[[], P]) -> None:
        self._new = new
        self._pages: weakref.WeakKeyDictionary[CollectorRegistry, P] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, registry: CollectorRegistry) -> P:
        """The registry's page. Raises ValueError if the registry has metrics of these names."""
        with self._lock:
            page = self._pages.get(registry)
            if page is None:
                page = self._new()
                registry.register(page)
                self._pages[registry] = page
            return page
