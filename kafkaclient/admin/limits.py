"""The partition limits of KIP-578 and their usage. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ConfigError, PartitionLimitRaceError, PolicyViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.wire.api import MetadataResult

MAX_BROKER_PARTITIONS = "max.broker.partitions"
MAX_PARTITIONS = "max.partitions"
COUNT = "max.partitions.count"

OFF = 2**63 - 1  # KIP-578's default of both limits, which means no limit

LIMITS_TOPIC = "__kafkaclient_partition_limits"
"""A compacted topic with one partition. Each record has a limit's name as its key and the limit as
text; a null value is no limit. The topic itself does not count against the limits."""

# Kafka's internal topics. Metadata marks existing topics as internal, but not future ones.
_EXEMPT = {"__consumer_offsets", "__transaction_state", "__share_group_state", LIMITS_TOPIC}

_OFF_WORDS = frozenset({"", "off", "none", str(OFF)})
_COUNTS = ("partitions", "replicas")


@dataclass(frozen=True, slots=True)
class Limits:
    """The partition limits of a cluster. None is no limit.

    ``max_broker_partitions`` bounds the replicas on each broker. ``max_partitions`` bounds the
    partitions of the cluster, or with ``count="replicas"`` the replicas of all partitions: the text
    of KIP-578 allows both readings.
    """

    max_broker_partitions: int | None = None
    max_partitions: int | None = None
    count: str = "partitions"

    @classmethod
    def parse(cls, given: Mapping[str, str | int | None]) -> Limits:
        """The limits by their names in KIP-578 (``off``: no limit). Raises ConfigError."""
        return cls().changed(given)

    def changed(self, given: Mapping[str, str | int | None]) -> Limits:
        """A copy with the ``given`` limits replaced. Raises ConfigError if one is invalid."""
        limits = self
        for name, raw in given.items():
            value = "" if raw is None else str(raw)
            if name == MAX_BROKER_PARTITIONS:
                limits = replace(limits, max_broker_partitions=_number(name, value))
            elif name == MAX_PARTITIONS:
                limits = replace(limits, max_partitions=_number(name, value))
            elif name != COUNT:
                known = f"{MAX_BROKER_PARTITIONS}, {MAX_PARTITIONS}, {COUNT}"
                raise ConfigError(f"unknown partition limit {name!r}; the known limits are {known}")
            elif value not in ("", *_COUNTS):
                raise ConfigError(f"{COUNT}={value} is not valid; give {' or '.join(_COUNTS)}")
            else:
                limits = replace(limits, count=value or _COUNTS[0])
        return limits

    def as_properties(self) -> dict[str, str | None]:
        """The limits by their names in KIP-578 (None: no limit), as :meth:`parse` takes them."""
        return {
            name: None if value is None else str(value)
            for name, value in (
                (MAX_BROKER_PARTITIONS, self.max_broker_partitions),
                (MAX_PARTITIONS, self.max_partitions),
                (COUNT, None if self.count == _COUNTS[0] else self.count),
            )
        }

    @property
    def any(self) -> bool:
        """Whether any limit is set."""
        return self.max_broker_partitions is not None or self.max_partitions is not None

    def __str__(self) -> str:
        counted = " (of replicas)" if self.count == "replicas" else ""
        return (
            f"{MAX_BROKER_PARTITIONS}={_shown(self.max_broker_partitions)}, "
            f"{MAX_PARTITIONS}={_shown(self.max_partitions)}{counted}"
        )


def _number(name: str, value: str) -> int | None:
    if value.strip().lower() in _OFF_WORDS:
        return None
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number <= OFF:
        raise ConfigError(
            f"{name}={value} is not a valid limit; give a whole number from 0 to {OFF}, or off"
        )
    return number


def _shown(limit: int | None) -> str:
    return "off" if limit is None else str(limit)


def is_exempt(topic: str) -> bool:
    """Whether the limits do not apply to the topic."""
    return topic in _EXEMPT


class Addition(NamedTuple):
    """The numbers of partitions and replicas that a change adds. ``what`` describes the change in
    messages. ``gains`` is the number of new replicas by broker, if the placement is known."""

    what: str
    partitions: int
    replicas: int
    gains: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of the limits, without exempt topics.

    ``racks`` has the rack of each broker that is up. ``hosted`` is the number of replicas on each
    broker, also on brokers that are down. It includes replicas that a reassignment adds or removes.
    """

    racks: Mapping[int, str | None]
    hosted: Mapping[int, int]
    partitions: int
    replicas: int

    @classmethod
    def of(cls, cluster: MetadataResult) -> Usage:
        """The usage from metadata of all topics."""
        hosted: Counter[int] = Counter({broker.node_id: 0 for broker in cluster.brokers})
        partitions = 0
        for topic in cluster.topics:
            counts = not (topic.is_internal or is_exempt(topic.name))
            if counts:
                partitions += len(topic.partitions)
            for partition in topic.partitions:
                # Exempt replicas count 0, but keep a broker that is down in `hosted`.
                hosted.update(dict.fromkeys(partition.replicas, 1 if counts else 0))
        racks = {broker.node_id: broker.rack for broker in cluster.brokers}
        return cls(racks, hosted, partitions, hosted.total())

    def after(self, request: Addition) -> Usage:
        """The usage after this change."""
        hosted = Counter(self.hosted)
        hosted.update(request.gains)
        partitions, replicas = request.partitions, request.replicas
        return Usage(self.racks, hosted, self.partitions + partitions, self.replicas + replicas)

    @property
    def down(self) -> list[int]:
        """The brokers that host replicas and are down. Their racks are unknown."""
        return sorted(self.hosted.keys() - self.racks.keys())

    def counted(self, limits: Limits) -> int:
        """The number that ``max.partitions`` bounds."""
        return self.replicas if limits.count == "replicas" else self.partitions

    def capacities(self, limits: Limits, brokers: Iterable[int] | None = None) -> dict[int, int]:
        """How many more replicas each of the ``brokers`` (default: those that are up) may host;
        empty without a limit per broker."""
        limit = limits.max_broker_partitions
        if limit is None:
            return {}
        nodes = self.racks if brokers is None else brokers
        return {broker: max(0, limit - self.hosted.get(broker, 0)) for broker in nodes}

    def any_placement_fits(self, limits: Limits, partitions: int) -> bool:
        """Whether every placement of this many new partitions stays within
        ``max.broker.partitions``."""
        limit = limits.max_broker_partitions
        return limit is None or max(self.hosted.values(), default=0) + partitions <= limit

    def refuse(self, limits: Limits, request: Addition, why: str) -> PolicyViolationError:
        """The error for a request that the limits do not allow."""
        capacities = self.capacities(limits)
        remaining = ", ".join(f"broker {b}: {n}" for b, n in sorted(capacities.items()))
        most, counted = limits.max_partitions, self.counted(limits)
        headroom = "no limit" if most is None else max(0, most - counted)
        return self._violation(
            PolicyViolationError,
            limits,
            f"{request.what}: POLICY_VIOLATION (44): {why}. Limits: {limits}. Remaining capacity: "
            f"{remaining or 'no limit per broker'}; cluster: {headroom}. Nothing was "
            "changed; request fewer partitions, delete or reassign partitions, or raise the limit "
            "(kafkaclient limits set)",
        )

    def _violation(
        self, kind: type[PolicyViolationError], limits: Limits, message: str
    ) -> PolicyViolationError:
        error = kind(message)
        error.max_broker_partitions = limits.max_broker_partitions
        error.max_partitions = limits.max_partitions
        error.remaining = self.capacities(limits)
        return error

    def check(self, limits: Limits, request: Addition) -> None:
        """Raise PolicyViolationError if the cluster or a broker would exceed a limit."""
        self.check_total(limits, request)
        self.check_gains(limits, request)

    def check_total(self, limits: Limits, request: Addition) -> None:
        """Raise PolicyViolationError if the cluster would exceed ``max.partitions``."""
        more = request.replicas if limits.count == "replicas" else request.partitions
        if limits.max_partitions is None or more <= 0:
            return
        total = self.counted(limits) + more
        if total > limits.max_partitions:
            have = f"the cluster would have {total} {limits.count}"
            raise self.refuse(limits, request, f"{have}, more than {MAX_PARTITIONS} allows")

    def check_gains(self, limits: Limits, request: Addition) -> None:
        """Raise PolicyViolationError if a broker that gains a replica would exceed its limit. A
        broker that gains no replica may exceed the limit."""
        after = Counter(self.hosted)
        after.update(request.gains)
        full = [f"broker {b} would have {after[b]}" for b in _over(limits, request, after)]
        if full:
            why = f"{', '.join(full)}, more than {MAX_BROKER_PARTITIONS} allows"
            raise self.refuse(limits, request, why)

    def check_race(self, limits: Limits, request: Addition, *, undone: bool = False) -> None:
        """Raise PartitionLimitRaceError if this usage, which was read after the change, exceeds a
        limit for a broker or total to which the change added. A concurrent change then used the
        same capacity. ``undone``: the caller undoes the change."""
        full = _over(limits, request, self.hosted)
        over = [f"broker {broker} has {self.hosted[broker]} replicas" for broker in full]
        most = limits.max_partitions
        if most is not None and request.partitions and self.counted(limits) > most:
            over.append(f"the cluster has {self.counted(limits)} {limits.count}")
        if not over:
            return
        done = "undone, because" if undone else "done, but"
        advice = "Retry" if undone else "Undo one of the two changes"
        raise self._violation(
            PartitionLimitRaceError,
            limits,
            f"{request.what}: {done} a concurrent change used the same capacity: "
            f"{', '.join(over)}; limits: {limits}. {advice}, or raise the limit (kafkaclient "
            "limits set)",
        )


