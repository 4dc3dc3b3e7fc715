"""The options of :class:`kafkaclient.Consumer`.

Names, defaults and checks are as in Java's ``ConsumerConfig`` of Kafka 4.4, apart from the
differences that the options name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kafkaclient.config.kinds import (
    BOOLEAN,
    ERROR_POLICY,
    FILLED_TEXT,
    HOOKS,
    Kind,
    integer,
    one_of,
    optional,
    serializer,
)
from kafkaclient.config.options import Section
from kafkaclient.config.reader import ReaderConfig
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.config.options import Given
    from kafkaclient.hooks import Hooks

_GROUP = Section("Group")
_OFFSETS = Section("Offsets and commits")
_DESERIALIZERS = Section("Deserializers and hooks")
_METRICS = Section("Metrics")


def _deserializer(type_variable: str) -> Kind[Any]:
    """The kind of a deserializer whose results have the type ``type_variable``."""
    function = f"Callable[[bytes], Awaitable[{type_variable}] | {type_variable}]"
    types = f"Deserializer[{type_variable}] | {function}"
    return optional(serializer("(bytes) -> object", types, "deserialize(bytes, context)"))


_ASSIGNORS = ("cooperative-sticky", "sticky", "range", "roundrobin")
_JAVA_CLASS = re.compile(r"org\.apache\.kafka\.clients\.consumer\.(\w+)Assignor")
_DURATION = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def _read_assignors(value: object) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given:
        raise TypeError(value)
    names = []
    for each in given:
        name = each.strip()
        if java := _JAVA_CLASS.fullmatch(name):
            name = {"CooperativeSticky": "cooperative-sticky"}.get(java[1], java[1].lower())
        if name not in _ASSIGNORS or name in names:
            raise ValueError(value)
        names.append(name)
    return tuple(names)


_STRATEGY = Kind("one or more of " + ", ".join(_ASSIGNORS), _read_assignors, "str | Sequence[str]")


def _read_reset(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    text = value.strip()
    if text.lower() in ("earliest", "latest", "none"):
        return text.lower()
    if text.endswith(("P", "T")) or not _DURATION.fullmatch(text):
        raise ValueError(value)
    return text


_RESET = Kind(
    "earliest, latest, none, or by_duration: and a duration such as PT1H", _read_reset, "str"
)


class ConsumerConfig(ReaderConfig):
    """Checked options. :meth:`build` makes them, and adjusts options that affect each other."""

    group_id: str | None = _GROUP.option(None, optional(FILLED_TEXT))
    """The consumer group, whose members share the partitions of their topics. Needed to subscribe
    to topics and to commit offsets; not needed to read partitions that were assigned by hand."""
    group_instance_id: str | None = _GROUP.option(None, optional(FILLED_TEXT))
    """Makes a static member (KIP-345). It keeps its partitions while it restarts, if it was stopped
    and is back before its session ends. With group_protocol consumer, a process that was killed
    leaves its session behind: the coordinator refuses the next process (UNRELEASED_INSTANCE_ID)
    until that session has ended (group.consumer.session.timeout.ms of the broker). With classic,
    the next process replaces it at once. Each member of a group needs a value of its own."""
    group_protocol: str = _GROUP.option("auto", one_of("auto", "consumer", "classic"))
    """How the group shares its partitions: consumer is the protocol of KIP-848, in which the
    group's coordinator assigns partitions; classic is the older protocol, in which a member does.
    auto uses consumer if the coordinator has it (Kafka 4.0), otherwise classic (Java: classic)."""
    group_remote_assignor: str | None = _GROUP.option(None, optional(FILLED_TEXT))
    """The coordinator's assignor, such as uniform or range; by default the coordinator chooses.
    Only for group_protocol consumer."""
    partition_assignment_strategy: tuple[str, ...] = _GROUP.option(
        ("cooperative-sticky",), _STRATEGY
    )
    """The assignors of this member, the preferred one first; also Java's class names. With
    cooperative-sticky alone, partitions that stay are consumed during a rebalance. If another one
    is named as well, all members give up all partitions at every rebalance (Java: range,
    cooperative-sticky). All members of a group need a common assignor. Only for group_protocol
    classic."""
    session_timeout_ms: int = _GROUP.option(45_000, integer(1))
    """How long the coordinator keeps a member that sends no heartbeat (milliseconds).
    For group_protocol consumer the broker decides (group.consumer.session.timeout.ms)."""
    heartbeat_interval_ms: int = _GROUP.option(3_000, integer(1))
    """The time between two heartbeats in milliseconds. Must be below session_timeout_ms. For
    group_protocol consumer the broker decides (group.consumer.heartbeat.interval.ms)."""
    max_poll_interval_ms: int = _GROUP.option(300_000, integer(1))
    """If a record or a batch is in hand for longer than this many milliseconds, the member leaves
    its group, so that others get its partitions (KIP-62). It is also how long a rebalance waits for
    this member."""

    auto_offset_reset: str = _OFFSETS.option("latest", _RESET)
    """Where a partition begins for which the group has no offset, or an offset that is not in the
    log: earliest, latest, by_duration: and an ISO 8601 duration (KIP-1106: that long ago), or none,
    which is an error. Topics and partitions that are created after this member has joined begin at
    their first record also with latest (KIP-842, KIP-1327; with latest in Java, records are lost
    that come before the consumer finds the partition)."""
    exclude_internal_topics: bool = _OFFSETS.option(True, BOOLEAN)
    """Whether a pattern matches no internal topics, such as __consumer_offsets. Named ones can be
    consumed in any case. With group_protocol consumer the coordinator decides."""
    enable_auto_commit: bool = _OFFSETS.option(True, BOOLEAN)
    """Whether the offsets behind finished records are committed every auto_commit_interval_ms, when
    partitions are revoked, and at the end. A record in hand is never committed."""
    auto_commit_interval_ms: int = _OFFSETS.option(5_000, integer(1))
    """The time between two commits in milliseconds."""

    key_deserializer: Any = _DESERIALIZERS.option(None, _deserializer("Key_co"))
    """Makes an object of every key that is not null: a function of the bytes, or an object whose
    method deserialize also gets the record's topic and headers (kafkaclient.Deserializer). Both may
    be async. Without it keys are bytes. Batches have bytes in any case. See consume.md."""
    value_deserializer: Any = _DESERIALIZERS.option(None, _deserializer("Value_co"))
    """Makes an object of every value that is not null, as key_deserializer does of keys."""
    on_error: Any = _DESERIALIZERS.option("fail", ERROR_POLICY)
    """What happens to a record that cannot be deserialized. fail: the loop raises a
    DeserializationError, and the position stays before the record. skip: the record is counted
    (dropped-records-total) and logged. A function, maybe async, is called with the record and the
    error, and the record is finished when it has returned; kafkaclient.DeadLetters is one."""

    hooks: tuple[Hooks, ...] = _DESERIALIZERS.option((), HOOKS)
    """Objects that see the start, every batch, every commit and every rebalance
    (kafkaclient.hooks.Hooks)."""

    enable_metrics_push: bool = _METRICS.option(True, BOOLEAN)
    """Whether metrics are pushed to a broker when the cluster subscribes to some (KIP-714). Nothing
    is computed or sent for a cluster that has no receiver for metrics."""

    @property
    def reset_age_s(self) -> float | None:
        """The age at which partitions begin; None without by_duration."""
        found = _DURATION.fullmatch(self.auto_offset_reset)
        if found is None:
            return None
        days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        """As for a reader; also, a session must be longer than the time between heartbeats."""
        if values["heartbeat_interval_ms"] >= values["session_timeout_ms"]:
            entry = given.get("heartbeat_interval_ms") or given["session_timeout_ms"]
            raise ConfigError(
                f"{entry} is not accepted: heartbeat_interval_ms must be below session_timeout_ms"
            )
        if values["group_instance_id"] is not None and values["group_id"] is None:
            raise ConfigError("group_instance_id is not accepted without group_id")
        ReaderConfig.settle(values, given)
