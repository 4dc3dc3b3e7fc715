"""The options of ``format("kafkaclient")``: those of spark-sql-kafka, parsed and checked.

``kafka.*`` options go to the client. Their values never appear in messages, because passwords are
among them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import ArrayType, StructType

from kafkaclient.config import ProducerConfig, ReaderConfig
from kafkaclient.errors import ConfigError, OffsetOutOfRangeError
from kafkaclient.spark.given_options import (
    GivenOptions,
    count,
    flag,
    matching,
    option,
    option_names,
)
from kafkaclient.spark.offsets import (
    EARLIEST,
    LATEST,
    ByOffset,
    ByTime,
    OffsetLimit,
    parse_offsets,
    parse_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from kafkaclient.spark.given_options import Mode
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STARTING = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
_TRIGGER = "trigger"  # the group of options for streaming reads only
_TRANSACTIONAL = "transactional"  # the group of options for writes with exactlyOnce only


def read_schema(*, headers: bool, columns: AbstractSet[str] | None = None) -> StructType:
    """The columns of a read, as in spark-sql-kafka; with ``columns`` only those."""
    schema = StructType().add("key", "binary").add("value", "binary").add("topic", "string")
    schema = schema.add("partition", "integer").add("offset", "long")
    schema = schema.add("timestamp", "timestamp").add("timestampType", "integer")
    if headers:
        schema.add("headers", ArrayType(StructType().add("key", "string").add("value", "binary")))
    return StructType([each for each in schema if columns is None or each.name in columns])


_DEFAULT_PREFIX = "kafkaclient-spark"
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "": 1e-3}

_prefix = matching(
    "[a-z0-9._-]{1,100}",
    lambda found: found[0],
    "use 1 to 100 letters, digits, dots, underscores and hyphens",
)
_READER_DEFAULTS = {"max.partition.fetch.bytes": "8388608"}
"""Most tasks read one partition, and Spark's cost for each Arrow batch is high."""
_LOSS_ADVICE = (
    "records may be lost, because retention deleted them before they were read, or the topic was "
    "deleted. With the option failOnDataLoss=false the remaining records are read"
)
_milliseconds = matching(
    r"0*\d{1,18}", lambda found: int(found[0]), "give milliseconds since the epoch"
)
_topic = matching(".+", lambda found: found[0], "give a topic's name")
_group = matching(".+", lambda found: found[0], "give the name of a group that no consumer uses")
_strategy = matching("error|latest", lambda found: found[0].lower(), "give error or latest")
_COLUMNS = {name.lower(): name for name in read_schema(headers=True).names}
_seconds = matching(
    rf"(\d+)\s*({'|'.join(_UNITS_S)})",
    lambda found: int(found[1]) * _UNITS_S[found[2].lower()],
    "give a duration such as 30s, 15m or 1h",
)


