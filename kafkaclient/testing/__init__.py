"""Tools for testing Kafka clients: real brokers, a fault proxy, an in-process fake cluster.

A name is imported when it is first used, so that importing one tool, or loading the pytest plugin,
does not import the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkaclient.testing.cluster import LocalCluster
    from kafkaclient.testing.fake import FakeCluster
    from kafkaclient.testing.proxy import FaultProxy
    from kafkaclient.testing.security import ClusterSecurity, SecureListener

__all__ = ["ClusterSecurity", "FakeCluster", "FaultProxy", "LocalCluster", "SecureListener"]

_MODULES = {
    "ClusterSecurity": "kafkaclient.testing.security",
    "FakeCluster": "kafkaclient.testing.fake",
    "FaultProxy": "kafkaclient.testing.proxy",
    "LocalCluster": "kafkaclient.testing.cluster",
    "SecureListener": "kafkaclient.testing.security",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
