"""What can go wrong with a cluster on this machine, before any Kafka client is involved."""

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
    """A local cluster could not do what it was asked to; the root of the errors below."""


class JavaNotFoundError(LocalClusterError):
    """No Java runtime that is new enough for Kafka's brokers."""


class JarsUnavailableError(LocalClusterError):
    """Kafka's jars are not in the cache and could not be fetched, or are not what they should be.

    ``missing`` names them as Maven does, ``group:artifact:version``.
    """

    missing: tuple[str, ...] = ()


class BrokerStartError(LocalClusterError):
    """A broker ended while it started, or was not ready in time; the message quotes its log."""


class ClusterNotRunningError(LocalClusterError):
    """There is no running cluster behind the name or the object."""
