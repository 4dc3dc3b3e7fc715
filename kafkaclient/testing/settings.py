"""The broker settings of LocalCluster and docker-compose.yml.

Each broker has four listeners on 127.0.0.1:

- ``DIRECT``: for clients that connect to the broker directly.
- ``PROXIED``: for clients that connect through the broker's fault proxy. The broker advertises the
  port of the proxy instead of its own port.
- ``INTERNAL``: for replication between the brokers, which faults of the proxy do not affect.
- ``CONTROLLER``: for KRaft, on controllers only.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kafkaclient.testing.security import ClusterSecurity


DEFAULT_VERSION = "4.4.0"
HOST = "127.0.0.1"
HEAP_MB = 384
_MAX_BROKERS = 15
_LAST_PORT = 65_535

PROXIED = "PROXIED"
_PLAIN_LISTENERS = ("CONTROLLER", "DIRECT", "INTERNAL", PROXIED)

# broker_properties() sets these keys. A caller's value would break the cluster.
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
    """The ports of one broker. It advertises ``proxy`` as the port of its ``proxied`` listener."""

    direct: int
    proxied: int
    proxy: int
    internal: int
    controller: int


class Secured(NamedTuple):
    """The ports of one broker by secure listener, and the directory of the certificates."""

    ports: dict[str, int]
    certificates: Path


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The specification of a cluster. Raises ConfigError if it is invalid.

    ``config`` adds or replaces settings of every broker by Kafka's dotted names. ``racks`` has one
    rack per broker. ``features`` replaces default feature levels. The JVMs of ``long_lived``
    brokers optimize for throughput. ``heap_mb`` is the heap of each broker in MB. Broker N listens
    on ``port`` + N if all these ports are free, else, and without ``port``, on random ports."""

    brokers: int
    racks: Sequence[str] | None
    config: Mapping[str, Any]
    version: str
    security: ClusterSecurity | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    long_lived: bool = False
    heap_mb: int = HEAP_MB
    port: int | None = None

    def __post_init__(self) -> None:
        brokers, racks = self.brokers, self.racks
        if not 1 <= brokers <= _MAX_BROKERS:
            raise ConfigError(f"brokers must be 1 to {_MAX_BROKERS}, not {brokers}")
        if racks is not None and (isinstance(racks, str) or len(racks) != brokers):
            raise ConfigError(f"racks must name one rack for each of {brokers} brokers: {racks!r}")
        if self.port is not None and not 1 <= self.port <= _LAST_PORT - brokers:
            raise ConfigError(f"port must be 1 to {_LAST_PORT - brokers}, not {self.port}")
        for key in self.config:
            if key in _OWN_KEYS:
                raise ConfigError(f"{key} cannot be set: the local cluster sets it")
        texts = {key: _text(key, value) for key, value in self.config.items()}
        object.__setattr__(self, "config", texts)
        object.__setattr__(self, "racks", None if racks is None else list(racks))

    @property
    def secure_listeners(self) -> tuple[str, ...]:
        """The names of the listeners with TLS or SASL that have a port of their own."""
        listeners = () if self.security is None else self.security.listeners
        return tuple(listener.name for listener in listeners if listener.name != PROXIED)

    @property
    def encrypts_proxied(self) -> bool:
        """Whether the connections through the fault proxies use TLS."""
        listeners = () if self.security is None else self.security.listeners
        return any(each.name == PROXIED and "SSL" in each.protocol for each in listeners)


def controller_ids(brokers: int) -> tuple[int, ...]:
    """The brokers that are also controllers: the first three, or only the first of one or two.

    Three controllers tolerate the loss of one. Two would tolerate none, so a cluster of two brokers
    has one controller, and its other broker can be stopped.
    """
    return (0, 1, 2) if brokers >= 3 else (0,)


def shared_settings(brokers: int) -> dict[str, str]:
    """The settings of every broker in a cluster of this size.

    Auto-created topics have 6 partitions. With three brokers they have 3 replicas and
    ``min.insync.replicas=2``, so that the loss of one broker loses no records. Records are kept,
    however old their timestamps.
    """
    replicas = str(min(3, brokers))
    in_sync = str(min(2, brokers))
    return {
        "auto.create.topics.enable": "true",
        "controller.listener.names": "CONTROLLER",
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": _protocol_map({}),
        # The default needs 128 MB, but the heap has 384 MB.
        "log.cleaner.dedupe.buffer.size": "4194304",
        # Tests write records with timestamps of long ago.
        "log.retention.ms": "-1",
        "min.insync.replicas": in_sync,
        "num.partitions": "6",
        # Kafka's default of 50 partitions takes seconds on a small machine.
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
    """The ``server.properties`` of one broker. ``ports`` has the ports of all brokers."""
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
        protocols = {each.name: each.protocol for each in spec.security.listeners}
        properties["listener.security.protocol.map"] = _protocol_map(protocols)
        properties |= spec.security.properties(secured.certificates)
    return properties | dict(spec.config)


def new_uuid() -> str:
    """A random id in Kafka's format: 16 bytes in URL-safe base64, without a leading dash."""
    while (text := _base64(uuid.uuid4())).startswith("-"):
        pass
    return text


def _base64(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _protocol_map(secure: Mapping[str, str]) -> str:
    protocols = dict.fromkeys(_PLAIN_LISTENERS, "PLAINTEXT") | dict(secure)
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{key} must be a string, a number or a boolean, not {value!r}")
