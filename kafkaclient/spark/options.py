"""The options of ``format("kafkaclient")``: those of spark-sql-kafka, checked.

``kafka.*`` goes to the client; what Spark itself hands along is passed over. Values of ``kafka.*``
are never shown: passwords are among them.
"""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kafkaclient.config import ClientConfig, ProducerConfig, ReaderConfig
from kafkaclient.errors import ConfigError
from kafkaclient.spark.offsets import (
    EARLIEST,
    LATEST,
    ByOffset,
    ByTime,
    Edge,
    Everywhere,
    offsets_from,
    partitions_from,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.types import TopicPartition

__all__ = ["SUBSCRIPTIONS", "Mode", "ReadOptions", "Subscription", "WriteOptions"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
Mode = Literal["batch", "streaming"]

_CLIENT = "kafka."
SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
_READ = (
    *SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
)
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_TRIGGER = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_TRANSACTIONAL = (
    "transactionalIdPrefix",
    "ledgerReplicationFactor",
    "ledgerMinInsyncReplicas",
    "failOnDataLoss",
)
_WRITE = ("topic", "includeHeaders", "exactlyOnce", *_TRANSACTIONAL)
_DEFAULT_PREFIX = "kafkaclient-spark"
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_ALL = (*dict.fromkeys((*_READ, *_ENDING, *_TRIGGER, *_WRITE)),)

# Of the JVM's connector and of its consumer; they mean nothing without a consumer group.
_IDLE = {
    name.lower()
    for name in (
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "kafka.group.id",
        "kafka.group.instance.id",
        "kafka.heartbeat.interval.ms",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.partition.assignment.strategy",
        "kafka.session.timeout.ms",
    )
}
# What Spark's own readers and writers put among the options.
_SPARKS = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_REFUSED = {
    "kafka.auto.offset.reset": "give startingOffsets: which offsets have been read is Spark's part",
    "kafka.enable.auto.commit": "nothing is committed to Kafka: offsets are in Spark's checkpoint",
    "kafka.interceptor.classes": "Java classes cannot be loaded",
    "kafka.key.deserializer": "keys are read as BINARY: cast the column",
    "kafka.value.deserializer": "values are read as BINARY: cast the column",
    "kafka.key.serializer": "keys are written from STRING or BINARY columns",
    "kafka.value.serializer": "values are written from STRING or BINARY columns",
    "kafka.transactional.id": "each task gets its own: give exactlyOnce and transactionalIdPrefix",
}
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "": 1e-3}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read; one of the three is given."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read was asked for; made by :meth:`parse`."""

    client: dict[str, str] = field(repr=False)
    """For :class:`~kafkaclient.config.ReaderConfig`."""
    subscription: Subscription
    start: Edge
    end: Edge
    include_headers: bool
    min_partitions: int | None
    max_records: int | None
    """The most offsets that one task reads."""
    max_offsets: int | None
    """About the most offsets that one trigger reads."""
    min_offsets: int | None
    """A trigger waits for as many, up to ``max_delay_s`` seconds."""
    max_delay_s: float
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Mode) -> ReadOptions:
        """Raises ConfigError, which names the option."""
        given = _Given(options, (*_READ, *_ENDING, *_TRIGGER), mode)
        client = given.client(ReaderConfig)
        if mode == "batch":
            for name in given.which(_TRIGGER):
                _log.warning("option %s is ignored: it is for streaming reads", name)
            start, end = _edge(given, "starting", EARLIEST), _edge(given, "ending", LATEST)
            _check_batch(start, end)
        else:
            for name in given.which(_ENDING):
                raise ConfigError(f"option {name} is for batch reads: a streaming read has no end")
            start, end = _edge(given, "starting", LATEST), Everywhere(LATEST)
        least, most = given.count("minOffsetsPerTrigger"), given.count("maxOffsetsPerTrigger")
        if least and most and least > most:
            raise ConfigError(
                f"option minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}"
            )
        return cls(
            client=client,
            subscription=_subscription(given),
            start=start,
            end=end,
            include_headers=given.flag("includeHeaders", default=False),
            min_partitions=given.count("minPartitions"),
            max_records=given.count("maxRecordsPerPartition"),
            max_offsets=most,
            min_offsets=least,
            max_delay_s=given.read("maxTriggerDelay", _seconds, 900.0),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write was asked for; made by :meth:`parse`."""

    client: dict[str, str] = field(repr=False)
    """For :class:`~kafkaclient.config.ProducerConfig`."""
    topic: str | None
    """Of all rows; None: each has its own."""
    exactly_once: bool = False
    transactional_id_prefix: str = _DEFAULT_PREFIX
    fail_on_data_loss: bool = True
    """Whether it is an error that a decided batch cannot be committed as a whole any more, or is
    another one than Spark repeats."""
    ledger_replication_factor: int | None = None
    """None: 3, or as many as there are brokers."""
    ledger_min_insync_replicas: int | None = None
    """None: 2 with 3 replicas or more, else 1."""
    checkpoint: str | None = None
    """Where Spark notes what a batch has read (``checkpointLocation``)."""

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Mode) -> WriteOptions:
        """Raises ConfigError, which names the option."""
        given = _Given(options, _WRITE, mode)
        client = given.client(ProducerConfig)
        given.flag("includeHeaders", default=False)  # headers are written if the column is there
        topic = given.get("topic")
        if topic is not None and not topic.strip():
            raise ConfigError("option topic is empty: give a topic's name")
        exactly_once = given.flag("exactlyOnce", default=False)
        if exactly_once and mode == "batch":
            raise ConfigError("option exactlyOnce is for streaming writes")
        if exactly_once:
            ProducerConfig.build(client | {"transactional.id": "checked"}, {})
        for name in given.which(_TRANSACTIONAL):
            if not exactly_once:
                raise ConfigError(f"option {name} is for writes with exactlyOnce=true")
        replicas = given.count("ledgerReplicationFactor")
        insync = given.count("ledgerMinInsyncReplicas")
        if insync is not None and insync > (replicas or insync):
            raise ConfigError(
                f"option ledgerMinInsyncReplicas={insync} is above ledgerReplicationFactor="
                f"{replicas}: nothing could be written"
            )
        return cls(
            client=client,
            topic=topic.strip() if topic is not None else None,
            exactly_once=exactly_once,
            transactional_id_prefix=given.read("transactionalIdPrefix", _prefix, _DEFAULT_PREFIX),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            ledger_replication_factor=replicas,
            ledger_min_insync_replicas=insync,
            checkpoint=given.get("checkpointLocation"),
        )


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError("give up to 100 letters, digits, dots, underscores and hyphens")
    return text


class _Given:
    """What the user wrote, by lower-case name: Spark's options are not case-sensitive."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], mode: Mode) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        accepted = {name.lower() for name in known}
        for name in self._values:
            if name in _REFUSED:
                raise ConfigError(f"option {name} is not accepted: {_REFUSED[name]}")
            if name in _IDLE:
                _log.warning("option %s has no effect here: there are no consumer groups", name)
            elif name not in accepted and name not in _SPARKS and not name.startswith(_CLIENT):
                raise ConfigError(_unknown(name, known, mode))

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def which(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if name.lower() in self._values]

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """``parse`` raises ValueError, whose text says what is accepted."""
        text = self.get(name)
        if text is None:
            return default
        try:
            return parse(text.strip())
        except ValueError as error:
            raise ConfigError(f"option {name}={text!r} is not accepted: {error}") from None

    def flag(self, name: str, *, default: bool) -> bool:
        return self.read(name, _boolean, default)

    def count(self, name: str) -> int | None:
        return self.read(name, _positive, None)

    def client(self, config: type[ClientConfig]) -> dict[str, str]:
        """The options ``kafka.*`` without their prefix, found to be good."""
        client = {
            name.removeprefix(_CLIENT): value
            for name, value in self._values.items()
            if name.startswith(_CLIENT) and name not in _IDLE
        }
        if not client.get("bootstrap.servers", "").strip():
            raise ConfigError("option kafka.bootstrap.servers is missing: give host:port,...")
        try:
            config.build(client, {})
        except ConfigError as error:
            raise ConfigError(f"among the options kafka.*: {error}") from error
        return client


def _unknown(name: str, known: tuple[str, ...], mode: Mode) -> str:
    if any(name == each.lower() for each in _ALL):
        use = "writing" if "topic" in known else "reading"
        return f"option {name} means nothing for {use} ({mode})"
    by_lower = {each.lower(): each for each in known}
    full = [f"{_CLIENT}{each.kafka_name}" for each in ReaderConfig.OPTIONS.values()]
    candidates = [*by_lower, *full, *(each.removeprefix(_CLIENT) for each in full)]
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    if not close:
        return f"unknown option {name}; there are {', '.join(known)}, and kafka.*"
    found = by_lower.get(close[0], close[0])
    if found not in known and not found.startswith(_CLIENT):
        found = f"{_CLIENT}{found}"
    return f"unknown option {name}: did you mean {found}?"


# --- what is read -------------------------------------------------------------------------------


def _subscription(given: _Given) -> Subscription:
    chosen = given.which(SUBSCRIPTIONS)
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise ConfigError(f"give one of the options {', '.join(SUBSCRIPTIONS)}: {found}")
    return given.read(chosen[0], _SUBSCRIBED[chosen[0]], Subscription())


def _assigned(text: str) -> Subscription:
    return Subscription(partitions=partitions_from(text))


def _subscribed(text: str) -> Subscription:
    topics = tuple(dict.fromkeys(name for each in text.split(",") if (name := each.strip())))
    if not topics:
        raise ValueError("give topics, separated by commas")
    return Subscription(topics=topics)


def _matched(text: str) -> Subscription:
    if not text:
        raise ValueError("give a regular expression for the whole name of topics")
    try:
        return Subscription(pattern=re.compile(text))
    except re.error as error:
        raise ValueError(f"it is not a regular expression ({error})") from None


_SUBSCRIBED: dict[str, Callable[[str], Subscription]] = {
    "assign": _assigned,
    "subscribe": _subscribed,
    "subscribePattern": _matched,
}


# --- from where to where ------------------------------------------------------------------------


def _edge(given: _Given, side: Literal["starting", "ending"], default: int) -> Edge:
    """The more special option goes first, as in Java's ``getKafkaOffsetRangeLimit``."""
    otherwise: Any = "latest"
    if side == "starting":
        otherwise = given.read("startingOffsetsByTimestampStrategy", _strategy, "error")
    time = given.read(f"{side}Timestamp", _milliseconds, None)
    if time is not None:
        return ByTime(time, otherwise)
    times = given.read(f"{side}OffsetsByTimestamp", _times, None)
    if times is not None:
        return ByTime(times, otherwise)
    nothing_said: Edge = Everywhere(default)
    return given.read(f"{side}Offsets", _offsets, nothing_said)


def _offsets(text: str) -> Edge:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if named is not None:
        return Everywhere(named)
    try:
        return ByOffset(offsets_from(text))
    except ValueError as error:
        raise ValueError(f"neither earliest nor latest, and as JSON: {error}") from None


def _times(text: str) -> Mapping[TopicPartition, int]:
    times = offsets_from(text)
    if any(time < 0 for time in times.values()):
        raise ValueError("times are milliseconds since the epoch")
    return times


def _check_batch(start: Edge, end: Edge) -> None:
    for name, edge, never in (("startingOffsets", start, LATEST), ("endingOffsets", end, EARLIEST)):
        word = "latest" if never == LATEST else "earliest"
        if edge == Everywhere(never):
            raise ConfigError(f"option {name}={word} is not accepted for batch reads: it is empty")
        if isinstance(edge, ByOffset):
            for tp, offset in edge.offsets.items():
                if offset == never:
                    raise ConfigError(
                        f"option {name} has {never} ({word}) for {tp}, which is not accepted for "
                        "batch reads: it would be empty"
                    )


# --- kinds --------------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError("give true or false")


def _positive(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ValueError("give an integer above 0")


def _milliseconds(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise ValueError("give milliseconds since the epoch")


def _strategy(text: str) -> str:
    if text.lower() in ("error", "latest"):
        return text.lower()
    raise ValueError("give error or latest")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _UNITS_S:
        raise ValueError("give a time such as 30s, 15m or 1h")
    return int(found[1]) * _UNITS_S[found[2]]
