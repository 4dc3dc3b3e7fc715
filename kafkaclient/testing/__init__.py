"""Tools for testing Kafka clients: real brokers, a fault proxy, an in-process fake cluster, a mock
producer, a mock consumer.

Every name is loaded when it is first used, so that the import of one tool does not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkaclient.testing.cluster import ExternalCluster, LocalCluster
    from kafkaclient.testing.fake import FakeCluster
    from kafkaclient.testing.mock import MockConsumer, MockProducer
    from kafkaclient.testing.proxy import FaultProxy
    from kafkaclient.testing.security import ClusterSecurity, SecureListener

__all__ = [
    "ClusterSecurity",
    "ExternalCluster",
    "FakeCluster",
    "FaultProxy",
    "LocalCluster",
    "MockConsumer",
    "MockProducer",
    "SecureListener",
]

_MODULES = {
    "ClusterSecurity": "kafkaclient.testing.security",
    "ExternalCluster": "kafkaclient.testing.cluster",
    "FakeCluster": "kafkaclient.testing.fake",
    "FaultProxy": "kafkaclient.testing.proxy",
    "LocalCluster": "kafkaclient.testing.cluster",
    "MockConsumer": "kafkaclient.testing.mock",
    "MockProducer": "kafkaclient.testing.mock",
    "SecureListener": "kafkaclient.testing.security",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