def _over(limits: Limits, request: Addition, hosted: Mapping[int, int]) -> list[int]:
    """The brokers that gain a replica, and host more replicas than the limit."""
    limit = limits.max_broker_partitions
    if limit is None:
        return []
    gaining = (broker for broker, gain in sorted(request.gains.items()) if gain > 0)
    return [broker for broker in gaining if hosted.get(broker, 0) > limit]


class BrokerUsage(NamedTuple):
    """One broker's usage of ``max.broker.partitions``."""

    node_id: int
    rack: str | None
    up: bool
    hosted: int
    """Number of replicas that count against the limit."""
    headroom: int | None
    """How many more replicas the limit allows, negative above the limit; None without a limit."""


@dataclass(frozen=True, slots=True)
class LimitsReport:
    """The partition limits and their usage."""

    limits: Limits
    brokers: tuple[BrokerUsage, ...]
    counted: int
    """The number that ``max.partitions`` bounds: partitions, or replicas if so configured."""
    partitions: int
    replicas: int

    @property
    def headroom(self) -> int | None:
        """How many more ``max.partitions`` allows, negative above it; None without a limit."""
        most = self.limits.max_partitions
        return None if most is None else most - self.counted

    @property
    def violations(self) -> tuple[str, ...]:
        """A sentence for each exceeded limit."""
        return self.above(1.0)

    def above(self, share: float) -> tuple[str, ...]:
        """A sentence for each limit of which more than ``share`` (0.0 to 1.0) is used."""
        found = []
        limit, most = self.limits.max_broker_partitions, self.limits.max_partitions
        if limit is not None:
            found += [
                f"broker {broker.node_id} has {broker.hosted} of max.broker.partitions={limit}"
                for broker in self.brokers
                if broker.hosted > limit * share
            ]
        if most is not None and self.counted > most * share:
            found.append(
                f"the cluster has {self.counted} {self.limits.count} of max.partitions={most}"
            )
        return tuple(found)


def limits_report(limits: Limits, usage: Usage) -> LimitsReport:
    brokers = []
    for node, hosted in sorted(usage.hosted.items()):
        limit = limits.max_broker_partitions
        headroom = None if limit is None else limit - hosted
        rack, up = usage.racks.get(node), node in usage.racks
        brokers.append(BrokerUsage(node, rack, up, hosted, headroom))
    counted = usage.counted(limits)
    return LimitsReport(limits, tuple(brokers), counted, usage.partitions, usage.replicas)
