"""The options of :class:`kafkaclient.Producer`, each declared once.

Names, defaults and checks are as in Java's ``ProducerConfig`` of Kafka 4.4.
``tests/config/test_producer.py`` lists the intended differences.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from kafkaclient.config.client import ClientConfig, settle_client
from kafkaclient.config.kinds import (
    ACKS,
    BOOLEAN,
    FILLED_TEXT,
    HOOKS,
    INT32_MAX,
    INT64_MAX,
    SHARE,
    TEXT,
    function,
    integer,
    name_or_object,
    number,
    one_of,
    optional,
    serializer,
)
from kafkaclient.config.options import TELEMETRY_TARGET, Section, TelemetryTarget
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.config.options import Given
    from kafkaclient.hooks import Hooks

_log = logging.getLogger(__name__)

_MAX_IN_FLIGHT_IDEMPOTENT = 5
"""How many batches of a partition a broker remembers, to recognize duplicates (KIP-98)."""

_CONNECTIONS = Section("Connections")
_BATCHING = Section("Batching and memory")
_DELIVERY = Section("Delivery and retries")
_TRANSACTIONS = Section("Transactions")
_PARTITIONS = Section("Choice of partition")
_COMPRESSION = Section("Compression")
_HOOKS = Section("Serializers and hooks")
_METRICS = Section("Metrics")

_SERIALIZER = "Serializer[{0}] | Callable[[{0}], Any]"


class ProducerConfig(ClientConfig):
    """Checked options. :meth:`build` makes them, and adjusts options that affect each other."""

    max_in_flight_requests_per_connection: int = _CONNECTIONS.option(5, integer(1))
    """How many Produce requests may be in flight on one connection. With idempotence at most 5.
    With more than 1 and without idempotence, a retry can reorder records."""

    linger_ms: float = _BATCHING.option(5, number(0, INT64_MAX))
    """How long a batch waits for more records before it can be sent, in milliseconds; fractions
    count. A full batch does not wait. No batch waits for longer than a tenth of
    delivery_timeout_ms, because its records expire together."""
    batch_size: int = _BATCHING.option(16_384, integer(0))
    """The size in bytes at which a batch is full. With 0 or 1 every record is a batch."""
    buffer_memory: int = _BATCHING.option(33_554_432, integer(1, INT64_MAX))
    """How many bytes of records may be queued or in flight. When the buffer is full, send waits for
    up to max_block_ms, in the order of the calls, and send_nowait raises BufferFullError."""
    max_request_size: int = _BATCHING.option(1_048_576, integer(1))
    """The largest request in bytes. It also limits the size of a record before compression."""
    max_block_ms: int = _BATCHING.option(60_000, integer(0, INT64_MAX))
    """How long send, partitions_for and start may wait for metadata and buffer space together, and
    how long a call on a transaction may take, in milliseconds. With 0 sending never waits. start,
    refresh_metadata and calls on transactions have to ask the cluster; with 0 they may take
    request_timeout_ms."""

    acks: int = _DELIVERY.option(-1, ACKS)
    """Which replicas must have written a batch before it counts as delivered: all in-sync replicas
    (all, -1), the leader (1), or none (0: no response, no offset, no retry)."""
    enable_idempotence: bool = _DELIVERY.option(True, BOOLEAN)
    """Whether brokers recognize retried batches, so that retries neither duplicate nor reorder
    records (KIP-98). Idempotence needs acks=all and retries above 0. If these options conflict with
    it, this is an error if you give enable_idempotence; otherwise idempotence is turned off with a
    warning. While it is on, more than 5 requests in flight are an error (as in Java since 4.0)."""
    delivery_timeout_ms: int = _DELIVERY.option(120_000, integer(0))
    """A record is delivered or has failed within this many milliseconds after send returned,
    retries included. It must be at least linger_ms + request_timeout_ms. If you give a lower value,
    this is an error. The default is raised to this sum if necessary, with a warning."""
    retries: int = _DELIVERY.option(INT32_MAX, integer(0, INT32_MAX))
    """How often a batch is sent again after temporary errors. Leave this at its default and limit
    retries with delivery_timeout_ms."""

    transactional_id: str | None = _TRANSACTIONS.option(None, optional(FILLED_TEXT))
    """The name for transactions (KIP-98); see transactions.md. With it records can only be sent in
    a transaction. If several producers have the same name, only the one that was started last may
    write. It needs idempotence, and therefore acks=all."""
    transaction_timeout_ms: int = _TRANSACTIONS.option(60_000, integer(0))
    """How long a transaction may be open before its coordinator aborts it, in milliseconds. Brokers
    refuse more than their transaction.max.timeout.ms, 15 minutes by default."""

    partitioner: Any = _PARTITIONS.option(
        "late",
        name_or_object(
            ("late", "kip794", "sticky", "uniform-sticky", "round-robin", "random"),
            "partition",
            "(topic, key, value, cluster, load) -> int",
            "Partitioner",
        ),
    )
    """How records get a partition. 'late': a record without a key gets it when a broker can take
    the record's batch. 'kip794': when it is sent, by the lengths of the queues, as in Java 4.x.
    'sticky': one partition for each batch, as in Java 2.4 to 3.2 (KIP-480). 'random': a random
    partition. These four use the hash of the key for records with a key. 'uniform-sticky' (sticky
    for all records) and 'round-robin' (each partition in turn) ignore keys. Your own object is
    called for every record without an explicit partition: see kafkaclient.Partitioner. Only 'late'
    and 'kip794' use adaptive_partitioning_enable, availability_timeout_ms and
    partitioner_rack_aware."""
    partitioner_share_floor: float = _PARTITIONS.option(0.6, number(0, 1))
    """For 'late': the minimum part of its fair share of bytes that a partition gets from records
    without a key, however slow its broker is. The minimum does not apply while the broker is
    excluded, or if it takes at least 0.1 s and at least eight times as long as the others. 0 means
    no minimum. A higher value gives a more even spread, and makes more records wait for the slow
    broker."""
    partitioner_ignore_keys: bool = _PARTITIONS.option(False, BOOLEAN)
    """Whether records with a key are spread like records without a key. Otherwise the key's murmur2
    hash selects the partition, the same one as in the Java client."""
    adaptive_partitioning_enable: bool = _PARTITIONS.option(
        True, BOOLEAN, aliases=("partitioner.adaptive.partitioning.enable",)
    )
    """Whether partitions with a slow broker get fewer of the records without a key (KIP-794).
    Otherwise all partitions get the same number of bytes."""
    availability_timeout_ms: int = _PARTITIONS.option(
        0, integer(0, INT64_MAX), aliases=("partitioner.availability.timeout.ms",)
    )
    """If a partition's broker could not take a ready batch for this many milliseconds, the
    partition gets no records without a key until it can. 0 disables this (KIP-794)."""
    partitioner_rack_aware: bool = _PARTITIONS.option(False, BOOLEAN)
    """Whether records without a key go to partitions whose leader is in the rack client_rack, while
    there are such partitions; with 'late' and 'kip794' (KIP-1123)."""
    client_rack: str = _PARTITIONS.option("", TEXT)
    """The rack of this client, as in the brokers' broker.rack. partitioner_rack_aware needs it."""

    compression_type: str = _COMPRESSION.option(
        "none", one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    """How batches are compressed. Compression that takes longer than about half a millisecond runs
    in the producer's own threads, beside the event loop."""
    compression_threads: int | None = _COMPRESSION.option(None, optional(integer(1, 256)))
    """The largest number of threads that compress batches for this producer, each one batch at a
    time. They start with the first large batch and end with the producer. A partition's batches
    keep their order. None is one more than half of the cores, at most 4."""
    compression_gzip_level: int | None = _COMPRESSION.option(
        None, optional(integer(1, 9, also=(-1,)))
    )
    """The level of gzip, from 1 (fast) to 9 (small). None or -1 is the codec's default, 6
    (KIP-390)."""
    compression_lz4_level: int | None = _COMPRESSION.option(None, optional(integer(1, 17)))
    """The level of lz4 (KIP-390). None or 9 is the fast compressor, as in Java. Every other level
    is the high compressor, about five times slower at level 3 and thirty times at level 12. Levels
    1 and 2 are the same as 3, and levels above 12 are the same as 12."""
    compression_zstd_level: int | None = _COMPRESSION.option(None, optional(integer(-131_072, 22)))
    """The level of zstd, from -131072 (fast) to 22 (small). None is the codec's default, 3
    (KIP-390). Levels above 5 are many times slower."""

    key_serializer: Any = _HOOKS.option(
        None, optional(serializer("(key) -> bytes or None", _SERIALIZER.format("Key_contra")))
    )
    """Converts every key that is not None to bytes: a function of the key, or an object whose
    method serialize also gets the record's topic and headers (kafkaclient.Serializer). Both may be
    async. Without it keys must be bytes. See serializers.md."""
    value_serializer: Any = _HOOKS.option(
        None,
        optional(serializer("(value) -> bytes or None", _SERIALIZER.format("Value_contra"))),
    )
    """Converts every value that is not None to bytes, as key_serializer converts keys. Without it
    values must be bytes."""
    on_delivery: Callable[..., object] | None = _HOOKS.option(
        None, optional(function("(delivery)"))
    )
    """A function that is called on the event loop with each record's Delivery when the record is
    delivered or has failed. The batch of a send_batch has one Delivery for all its records."""
    on_error: Callable[..., object] | None = _HOOKS.option(None, optional(function("(failure)")))
    """A function that is called on the event loop with an UnseenFailure (topic, partition, records,
    error) when records have failed and their Delivery was neither awaited nor inspected."""

    hooks: tuple[Hooks, ...] = _HOOKS.option((), HOOKS)
    """Objects that see the start, every batch and every request (kafkaclient.hooks.Hooks)."""

    metrics_sample_window_ms: int = _METRICS.option(30_000, integer(1, INT64_MAX))
    """The length of one window of rates, averages and maxima, in milliseconds."""
    metrics_num_samples: int = _METRICS.option(2, integer(1))
    """The number of windows over which rates, averages and maxima are computed."""
    enable_metrics_push: bool = _METRICS.option(True, BOOLEAN)
    """Whether metrics are pushed to a broker when the cluster subscribes to some (KIP-714). Nothing
    is computed or sent for a cluster that has no receiver for metrics."""
    telemetry: TelemetryTarget | None = _METRICS.option(None, optional(TELEMETRY_TARGET))
    """Where a row for every batch is recorded: when the batch was created, got its partition, was
    sent and was acknowledged, and the load at the time of the choice. A folder or a URI of one
    (s3://bucket/folder, abfs://, gs://, hdfs://; others with fsspec) gets Parquet files.
    topic:NAME is a topic of the same cluster. It needs pyarrow (the extra kafkaclient[telemetry]);
    see docs/how-to/telemetry.md. None records nothing."""
    telemetry_sample: float = _METRICS.option(1, SHARE)
    """The share of batches that are recorded, chosen at random: from 1e-9 to 1."""
    telemetry_file_bytes: int = _METRICS.option(4_194_304, integer(65_536))
    """The size in bytes at which a file of telemetry is complete. The rows of a file are in memory
    until then, about 100 bytes each; a row of a file takes about 50 bytes."""
    telemetry_file_ms: int | None = _METRICS.option(None, optional(integer(100)))
    """How long after its first row a file or a message of telemetry is written, in milliseconds. A
    program that is killed loses these rows. None is 5,000 for a path, 60,000 for a URI and 1,000
    for a topic."""
    telemetry_retention_ms: int = _METRICS.option(-1, integer(3_600_000, INT64_MAX, also=(-1,)))
    """The producer deletes files of telemetry in its folder, also those of other producers, when
    their whole hour is older than this, in milliseconds. -1 deletes nothing. A topic has its own
    retention.ms."""

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        """As in the post-processing of Java's ``ProducerConfig``: a given value overrides a
        default that conflicts with it. Two given values that conflict are an error.
        """
        # Java keeps linger.ms as a long, and clips it to an int where it is used.
        values["linger_ms"] = min(values["linger_ms"], INT32_MAX)
        _settle_idempotence(values, given)
        _settle_delivery_timeout(values, given)
        if values["partitioner_rack_aware"] and not values["client_rack"]:
            raise ConfigError(
                f"{given['partitioner_rack_aware']} needs client_rack: give the rack of this client"
            )
        settle_client(values, given)


def _settle_idempotence(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    if not values["enable_idempotence"]:
        if values["transactional_id"] is not None:
            raise ConfigError(
                f"{given['transactional_id']} is in conflict with {given['enable_idempotence']}: "
                "transactions need idempotence"
            )
        return
    in_flight = values["max_in_flight_requests_per_connection"]
    needs = []
    if values["acks"] != -1:
        needs.append(f"acks=all (given: {given['acks']})")
    if values["retries"] == 0:
        needs.append(f"retries above 0 (given: {given['retries']})")
    if in_flight > _MAX_IN_FLIGHT_IDEMPOTENT:
        entry = given["max_in_flight_requests_per_connection"]
        needs.append(f"at most {_MAX_IN_FLIGHT_IDEMPOTENT} requests in flight (given: {entry})")
    if not needs:
        return
    message = f"idempotence needs {' and '.join(needs)}"
    for name in ("enable_idempotence", "transactional_id"):
        if (explicit := given.get(name)) and values[name]:
            raise ConfigError(f"{explicit} is in conflict with another option: {message}")
    if len(needs) == 1 and in_flight > _MAX_IN_FLIGHT_IDEMPOTENT:
        # acks and retries show that duplicates are accepted; a number of requests does not.
        raise ConfigError(f"{message}; or turn it off with enable_idempotence=False")
    _log.warning("enable_idempotence is turned off: %s", message)
    values["enable_idempotence"] = False


def _settle_delivery_timeout(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    least = min(math.ceil(values["linger_ms"] + values["request_timeout_ms"]), INT32_MAX)
    if values["delivery_timeout_ms"] >= least:
        return
    needs = f"linger_ms + request_timeout_ms = {least}"
    if explicit := given.get("delivery_timeout_ms"):
        raise ConfigError(f"{explicit} is not accepted: give at least {needs}")
    _log.warning("delivery_timeout_ms is raised from its default to %s", needs)
    values["delivery_timeout_ms"] = least
