"""The options of :class:`kafkaclient.Producer`, each declared once.

Names, defaults and checks follow Java's ``ProducerConfig`` of Kafka 4.3, with KIP-1123 of 4.4; what
differs on purpose is listed in ``tests/config/test_producer.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkaclient.config.client import ClientConfig
from kafkaclient.config.kinds import (
    INT32_MAX,
    INT64_MAX,
    acknowledgements,
    at_least,
    between,
    boolean,
    filled_text,
    function,
    integer,
    name_or_object,
    number,
    one_of,
    optional,
    path,
    text,
)
from kafkaclient.config.options import option, options_of
from kafkaclient.config.settle import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kafkaclient.config.options import Given

__all__ = ["ProducerConfig"]

_CONNECTIONS = "Connections"
_BATCHING = "Batching and memory"
_DELIVERY = "Delivery and retries"
_TRANSACTIONS = "Transactions"
_PARTITIONS = "Choice of partition"
_COMPRESSION = "Compression"
_HOOKS = "Serializers and hooks"
_METRICS = "Metrics"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(ClientConfig):
    """Checked options; made by :meth:`build`, which also settles how they bear on each other."""

    # --- connections --------------------------------------------------------------------------

    max_in_flight_requests_per_connection: int = option(
        5,
        integer(at_least(1)),
        "How many Produce requests may be in flight on one connection. With idempotence at most "
        "5. With more than 1 and without idempotence, a retry can reorder records.",
        section=_CONNECTIONS,
    )

    # --- batching and memory ------------------------------------------------------------------

    linger_ms: float = option(
        5,
        number(at_least(0, INT64_MAX)),
        "How long a batch waits for more records before it can be sent, in milliseconds; "
        "fractions count. A full batch does not wait. No batch waits for longer than a tenth of "
        "delivery_timeout_ms, because its records expire together.",
        section=_BATCHING,
    )
    batch_size: int = option(
        16_384,
        integer(at_least(0)),
        "The size in bytes at which a batch is full. With 0 or 1 every record is a batch.",
        section=_BATCHING,
    )
    buffer_memory: int = option(
        33_554_432,
        integer(at_least(1, INT64_MAX)),
        "How many bytes of records may be queued or in flight. When the buffer is full, send "
        "waits for up to max_block_ms, in the order of the calls, and send_nowait raises "
        "BufferFullError.",
        section=_BATCHING,
    )
    max_request_size: int = option(
        1_048_576,
        integer(at_least(1)),
        "The largest request in bytes. It also limits the size of a record before compression.",
        section=_BATCHING,
    )
    max_block_ms: int = option(
        60_000,
        integer(at_least(0, INT64_MAX)),
        "How long send, partitions_for and start may wait for metadata and buffer space together, "
        "and how long a call on a transaction may take, in milliseconds. With 0 sending never "
        "waits. start, refresh_metadata and calls on transactions have to ask the cluster; with 0 "
        "they may take request_timeout_ms.",
        section=_BATCHING,
    )

    # --- delivery and retries -----------------------------------------------------------------

    acks: int = option(
        -1,
        acknowledgements(),
        "Which replicas must have written a batch before it counts as delivered: all in-sync "
        "replicas (all, -1), the leader (1), or none (0: no response, no offset, no retry).",
        section=_DELIVERY,
    )
    enable_idempotence: bool = option(
        True,
        boolean(),
        "Whether brokers recognize retried batches, so that retries neither duplicate nor reorder "
        "records (KIP-98). Idempotence needs acks=all and retries above 0. If these options "
        "conflict with it, this is an error if you give enable_idempotence; otherwise idempotence "
        "is turned off with a warning. While it is on, more than 5 requests in flight are an "
        "error (as in Java since 4.0).",
        section=_DELIVERY,
    )
    delivery_timeout_ms: int = option(
        120_000,
        integer(at_least(0)),
        "A record is delivered or has failed within this many milliseconds after send returned, "
        "retries included. It must be at least linger_ms + request_timeout_ms. If you give a "
        "lower value, this is an error. The default is raised to this sum if necessary, with a "
        "warning.",
        section=_DELIVERY,
    )
    retries: int = option(
        INT32_MAX,
        integer(between(0, INT32_MAX)),
        "How often a batch is sent again after temporary errors. Leave this at its default and "
        "limit retries with delivery_timeout_ms.",
        section=_DELIVERY,
    )

    # --- transactions -------------------------------------------------------------------------

    transactional_id: str | None = option(
        None,
        optional(filled_text()),
        "The name for transactions (KIP-98); see transactions.md. With it records can only be "
        "sent in a transaction. If several producers have the same name, only the one that was "
        "started last may write. It needs idempotence, and therefore acks=all.",
        section=_TRANSACTIONS,
    )
    transaction_timeout_ms: int = option(
        60_000,
        integer(at_least(0)),
        "How long a transaction may be open before its coordinator aborts it, in milliseconds. "
        "Brokers refuse more than their transaction.max.timeout.ms, 15 minutes by default.",
        section=_TRANSACTIONS,
    )

    # --- choice of partition ------------------------------------------------------------------

    partitioner: Any = option(
        "late",
        name_or_object(
            ("late", "kip794", "sticky", "uniform-sticky", "round-robin", "random"),
            "partition",
            "(topic, key, value, cluster, load) -> int",
        ),
        "How records get a partition. 'late': a record without a key gets it when a broker can "
        "take the record's batch. 'kip794': when it is sent, by the lengths of the queues, as in "
        "Java 4.x. 'sticky': one partition for each batch, as in Java 2.4 to 3.2 (KIP-480). "
        "'random': a random partition. These four use the hash of the key for records with a key. "
        "'uniform-sticky' (sticky for all records) and 'round-robin' (each partition in turn) "
        "ignore keys. Your own object is called for every record without an explicit partition: "
        "see kafkaclient.Partitioner. Only 'late' and 'kip794' use adaptive_partitioning_enable, "
        "availability_timeout_ms and partitioner_rack_aware.",
        section=_PARTITIONS,
    )
    partitioner_share_floor: float = option(
        0.6,
        number(between(0, 1)),
        "For 'late': the minimum part of its fair share of bytes that a partition gets from "
        "records without a key, however slow its broker is. The minimum does not apply while the "
        "broker is excluded, or if it takes at least 0.1 s and at least eight times as long as "
        "the others. 0 means no minimum. A higher value gives a more even spread, and makes more "
        "records wait for the slow broker.",
        section=_PARTITIONS,
    )
    partitioner_ignore_keys: bool = option(
        False,
        boolean(),
        "Whether records with a key are spread like records without a key. Otherwise the key's "
        "murmur2 hash selects the partition, the same one as in the Java client.",
        section=_PARTITIONS,
    )
    adaptive_partitioning_enable: bool = option(
        True,
        boolean(),
        "Whether partitions with a slow broker get fewer of the records without a key (KIP-794). "
        "Otherwise all partitions get the same number of bytes.",
        section=_PARTITIONS,
        aliases=("partitioner.adaptive.partitioning.enable",),
    )
    availability_timeout_ms: int = option(
        0,
        integer(at_least(0, INT64_MAX)),
        "If a partition's broker could not take a ready batch for this many milliseconds, the "
        "partition gets no records without a key until it can. 0 disables this (KIP-794).",
        section=_PARTITIONS,
        aliases=("partitioner.availability.timeout.ms",),
    )
    partitioner_rack_aware: bool = option(
        False,
        boolean(),
        "Whether records without a key go to partitions whose leader is in the rack client_rack, "
        "while there are such partitions; with 'late' and 'kip794' (KIP-1123).",
        section=_PARTITIONS,
    )
    client_rack: str = option(
        "",
        text(),
        "The rack of this client, as in the brokers' broker.rack. partitioner_rack_aware needs it.",
        section=_PARTITIONS,
    )

    # --- compression --------------------------------------------------------------------------

    compression_type: str = option(
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed. Compression that takes longer than about half a millisecond "
        "runs in the producer's own threads, beside the event loop.",
        section=_COMPRESSION,
    )
    compression_gzip_level: int | None = option(
        None,
        optional(integer(between(1, 9, also=(-1,)))),
        "The level of gzip, from 1 (fast) to 9 (small). None or -1 is the codec's default, 6 "
        "(KIP-390).",
        section=_COMPRESSION,
    )
    compression_lz4_level: int | None = option(
        None,
        optional(integer(between(1, 17))),
        "The level of lz4 (KIP-390). None or 9 is the fast compressor, as in Java. Every other "
        "level is the high compressor, about five times slower at level 3 and thirty times at "
        "level 12. Levels 1 and 2 are the same as 3, and levels above 12 are the same as 12.",
        section=_COMPRESSION,
    )
    compression_zstd_level: int | None = option(
        None,
        optional(integer(between(-131_072, 22))),
        "The level of zstd, from -131072 (fast) to 22 (small). None is the codec's default, 3 "
        "(KIP-390). Levels above 5 are many times slower.",
        section=_COMPRESSION,
    )

    # --- serializers and hooks ----------------------------------------------------------------

    key_serializer: Callable[[Any], bytes | None] | None = option(
        None,
        optional(function("(key) -> bytes or None")),
        "A function that converts every key that is not None to bytes. Without it keys must be "
        "bytes.",
        section=_HOOKS,
    )
    value_serializer: Callable[[Any], bytes | None] | None = option(
        None,
        optional(function("(value) -> bytes or None")),
        "A function that converts every value that is not None to bytes. Without it values must "
        "be bytes.",
        section=_HOOKS,
    )
    on_delivery: Callable[..., object] | None = option(
        None,
        optional(function("(delivery)")),
        "A function that is called on the event loop with each record's Delivery when the record "
        "is delivered or has failed.",
        section=_HOOKS,
    )
    on_error: Callable[..., object] | None = option(
        None,
        optional(function("(failure)")),
        "A function that is called on the event loop with an UnseenFailure (topic, partition, "
        "records, error) when records have failed and their Delivery was neither awaited nor "
        "inspected.",
        section=_HOOKS,
    )

    # --- metrics ------------------------------------------------------------------------------

    metrics_sample_window_ms: int = option(
        30_000,
        integer(at_least(1, INT64_MAX)),
        "The length of one window of rates, averages and maxima, in milliseconds.",
        section=_METRICS,
    )
    metrics_num_samples: int = option(
        2,
        integer(at_least(1)),
        "The number of windows over which rates, averages and maxima are computed.",
        section=_METRICS,
    )
    telemetry: Path | None = option(
        None,
        optional(path()),
        "A directory for Parquet files with a row for every batch: when the batch was created, "
        "got its partition, was sent and was acknowledged, and the load at the time of the "
        "choice. It needs pyarrow (the extra kafkaclient[telemetry]); see telemetry.md. None "
        "records nothing.",
        section=_METRICS,
    )

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        settle(values, given)


ProducerConfig.OPTIONS = options_of(ProducerConfig)
