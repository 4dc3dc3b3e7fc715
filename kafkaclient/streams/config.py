"""An application's options, under Kafka Streams' names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError
from kafkaclient.streams.assignment.configs import AssignmentConfigs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE_V2", "StreamsConfig"]

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"


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
    consumer_options: Mapping[str, Any] = field(default_factory=dict)
    """More for aiokafka's consumers (``security_protocol``, ``ssl_context``, ...)."""
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    """More for the producers (``compression_type``, ``security_protocol``, ...)."""

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
        _ = self.assignment

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
