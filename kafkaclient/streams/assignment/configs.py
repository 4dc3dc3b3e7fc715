"""The options of the assignor, under Kafka Streams' names."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaclient.errors import ConfigError
from kafkaclient.streams.tasks import MAX_LAG

__all__ = ["AssignmentConfigs"]

_MAX_TAGS = 5
_LIMITS = (
    ("acceptable.recovery.lag", 0, MAX_LAG),
    ("max.warmup.replicas", 1, 2**31 - 1),
    ("num.standby.replicas", 0, 2**31 - 1),
    ("probing.rebalance.interval.ms", 60_000, MAX_LAG),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfigs:
    """Java's ``AssignmentConfigs``, with its defaults and limits. Raises
    :class:`~kafkaclient.errors.ConfigError`, which names the option as in Java."""

    acceptable_recovery_lag: int = 10_000
    """``acceptable.recovery.lag``: a client may take over a task while its copy lags at most this
    many records behind the changelogs. :data:`~kafkaclient.streams.tasks.MAX_LAG` means no limit.
    """
    max_warmup_replicas: int = 2
    """``max.warmup.replicas``: maximum number of warm-ups at a time, over all tasks. A warm-up is a
    copy beyond ``num.standby.replicas``."""
    num_standby_replicas: int = 0
    """``num.standby.replicas``: number of standby copies of each stateful task."""
    probing_rebalance_interval_ms: int = 600_000
    """``probing.rebalance.interval.ms``: time between checks whether warm-ups have caught up."""
    rack_aware_assignment_tags: tuple[str, ...] = ()
    """``rack.aware.assignment.tags`` (KIP-708): a task's copies should differ in these tags."""

    def __post_init__(self) -> None:
        for name, lowest, highest in _LIMITS:
            value = getattr(self, name.replace(".", "_"))
            if not lowest <= value <= highest:
                raise ConfigError(f"{name} is {value}; it must be from {lowest} to {highest}")
        if len(self.rack_aware_assignment_tags) > _MAX_TAGS:
            raise ConfigError(
                f"rack.aware.assignment.tags names {len(self.rack_aware_assignment_tags)} tags; "
                f"at most {_MAX_TAGS} are allowed"
            )
