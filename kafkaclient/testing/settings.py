"""What a local broker is told: the settings that LocalCluster and docker-compose.yml share.

Four listeners per broker, all on 127.0.0.1:

- ``DIRECT``: for clients, straight to the broker.
- ``PROXIED``: for clients, through the broker's fault proxy: the broker listens on one port and
  advertises another, the proxy's.
- ``INTERNAL``: replication and the rest between the brokers, so that no fault of a client's way
  disturbs it.
- ``CONTROLLER``: KRaft, on those that are controllers.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kafkaclient.testing.security import ClusterSecurity

__all__ = [
    "DEFAULT_VERSION",
    "HEAP_MB",
    "HOST",
    "ClusterSpec",
    "Ports",
    "Secured",
    "broker_properties",
    "controller_ids",
    "new_uuid",
    "shared_settings",
]

DEFAULT_VERSION = "4.3.1"
HOST = "127.0.0.1"
HEAP_MB = 384
_MAX_BROKERS = 15

_SECURITY_PROTOCOLS = "CONTROLLER:PLAINTEXT,DIRECT:PLAINTEXT,INTERNAL:PLAINTEXT,PROXIED:PLAINTEXT"

# Decided per broker by broker_properties; a caller's value would break the cluster.
_OWN_KEYS = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)


class Ports(NamedTuple):
    """One broker's ports; ``proxy`` is the one that ``proxied`` is advertised as."""

    direct: int
    proxied: int
    proxy: int
    internal: int
    controller: int


class Secured(NamedTuple):
    """One broker's ports by secure listener, and where the certificates are."""

    ports: dict[str, int]
    certificates: Path


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster as asked for. Raises ConfigError when it cannot be built.

    ``config`` adds to or replaces broker settings, by Kafka's dotted names, on every broker;
    ``racks`` names one rack per broker; ``features`` are levels other than the version's own;
    ``long_lived`` brokers are compiled for throughput, however long that takes; ``heap_mb`` is
    each broker's.
    """

    brokers: int
    racks: tuple[str, ...] | None
    config: Mapping[str, str]
    version: str
    security: ClusterSecurity | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    long_lived: bool = False
    heap_mb: int = HEAP_MB

    @classmethod
    def build(
        cls,
        brokers: int,
        racks: Sequence[str] | None,
        config: Mapping[str, object],
        version: str,
        security: ClusterSecurity | None = None,
        features: Mapping[str, int] | None = None,
        *,
        long_lived: bool = False,
        heap_mb: int = HEAP_MB,
    ) -> ClusterSpec:
        """Check and normalise what a caller gave."""
        if not 1 <= brokers <= _MAX_BROKERS:
            raise ConfigError(f"brokers must be 1 to {_MAX_BROKERS}, not {brokers}")
        if racks is not None and (isinstance(racks, str) or len(racks) != brokers):
            raise ConfigError(f"racks must name one rack for each of {brokers} brokers: {racks!r}")
        for key in config:
            if key in _OWN_KEYS:
                raise ConfigError(f"{key} is decided by the local cluster and cannot be set")
        return cls(
            brokers=brokers,
            racks=None if racks is None else tuple(racks),
            config={key: _text(key, value) for key, value in config.items()},
            version=version,
            security=security,
            features=dict(features or {}),
            long_lived=long_lived,
            heap_mb=heap_mb,
        )

    @property
    def secure_listeners(self) -> tuple[str, ...]:
        """The names of the listeners with TLS or SASL."""
        if self.security is None:
            return ()
        return tuple(listener.name for listener in self.security.listeners)


def controller_ids(brokers: int) -> tuple[int, ...]:
    """Which brokers are controllers as well: the first three, or of fewer than three the first.

    Three survive the loss of any one. Two would survive none, so a pair has one controller, and
    its other broker can be stopped and started freely.
    """
    return (0, 1, 2) if brokers >= 3 else (0,)


def shared_settings(brokers: int) -> dict[str, str]:
    """The settings that every broker of a cluster of this size has in common.

    Topics made by being used have 6 partitions and, where there are as many brokers, 3 replicas
    of which 2 must be in sync: losing one broker loses nothing.
    """
    replicas = str(min(3, brokers))
    in_sync = str(min(2, brokers))
    return {
        "auto.create.topics.enable": "true",
        "controller.listener.names": "CONTROLLER",
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": _SECURITY_PROTOCOLS,
        # The default takes 128 MB of a heap that has 384.
        "log.cleaner.dedupe.buffer.size": "4194304",
        "min.insync.replicas": in_sync,
        "num.partitions": "6",
        # Kafka's 50 partitions each take a small machine seconds to create.
        "offsets.topic.num.partitions": "6",
        "offsets.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "6",
        "share.coordinator.state.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "6",
        "transaction.state.log.replication.factor": replicas,
    }


def broker_properties(
    spec: ClusterSpec,
    broker: int,
    ports: Sequence[Ports],
    log_dir: str,
    secured: Secured | None = None,
) -> dict[str, str]:
    """One broker's ``server.properties``; ``ports`` are all brokers', ``log_dir`` and ``secured``
    its own."""
    controllers = controller_ids(spec.brokers)
    own = ports[broker]
    bound = {"DIRECT": own.direct, "PROXIED": own.proxied, "INTERNAL": own.internal}
    if secured is not None:
        bound |= secured.ports
    advertised = bound | {"PROXIED": own.proxy}
    if broker in controllers:
        bound["CONTROLLER"] = own.controller
    properties = shared_settings(spec.brokers) | {
        "advertised.listeners": _listeners(advertised),
        "controller.quorum.voters": ",".join(
            f"{node}@{HOST}:{ports[node].controller}" for node in controllers
        ),
        "listeners": _listeners(bound),
        "log.dirs": log_dir,
        "node.id": str(broker),
        "process.roles": "broker,controller" if broker in controllers else "broker",
    }
    if spec.racks is not None:
        properties["broker.rack"] = spec.racks[broker]
    if secured is not None and spec.security is not None:
        properties["listener.security.protocol.map"] += spec.security.protocol_map()
        properties |= spec.security.properties(secured.certificates)
    return properties | dict(spec.config)


def new_uuid() -> str:
    """A random id in Kafka's notation: 16 bytes in URL-safe base64, without a leading dash."""
    while (text := _base64(uuid.uuid4())).startswith("-"):
        pass
    return text


def _base64(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{key} must be a string, a number or a boolean, not {value!r}")
