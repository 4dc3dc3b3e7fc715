"""An application's options, under Kafka Streams' names."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.config.options import read_options
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.security import SecurityOptions
from kafkaclient.errors import ConfigError
from kafkaclient.streams.assignment.configs import AssignmentConfigs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AT_LEAST_ONCE", "EARLIEST", "EXACTLY_ONCE_V2", "LATEST", "StreamsConfig"]

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"
EARLIEST = "earliest"
LATEST = "latest"

_EXACTLY_ONCE = {"linger_ms": 0, "transaction_timeout_ms": 10_000}
_SET_BY_APPLICATION = "the application decides it"
_BYTES_ONLY = "changelogs are bytes; give processors a key_deserializer or a value_deserializer"
_NOT_FOR_CONSUMERS = {
    "auto_offset_reset": "give the application's option auto_offset_reset",
    "bootstrap_servers": "give the application's option bootstrap_servers",
    "enable_auto_commit": _SET_BY_APPLICATION,
    "group_id": "it is the application's option application_id",
    "group_instance_id": "static membership is not supported",
    "heartbeat_interval_ms": "give the application's option heartbeat_interval_ms",
    "isolation_level": _SET_BY_APPLICATION,
    "key_deserializer": _BYTES_ONLY,
    "loop": _SET_BY_APPLICATION,
    "partition_assignment_strategy": _SET_BY_APPLICATION,
    "rebalance_timeout_ms": "give the application's option rebalance_timeout_ms",
    "session_timeout_ms": "give the application's option session_timeout_ms",
    "value_deserializer": _BYTES_ONLY,
}
_NOT_FOR_PRODUCERS = {
    "bootstrap_servers": "give the application's option bootstrap_servers",
    "key_serializer": "what is emitted is bytes, as the changelogs are",
    "transactional_id": "it is made of application_id and the task",
    "value_serializer": "what is emitted is bytes, as the changelogs are",
}
_SECURITY = frozenset(field.name for field in fields(SecurityOptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Raises :class:`~kafkaclient.errors.ConfigError`, which names the option."""

    bootstrap_servers: str
    application_id: str
    """``application.id``: the group, and what changelogs and transactional ids begin with."""
    state_dir: str | Path
    """``state.dir``: each instance needs one of its own; below it, a directory per application."""
    processing_guarantee: str = AT_LEAST_ONCE
    """``processing.guarantee``: ``at_least_once`` or ``exactly_once_v2``."""
    acceptable_recovery_lag: int = 10_000
    """``acceptable.recovery.lag``, see
    :class:`~kafkaclient.streams.assignment.configs.AssignmentConfigs`, as for the next three."""
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    probing_rebalance_interval_ms: int = 600_000
    commit_interval_ms: int = 100
    """``commit.interval.ms``: writes stay in memory for as long. Java's default for at least once
    is 30 s."""
    replication_factor: int = -1
    """``replication.factor`` of changelogs that are made; -1: the brokers' default."""
    state_cleanup_delay_ms: int = 600_000
    """``state.cleanup.delay.ms``: how long a task's state is kept when it is not assigned."""
    session_timeout_ms: int = 10_000
    """``session.timeout.ms``: how long a killed instance's tasks wait for another one."""
    heartbeat_interval_ms: int = 300
    """``heartbeat.interval.ms``: how long a rebalance waits for members to hear of it."""
    rebalance_timeout_ms: int = 60_000
    """How long a member may take to end its work when a rebalance begins."""
    client_tags: Mapping[str, str] = field(default_factory=dict)
    """``client.tag.*``, for ``rack_aware_assignment_tags``."""
    rack_aware_assignment_tags: tuple[str, ...] = ()
    auto_offset_reset: str = EARLIEST
    """``auto.offset.reset``: where a task begins that has committed nothing, ``earliest`` or
    ``latest``. ``latest`` is decided once: the task commits this offset at once."""
    security_options: Mapping[str, Any] = field(default_factory=dict)
    """Encryption and authentication of all clients, under the producer's names
    (``security_protocol``, ``sasl_username``, ``ssl_truststore_location``, ...; docs/security.md).
    """
    consumer_options: Mapping[str, Any] = field(default_factory=dict)
    """More for aiokafka's consumers (``fetch_max_bytes``, ``client_rack``, ...)."""
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    """More for the producers (``compression_type``, ``transaction_timeout_ms``, ...). Exactly once,
    the defaults are ``linger_ms=0`` and ``transaction_timeout_ms=10_000``."""

    def __post_init__(self) -> None:
        if self.processing_guarantee not in (AT_LEAST_ONCE, EXACTLY_ONCE_V2):
            raise ConfigError(
                f"processing.guarantee is {self.processing_guarantee!r}; it must be "
                f"{AT_LEAST_ONCE!r} or {EXACTLY_ONCE_V2!r}"
            )
        if not self.application_id:
            raise ConfigError("application.id is empty; it names the application's group")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms is {self.heartbeat_interval_ms}; it must be from 1 to less "
                f"than session.timeout.ms, {self.session_timeout_ms}"
            )
        if self.commit_interval_ms < 0:
            raise ConfigError(f"commit.interval.ms is {self.commit_interval_ms}; it must be from 0")
        if self.auto_offset_reset not in (EARLIEST, LATEST):
            raise ConfigError(
                f"auto.offset.reset is {self.auto_offset_reset!r}; it must be {EARLIEST!r} or "
                f"{LATEST!r}"
            )
        _ = self.assignment
        self._check_client_options()
        timeout_s = self.transaction_timeout_s
        if timeout_s is not None and self.commit_interval_ms >= timeout_s * 1000:
            raise ConfigError(
                f"commit.interval.ms is {self.commit_interval_ms}; exactly once, it must be less "
                f"than transaction.timeout.ms, {timeout_s * 1000:g}: brokers abort a transaction "
                "that is open for longer (give producer_options={'transaction_timeout_ms': ...})"
            )

    def _check_client_options(self) -> None:
        """Raises ConfigError for an option that the application sets itself, or that is not what
        its place is for."""
        for name in self.consumer_options:
            if name in _NOT_FOR_CONSUMERS:
                raise ConfigError(
                    f"consumer_options has {name}, which clashes: {_NOT_FOR_CONSUMERS[name]}"
                )
        options = ProducerConfig.OPTIONS
        for name, given in read_options(options, ({}, self.producer_options)).items():
            if name in _NOT_FOR_PRODUCERS:
                raise ConfigError(
                    f"producer_options has {given.spelling}, which clashes: "
                    f"{_NOT_FOR_PRODUCERS[name]}"
                )
        security = read_options(options, ({}, self.security_options))
        if others := [given.spelling for name, given in security.items() if name not in _SECURITY]:
            raise ConfigError(
                f"security_options has {others[0]}, which has nothing to do with security: give "
                "it in producer_options"
            )
        if not security:
            return
        for place, names in (
            ("consumer_options", self.consumer_options),
            ("producer_options", read_options(options, ({}, self.producer_options))),
        ):
            if twice := [name for name in names if name.startswith(("ssl_", "sasl_", "security_"))]:
                raise ConfigError(
                    f"{place} has {twice[0]}, and security_options is given, which is for all "
                    "clients: give it there only"
                )
        _ = self.producer_config

    @property
    def client_options(self) -> dict[str, Any]:
        """For admin clients and producers."""
        return {**self.security_options, **self.producer_options}

    @property
    def transactional_options(self) -> dict[str, Any]:
        """For the producer of a task, exactly once."""
        given = read_options(ProducerConfig.OPTIONS, ({}, self.producer_options))
        defaults = {name: value for name, value in _EXACTLY_ONCE.items() if name not in given}
        return {**defaults, **self.client_options}

    @property
    def producer_config(self) -> ProducerConfig:
        """What :attr:`client_options` say; raises ConfigError."""
        return ProducerConfig.build(self.bootstrap_servers, self.client_options)

    @property
    def transaction_timeout_s(self) -> float | None:
        """How long a transaction may be open; None at least once, where there is none."""
        if not self.exactly_once:
            return None
        config = ProducerConfig.build(self.bootstrap_servers, self.transactional_options)
        return config.transaction_timeout_ms / 1000

    @property
    def assignment(self) -> AssignmentConfigs:
        return AssignmentConfigs(
            acceptable_recovery_lag=self.acceptable_recovery_lag,
            max_warmup_replicas=self.max_warmup_replicas,
            num_standby_replicas=self.num_standby_replicas,
            probing_rebalance_interval_ms=self.probing_rebalance_interval_ms,
            rack_aware_assignment_tags=self.rack_aware_assignment_tags,
        )

    @property
    def exactly_once(self) -> bool:
        return self.processing_guarantee == EXACTLY_ONCE_V2

    @property
    def directory(self) -> Path:
        return Path(self.state_dir) / self.application_id