def _column_names(text: str) -> frozenset[str]:
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in _COLUMNS:
            raise ValueError(
                f"there is no column {name!r}; give some of {', '.join(_COLUMNS.values())}, "
                "separated by commas"
            )
    return frozenset(_COLUMNS[name] for name in names)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read. Exactly one of the three fields is set."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read, created by :meth:`parse`."""

    client: dict[str, str] = field(repr=False)
    """Options of :class:`~kafkaclient.config.ReaderConfig`."""
    subscription: Subscription
    start: OffsetLimit
    end: OffsetLimit
    include_headers: bool = option("includeHeaders", flag, default=False)
    """Whether ``headers`` is a column. If ``columns`` is given, that list decides."""
    columns: frozenset[str] | None = option("columns", _column_names, None)
    """The columns of the read. None: all, and ``headers`` only with ``include_headers``."""
    min_partitions: int | None = option("minPartitions", count, None)
    max_records: int | None = option("maxRecordsPerPartition", count, None)
    """Maximum number of offsets per task."""
    max_offsets: int | None = option("maxOffsetsPerTrigger", count, None, _TRIGGER)
    """Approximate maximum number of offsets per trigger."""
    min_offsets: int | None = option("minOffsetsPerTrigger", count, None, _TRIGGER)
    """A trigger waits for this many offsets, but at most ``max_delay_s`` seconds."""
    max_delay_s: float = option("maxTriggerDelay", _seconds, 900.0, _TRIGGER)
    group: str | None = option("commitOffsetsToGroup", _group, None, _TRIGGER)
    """The consumer group to which a query's progress is committed for display."""
    fail_on_data_loss: bool = option("failOnDataLoss", flag, default=True)

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Mode) -> ReadOptions:
        """The parsed options. Raises ConfigError, which names the option."""
        given = GivenOptions(options, _READ, use="reading", elsewhere=_WRITE)
        client = _READER_DEFAULTS | given.client(ReaderConfig, ProducerConfig)
        if mode == "batch":
            start = _offset_limit(given, "starting", EARLIEST)
            end = _offset_limit(given, "ending", LATEST)
        else:
            for name in given.present(ENDING):
                raise ConfigError(f"option {name} is for batch reads: a streaming read has no end")
            start, end = _offset_limit(given, "starting", LATEST), ByOffset(LATEST)
        declared = given.declared_by(cls)
        if declared["columns"] is not None:
            declared["include_headers"] = "headers" in declared["columns"]
        found = cls(
            client=client, subscription=_subscription(given), start=start, end=end, **declared
        )
        least, most = found.min_offsets, found.max_offsets
        if least and most and least > most:
            raise ConfigError(
                f"option minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}"
            )
        if mode == "batch":
            _check_batch(start, end)
        return found

    def report_loss(self, what: str, advice: str = _LOSS_ADVICE) -> None:
        """Report possible data loss: raises OffsetOutOfRangeError, or warns if
        failOnDataLoss=false."""
        if self.fail_on_data_loss:
            raise OffsetOutOfRangeError(f"{what}: {advice}")
        _log.warning("%s: records may be lost; reading the remaining records", what)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write, created by :meth:`parse`."""

    client: dict[str, str] = field(repr=False)
    """Options of :class:`~kafkaclient.config.ProducerConfig`."""
    topic: str | None = option("topic", _topic, None)
    """The topic of all rows. None: each row names its topic."""
    exactly_once: bool = option("exactlyOnce", flag, default=False)
    transactional_id_prefix: str = option(
        "transactionalIdPrefix", _prefix, _DEFAULT_PREFIX, _TRANSACTIONAL
    )
    fail_on_data_loss: bool = option("failOnDataLoss", flag, True, _TRANSACTIONAL)
    """Whether the query fails if a decided batch cannot be committed completely any more, or
    differs from the batch that Spark repeats."""
    ledger_replication_factor: int | None = option(
        "ledgerReplicationFactor", count, None, _TRANSACTIONAL
    )
    """None: 3, or ``ledger_min_insync_replicas`` if that is more. A cluster with fewer brokers gets
    fewer replicas, but at least ``ledger_min_insync_replicas``."""
    ledger_min_insync_replicas: int | None = option(
        "ledgerMinInsyncReplicas", count, None, _TRANSACTIONAL
    )
    """None: 2 with at least 3 replicas, else 1."""
    checkpoint: str | None = None
    """Where Spark stores the offsets of batches (``checkpointLocation``)."""

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Mode) -> WriteOptions:
        """The parsed options. Raises ConfigError, which names the option."""
        given = GivenOptions(options, _WRITE, use="writing", elsewhere=_READ)
        client = given.client(ProducerConfig, ReaderConfig)
        given.read("includeHeaders", flag, default=False)  # the column decides: only check it
        checkpoint = given.get("checkpointLocation")
        found = cls(client=client, checkpoint=checkpoint, **given.declared_by(cls))
        if found.exactly_once:
            if mode == "batch":
                raise ConfigError("option exactlyOnce is for streaming writes")
            ProducerConfig.build(client | {"transactional.id": "checked"}, {})
        else:
            for name in given.present(option_names(cls, _TRANSACTIONAL)):
                raise ConfigError(f"option {name} is for writes with exactlyOnce=true")
        replicas, insync = found.ledger_replication_factor, found.ledger_min_insync_replicas
        if insync is not None and insync > (replicas or insync):
            raise ConfigError(
                f"option ledgerMinInsyncReplicas={insync} is above ledgerReplicationFactor="
                f"{replicas}: no write could succeed"
            )
        return found


TRIGGER = option_names(ReadOptions, _TRIGGER)
_READ = (*SUBSCRIPTIONS, *_STARTING, *ENDING, *option_names(ReadOptions))
_WRITE = ("includeHeaders", *option_names(WriteOptions))


def _subscription(given: GivenOptions) -> Subscription:
    chosen = given.present(SUBSCRIPTIONS)
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise ConfigError(f"give exactly one of the options {', '.join(SUBSCRIPTIONS)}: {found}")
    subscription = given.read(chosen[0], _PARSE_SUBSCRIPTION[chosen[0]], None)
    assert subscription is not None, "it is given"
    return subscription


def _parse_subscribe(text: str) -> Subscription:
    topics = tuple(dict.fromkeys(name for each in text.split(",") if (name := each.strip())))
    if not topics:
        raise ValueError("give topics, separated by commas")
    return Subscription(topics=topics)


def _parse_pattern(text: str) -> Subscription:
    if not text:
        raise ValueError("give a regular expression that matches whole topic names")
    try:
        return Subscription(pattern=re.compile(text))
    except re.error as error:
        raise ValueError(f"it is not a regular expression ({error})") from None


_PARSE_SUBSCRIPTION: dict[str, Callable[[str], Subscription]] = {
    "assign": lambda text: Subscription(partitions=parse_partitions(text)),
    "subscribe": _parse_subscribe,
    "subscribePattern": _parse_pattern,
}


def _offset_limit(
    given: GivenOptions, side: Literal["starting", "ending"], default: int
) -> OffsetLimit:
    """Timestamp options precede offset options, as in Java's ``getKafkaOffsetRangeLimit``."""
    otherwise: Any = "latest"
    if side == "starting":
        otherwise = given.read("startingOffsetsByTimestampStrategy", _strategy, "error")
    times: int | Mapping[TopicPartition, int] | None
    times = given.read(f"{side}Timestamp", _milliseconds, None)
    if times is None:
        times = given.read(f"{side}OffsetsByTimestamp", _times, None)
    if times is not None:
        return ByTime(times, otherwise)
    default_limit: OffsetLimit = ByOffset(default)
    return given.read(f"{side}Offsets", _offsets, default_limit)


