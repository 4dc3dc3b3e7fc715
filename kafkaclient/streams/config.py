"""An application's options, under Kafka Streams' names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from kafkaclient.config.options import Given, read_options
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reader import ReaderConfig
from kafkaclient.config.security import SecurityOptions
from kafkaclient.errors import ConfigError
from kafkaclient.streams.clients import AssignmentConfigs
from kafkaclient.streams.declarations import checked_name
from kafkaclient.streams.group_protocol import HostInfo
from kafkaclient.streams.metrics import (
    RestoreListener,
    StateListener,
    checked_restore_listener,
    checked_state_listener,
)

_KINDS: dict[str, tuple[type, ...]] = {
    "Mapping": (Mapping,),
    "int": (int,),
    "str": (str,),
    "str | None": (str, type(None)),
    "str | Path": (str, Path),
    "tuple": (tuple,),
    "StateListener | None": (object,),  # checked_state_listener says more
    "RestoreListener | None": (object,),
}
AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"
EARLIEST = "earliest"
LATEST = "latest"

_AT_LEAST_ONCE = {"linger_ms": 0}
_EXACTLY_ONCE = _AT_LEAST_ONCE | {"transaction_timeout_ms": 10_000}
_PRODUCER = {"allow_auto_create_topics": False}
_SET_BY_RUNTIME = "the streams runtime sets it"
_APPLICATION_OPTION = "use the application option {}"
_BYTES_ONLY = "changelogs are bytes; processors declare the types of their topics"
_NOT_FOR_CONSUMERS = {
    "auto_offset_reset": _APPLICATION_OPTION,
    "bootstrap_servers": _APPLICATION_OPTION,
    "enable_auto_commit": _SET_BY_RUNTIME,
    "group_id": "use the application option application_id",
    "group_instance_id": _APPLICATION_OPTION,
    "heartbeat_interval_ms": _APPLICATION_OPTION,
    "isolation_level": _SET_BY_RUNTIME,
    "key_deserializer": _BYTES_ONLY,
    "partition_assignment_strategy": _SET_BY_RUNTIME,
    "rebalance_timeout_ms": _APPLICATION_OPTION,
    "session_timeout_ms": _APPLICATION_OPTION,
    "value_deserializer": _BYTES_ONLY,
}
_READING: Mapping[str, Any] = {"isolation_level": "read_committed", "fetch_max_wait_ms": 100}
_NOT_FOR_PRODUCERS = {
    "bootstrap_servers": _APPLICATION_OPTION.format("bootstrap_servers"),
    "key_serializer": "changelogs are bytes; topics declare their types",
    "transactional_id": "it is built from application_id and the process id",
    "value_serializer": "changelogs are bytes; topics declare their types",
}
_LOSES = "a commit could lose records and store changes that the brokers have acknowledged"
_REORDERS = "a retry could reorder or lose the changes of a key in a changelog"
_NOT_SAFE: Mapping[str, tuple[tuple[int, ...], str]] = {
    "acks": ((0, 1), _LOSES),
    "enable_idempotence": ((False,), _REORDERS),
    "retries": ((0,), _REORDERS),
}
_SECURITY = frozenset(SecurityOptions.OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig(AssignmentConfigs):
    """An application's options. Raises :class:`~kafkaclient.errors.ConfigError` with the option."""

    bootstrap_servers: str
    application_id: str
    """``application.id``: consumer group, and prefix of changelog topics and transactional ids."""
    state_dir: str | Path = field(
        default_factory=lambda: user_state_path("kafkaclient") / "streams"
    )
    """``state.dir``: each instance needs its own. Each application has a subdirectory. The default
    is in the user's directory for state (Linux: ``~/.local/state/kafkaclient/streams``); set it in
    containers, to a volume that outlives them. ``~`` is the user's directory."""
    processing_guarantee: str = AT_LEAST_ONCE
    """``processing.guarantee``: ``at_least_once`` or ``exactly_once_v2``."""
    commit_interval_ms: int = 100
    """``commit.interval.ms``: how long store changes stay in memory before they are committed.
    Java's default for at least once is 30 s."""
    replication_factor: int = -1
    """``replication.factor`` of new changelogs and repartition topics. -1 is the brokers'
    default."""
    repartition_purge_interval_ms: int = 30_000
    """``repartition.purge.interval.ms``: how often committed records of repartition topics are
    deleted (KIP-811)."""
    state_cleanup_delay_ms: int = 600_000
    """``state.cleanup.delay.ms``: how long the state of a task that is not assigned here is
    kept."""
    session_timeout_ms: int = 10_000
    """``session.timeout.ms``: tasks of an instance without heartbeats are reassigned after it."""
    heartbeat_interval_ms: int = 300
    """``heartbeat.interval.ms``: members learn of a rebalance with their next heartbeat."""
    rebalance_timeout_ms: int = 60_000
    """How long a rebalance waits for a member to join again."""
    group_instance_id: str | None = None
    """``group.instance.id`` (KIP-345), another one for each instance: an instance that restarts
    within ``session.timeout.ms`` gets its tasks back without a rebalance. It does not leave the
    group when it ends: its tasks wait for it, up to ``session.timeout.ms``."""
    application_server: str | None = None
    """``application.server``: ``host:port`` at which this instance answers queries. The leader
    tells it to the other instances (:meth:`~kafkaclient.streams.StreamsApp.instance_for`)."""
    state_listener: StateListener | None = None
    """Called with the new and the old :class:`~kafkaclient.streams.AppState`."""
    restore_listener: RestoreListener | None = None
    """Is told how stores are restored."""
    client_tags: Mapping[str, str] = field(default_factory=dict)
    """``client.tag.*``, used by ``rack_aware_assignment_tags``."""
    auto_offset_reset: str = EARLIEST
    """``auto.offset.reset``: where a task without committed offset begins, ``earliest`` or
    ``latest``. A ``latest`` offset is committed immediately, so that a restart skips no records."""
    security_options: Mapping[str, Any] = field(default_factory=dict)
    """Encryption and authentication of all clients, under the producer's names
    (``security_protocol``, ``sasl_username``, ``ssl_truststore_location``, ...;
    docs/how-to/security.md)."""
    consumer_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the reader (``fetch_max_bytes``, ``max_partition_fetch_bytes``,
    ``client_rack``, ...; docs/reference/reader-options.md). ``fetch_max_wait_ms`` is 100 unless it
    is given: a partition that is added waits for the end of an empty fetch."""
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the producers (``compression_type``, ``transaction_timeout_ms``, ...). The
    default of ``linger_ms`` is 0, because each commit waits for its records. With
    ``exactly_once_v2`` the default of ``transaction_timeout_ms`` is 10,000."""

    def __post_init__(self) -> None:
        self._check_types()
        for name, value, choices in (
            ("processing.guarantee", self.processing_guarantee, (AT_LEAST_ONCE, EXACTLY_ONCE_V2)),
            ("auto.offset.reset", self.auto_offset_reset, (EARLIEST, LATEST)),
        ):
            if value not in choices:
                raise ConfigError(
                    f"{name} is {value!r}; it must be {choices[0]!r} or {choices[1]!r}"
                )
        checked_name(self.application_id, "application.id")  # the prefix of topics, and a directory
        if self.group_instance_id is not None and not self.group_instance_id:
            raise ConfigError("group.instance.id is empty; it names one instance of the group")
        _ = self.host_info
        checked_state_listener(self.state_listener)
        checked_restore_listener(self.restore_listener)
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms is {self.heartbeat_interval_ms}; it must be at least 1 and "
                f"less than session.timeout.ms, {self.session_timeout_ms}"
            )
        for name, lowest in (("repartition.purge.interval.ms", 1), ("commit.interval.ms", 0)):
            if (given := getattr(self, name.replace(".", "_"))) < lowest:
                raise ConfigError(f"{name} is {given}; it must be at least {lowest}")
        self._check_values()
        AssignmentConfigs.__post_init__(self)
        self._check_client_options()
        timeout_s = self.transaction_timeout_s
        if timeout_s is not None and self.commit_interval_ms >= timeout_s * 1000:
            raise ConfigError(
                f"commit.interval.ms is {self.commit_interval_ms}; with exactly_once_v2 it must be "
                f"less than transaction.timeout.ms, {timeout_s * 1000:g}: brokers abort "
                "transactions that stay open longer. Raise transaction_timeout_ms in "
                "producer_options"
            )

    def _check_types(self) -> None:
        """Raise ConfigError for an option of a wrong type."""
        for option in fields(self):
            value, kinds = getattr(self, option.name), _KINDS[str(option.type).split("[")[0]]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                wanted = " or ".join(kind.__name__.lower() for kind in kinds)
                raise ConfigError(
                    f"{option.name.replace('_', '.')} is {value!r}; it must be of type {wanted}"
                )

    def _check_values(self) -> None:
        """Raise ConfigError for a value that the brokers or the disk would refuse later."""
        if self.replication_factor != -1 and not 1 <= self.replication_factor <= 32_767:
            raise ConfigError(
                f"replication.factor is {self.replication_factor}; it must be at least 1, or -1 "
                "for the brokers' default"
            )
        for tag, value in self.client_tags.items():
            if not (isinstance(tag, str) and tag and isinstance(value, str) and value):
                raise ConfigError(
                    f"client.tags has {tag!r}: {value!r}; names and values are non-empty texts"
                )
        if not str(self.state_dir):
            raise ConfigError("state.dir is empty; give a directory, or leave the option out")
        _ = self.directory

    def _check_client_options(self) -> None:
        """Raise ConfigError for an option that the runtime sets, or that is in the wrong group."""
        not_for_consumers = dict.fromkeys(_SECURITY, "use security_options") | _NOT_FOR_CONSUMERS
        for name in self.consumer_options:
            plain = str(name).replace(".", "_")
            if reason := not_for_consumers.get(plain):
                raise ConfigError(f"consumer_options must not have {name}: {reason.format(plain)}")
        options = ProducerConfig.OPTIONS
        producer = read_options(options, [self.producer_options])
        security = read_options(options, [self.security_options])
        creates = producer.get("allow_auto_create_topics")
        if creates is not None and creates.value is not False:
            raise ConfigError(
                f"producer_options has {creates.spelling}: output topics must exist, and a "
                "changelog that was deleted must not be created without its configuration"
            )
        if others := [given.spelling for name, given in security.items() if name not in _SECURITY]:
            raise ConfigError(
                f"security_options has {others[0]}, which is not a security option: put it in "
                "producer_options"
            )
        for name, given in producer.items():
            if reason := _not_for_producers(name, given):
                raise ConfigError(f"producer_options must not have {reason}")
            if security and name in _SECURITY:
                raise ConfigError(
                    f"producer_options has {given.spelling}, but security_options is given: put "
                    "all security options there"
                )
        if security:
            _ = self.producer_config
        _ = self.reader_config

    @property
    def host_info(self) -> HostInfo | None:
        """The parsed :attr:`application_server`. Raises ConfigError."""
        if self.application_server is None:
            return None
        try:
            return HostInfo.parse(self.application_server)
        except ValueError as error:
            raise ConfigError(
                f"application.server: {error}; give the address at which the other instances reach "
                "this one, such as '10.0.0.7:8001'"
            ) from None

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of admin clients, and of the producer without its defaults."""
        return {**self.security_options, **self.producer_options}

    @property
    def reader_options(self) -> dict[str, Any]:
        """Options of the reader of input topics and changelogs."""
        given = read_options(ReaderConfig.OPTIONS, [self.consumer_options])
        defaults = {name: value for name, value in _READING.items() if name not in given}
        return {**defaults, **self.security_options, **self.consumer_options}

    @property
    def reader_config(self) -> ReaderConfig:
        """The parsed :attr:`reader_options`. Raises ConfigError."""
        return ReaderConfig.build(self.bootstrap_servers, self.reader_options)

    @property
    def producer_defaults(self) -> dict[str, Any]:
        """Options of the instance's producer. It creates no topics."""
        given = read_options(ProducerConfig.OPTIONS, [self.producer_options])
        wanted = _EXACTLY_ONCE if self.exactly_once else _AT_LEAST_ONCE
        defaults = {name: value for name, value in wanted.items() if name not in given}
        return {**defaults, **self.client_options, **_PRODUCER}

    @property
    def producer_config(self) -> ProducerConfig:
        """The parsed :attr:`client_options`. Raises ConfigError."""
        return ProducerConfig.build(self.bootstrap_servers, self.client_options)

    @property
    def transaction_timeout_s(self) -> float | None:
        """How long a transaction may stay open. None with ``at_least_once``."""
        if not self.exactly_once:
            return None
        config = ProducerConfig.build(self.bootstrap_servers, self.producer_defaults)
        return config.transaction_timeout_ms / 1000

    @property
    def exactly_once(self) -> bool:
        return self.processing_guarantee == EXACTLY_ONCE_V2

    @property
    def directory(self) -> Path:
        """The application's directory in :attr:`state_dir`. Raises ConfigError."""
        try:
            return Path(self.state_dir).expanduser() / self.application_id
        except RuntimeError as error:
            raise ConfigError(f"state.dir is {str(self.state_dir)!r}: {error}") from None


def _not_for_producers(name: str, given: Given) -> str | None:
    """The option and why the application's producers must not have it."""
    if name in _NOT_FOR_PRODUCERS:
        return f"{given.spelling}: {_NOT_FOR_PRODUCERS[name]}"
    values, why = _NOT_SAFE.get(name, ((), ""))
    return f"{given}: {why}" if given.value in values else None
