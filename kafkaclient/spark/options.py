"""The options of ``format("kafkaclient")``: those of spark-sql-kafka, parsed and checked.

``kafka.*`` options go to the client. Their values never appear in messages, because passwords are
among them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kafkaclient.config import ProducerConfig, ReaderConfig
from kafkaclient.errors import ConfigError
from kafkaclient.spark.given_options import (
    ENDING,
    READ,
    SUBSCRIPTIONS,
    TRANSACTIONAL,
    TRIGGER,
    WRITE,
    GivenOptions,
)
from kafkaclient.spark.offsets import (
    EARLIEST,
    LATEST,
    AllPartitions,
    ByOffset,
    ByTime,
    OffsetLimit,
    parse_offsets,
    parse_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.spark.given_options import Mode
    from kafkaclient.types import TopicPartition

__all__ = ["ReadOptions", "Subscription", "WriteOptions"]

_log = logging.getLogger(__name__)

_DEFAULT_PREFIX = "kafkaclient-spark"
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "": 1e-3}


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
    include_headers: bool
    min_partitions: int | None
    max_records: int | None
    """Maximum number of offsets per task."""
    max_offsets: int | None
    """Approximate maximum number of offsets per trigger."""
    min_offsets: int | None
    """A trigger waits for this many offsets, but at most ``max_delay_s`` seconds."""
    max_delay_s: float
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Mode) -> ReadOptions:
        """The parsed options. Raises ConfigError, which names the option."""
        given = GivenOptions(options, (*READ, *ENDING, *TRIGGER), mode)
        client = given.client(ReaderConfig)
        if mode == "batch":
            for name in given.present(TRIGGER):
                _log.warning("option %s is ignored: it is for streaming reads", name)
            start, end = (
                _offset_limit(given, "starting", EARLIEST),
                _offset_limit(given, "ending", LATEST),
            )
            _check_batch(start, end)
        else:
            for name in given.present(ENDING):
                raise ConfigError(f"option {name} is for batch reads: a streaming read has no end")
            start, end = _offset_limit(given, "starting", LATEST), AllPartitions(LATEST)
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
    """The options of a write, created by :meth:`parse`."""

    client: dict[str, str] = field(repr=False)
    """Options of :class:`~kafkaclient.config.ProducerConfig`."""
    topic: str | None
    """The topic of all rows. None: each row names its topic."""
    exactly_once: bool = False
    transactional_id_prefix: str = _DEFAULT_PREFIX
    fail_on_data_loss: bool = True
    """Whether the query fails if a decided batch cannot be committed completely any more, or
    differs from the batch that Spark repeats."""
    ledger_replication_factor: int | None = None
    """None: 3, or the number of brokers if there are fewer."""
    ledger_min_insync_replicas: int | None = None
    """None: 2 with at least 3 replicas, else 1."""
    checkpoint: str | None = None
    """Where Spark stores the offsets of batches (``checkpointLocation``)."""

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Mode) -> WriteOptions:
        """The parsed options. Raises ConfigError, which names the option."""
        given = GivenOptions(options, WRITE, mode)
        client = given.client(ProducerConfig)
        given.flag("includeHeaders", default=False)  # the column decides: only check it
        topic = given.get("topic")
        if topic is not None and not topic.strip():
            raise ConfigError("option topic is empty: set it to a topic's name")
        exactly_once = given.flag("exactlyOnce", default=False)
        if exactly_once and mode == "batch":
            raise ConfigError("option exactlyOnce is for streaming writes")
        if exactly_once:
            ProducerConfig.build(client | {"transactional.id": "checked"}, {})
        for name in given.present(TRANSACTIONAL):
            if not exactly_once:
                raise ConfigError(f"option {name} is for writes with exactlyOnce=true")
        replicas = given.count("ledgerReplicationFactor")
        insync = given.count("ledgerMinInsyncReplicas")
        if insync is not None and insync > (replicas or insync):
            raise ConfigError(
                f"option ledgerMinInsyncReplicas={insync} is above ledgerReplicationFactor="
                f"{replicas}: no write could succeed"
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
        raise ValueError("use 1 to 100 letters, digits, dots, underscores and hyphens")
    return text


# --- what is read -------------------------------------------------------------------------------


def _subscription(given: GivenOptions) -> Subscription:
    chosen = given.present(SUBSCRIPTIONS)
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise ConfigError(f"give exactly one of the options {', '.join(SUBSCRIPTIONS)}: {found}")
    return given.read(chosen[0], _PARSE_SUBSCRIPTION[chosen[0]], Subscription())


def _parse_assign(text: str) -> Subscription:
    return Subscription(partitions=parse_partitions(text))


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
    "assign": _parse_assign,
    "subscribe": _parse_subscribe,
    "subscribePattern": _parse_pattern,
}


# --- start and end offsets ----------------------------------------------------------------------


def _offset_limit(
    given: GivenOptions, side: Literal["starting", "ending"], default: int
) -> OffsetLimit:
    """Timestamp options precede offset options, as in Java's ``getKafkaOffsetRangeLimit``."""
    otherwise: Any = "latest"
    if side == "starting":
        otherwise = given.read("startingOffsetsByTimestampStrategy", _strategy, "error")
    time = given.read(f"{side}Timestamp", _milliseconds, None)
    if time is not None:
        return ByTime(time, otherwise)
    times = given.read(f"{side}OffsetsByTimestamp", _times, None)
    if times is not None:
        return ByTime(times, otherwise)
    default_limit: OffsetLimit = AllPartitions(default)
    return given.read(f"{side}Offsets", _offsets, default_limit)


def _offsets(text: str) -> OffsetLimit:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if named is not None:
        return AllPartitions(named)
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
    for name, limit, never in (
        ("startingOffsets", start, LATEST),
        ("endingOffsets", end, EARLIEST),
    ):
        word = "latest" if never == LATEST else "earliest"
        if limit == AllPartitions(never):
            raise ConfigError(
                f"option {name}={word} is not accepted for batch reads: the read is empty"
            )
        if isinstance(limit, ByOffset):
            for tp, offset in limit.offsets.items():
                if offset == never:
                    raise ConfigError(
                        f"option {name} has {never} ({word}) for {tp}, which is not accepted for "
                        "batch reads: the partition's read is empty"
                    )


# --- values -------------------------------------------------------------------------------------


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
        raise ValueError("give a duration such as 30s, 15m or 1h")
    return int(found[1]) * _UNITS_S[found[2]]