def _offsets(text: str) -> OffsetLimit:
    if text.lower() in ("earliest", "latest"):
        return ByOffset(EARLIEST if text.lower() == "earliest" else LATEST)
    try:
        return ByOffset(parse_offsets(text))
    except ValueError as error:
        raise ValueError(f"neither earliest nor latest, and as JSON: {error}") from None


def _times(text: str) -> Mapping[TopicPartition, int]:
    times = parse_offsets(text)
    if any(time < 0 for time in times.values()):
        raise ValueError("timestamps are milliseconds since the epoch")
    return times


def _check_batch(start: OffsetLimit, end: OffsetLimit) -> None:
    for name, limit, never, word in (
        ("startingOffsets", start, LATEST, "latest"),
        ("endingOffsets", end, EARLIEST, "earliest"),
    ):
        for place, offset in _given(limit, ByOffset).items():
            if offset == never:
                raise ConfigError(
                    f"option {name} is {word} for {place}, which is not accepted for batch reads: "
                    "the read is empty"
                )
    for kind, name in ((ByOffset, "Offsets"), (ByTime, "Timestamp")):
        firsts, lasts = _given(start, kind), _given(end, kind)
        for place in firsts.keys() & lasts.keys():
            first, last = firsts[place], lasts[place]
            if 0 <= last < first:
                raise ConfigError(
                    f"option starting{name} is {first} for {place}, which is after {last} of "
                    f"ending{name}: the read is empty"
                )


def _given(limit: OffsetLimit, kind: type[OffsetLimit]) -> Mapping[TopicPartition | str, int]:
    """The offsets or times of a limit of this kind, by partition."""
    if not isinstance(limit, kind):
        return {}
    given = limit.offsets if isinstance(limit, ByOffset) else limit.times
    return {"all partitions": given} if isinstance(given, int) else given  # type: ignore[return-value]
