"""The errors of local clusters."""

from __future__ import annotations

from kafkaclient.errors import KafkaError

__all__ = [
    "BrokerStartError",
    "ClusterNotRunningError",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "LocalClusterError",
]


class LocalClusterError(KafkaError, RuntimeError):
    """An operation of a local cluster failed. Base class of the errors below."""


class JavaNotFoundError(LocalClusterError):
    """There is no Java runtime that is new enough for Kafka's brokers."""


class JarsUnavailableError(LocalClusterError):
    """Kafka's jars are not in the cache and cannot be downloaded, or have a wrong checksum.

    ``missing`` has the Maven coordinates of the missing jars, ``group:artifact:version``.
    """

    missing: tuple[str, ...] = ()


class BrokerStartError(LocalClusterError):
    """A broker stopped during its start, or was not ready in time. The message quotes its log."""


class ClusterNotRunningError(LocalClusterError):
    """The cluster is not running."""
