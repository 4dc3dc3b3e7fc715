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
        "How many Produce requests may wait for their answer on one connection. At most 5 with "
        "idempotence; with more than 1 and without idempotence a retry can reorder records.",
        section=_CONNECTIONS,
    )

    # --- batching and memory ------------------------------------------------------------------

    linger_ms: float = option(
        5,
        number(at_least(0, INT64_MAX)),
        "How long a batch waits for more records before it is ready to be sent, in milliseconds; "
        "fractions count. A batch that is full does not wait, and none waits for longer than a "
        "tenth of delivery_timeout_ms: its records expire together.",
        section=_BATCHING,
    )
    batch_size: int = option(
        16_384,
        integer(at_least(0)),
        "The size in bytes at which a batch is full. 0 or 1 sends every record by itself.",
        section=_BATCHING,
    )
    buffer_memory: int = option(
        33_554_432,
        integer(at_least(1, INT64_MAX)),
        "How many bytes of records may be queued or in flight. When they are used up, send waits "
        "for up to max_block_ms, first come first served, and send_nowait raises BufferFullError.",
        section=_BATCHING,
    )
    max_request_size: int = option(
        1_048_576,
        integer(at_least(1)),
        "The largest request in bytes, and with it the largest record before compression.",
        section=_BATCHING,
    )
    max_block_ms: int = option(
        60_000,
        integer(at_least(0, INT64_MAX)),
        "How long send, partitions_for and start may wait for metadata and buffer space together, "
        "in milliseconds; and how long a call on a transaction may take. With 0 sending never "
        "waits; start, refresh_metadata and calls on transactions, which have to ask the cluster, "
        "may take request_timeout_ms.",
        section=_BATCHING,
    )

    # --- delivery and retries -----------------------------------------------------------------

    acks: int = option(
        -1,
        acknowledgements(),
        "Who must have written a batch before it counts as delivered: all in-sync replicas (all, "
        "-1), the leader (1), nobody (0: no answer, no offset, no retry).",
        section=_DELIVERY,
    )
    enable_idempotence: bool = option(
        True,
        boolean(),
        "Whether brokers recognise retried batches, so that retries neither duplicate nor reorder "
        "(KIP-98). Needs acks=all and retries above 0: a conflict is an error when this option is "
        "given, else it turns idempotence off, with a warning. More than 5 requests in flight are "
        "an error as long as it is on (as in Java since 4.0).",
        section=_DELIVERY,
    )
    delivery_timeout_ms: int = option(
        120_000,
        integer(at_least(0)),
        "How long after send returned a record is delivered or has failed, in milliseconds, "
        "retries included. Not below linger_ms + request_timeout_ms: an error when given, else "
        "raised to that sum, with a warning.",
        section=_DELIVERY,
    )
    retries: int = option(
        INT32_MAX,
        integer(between(0, INT32_MAX)),
        "How often a batch is sent again after errors that may pass. Better left alone: "
        "delivery_timeout_ms is what limits retries.",
        section=_DELIVERY,
    )

    # --- transactions -------------------------------------------------------------------------

    transactional_id: str | None = option(
        None,
        optional(filled_text()),
        "The name under which transactions are begun (KIP-98); see transactions.md. Records can "
        "then be sent within a transaction only. It fences: of several producers with the same "
        "one, only the last that was started may write. Needs idempotence, and with it acks=all.",
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
        "How records get a partition. 'late': those without key when a broker can take their "
        "batch; 'kip794': when they are sent, by the queues' lengths, as in Java 4.x; 'sticky': "
        "one partition for each batch, as in Java 2.4 to 3.2 (KIP-480); 'random': any. These leave "
        "records with a key to their hash; 'uniform-sticky' (sticky for all) and 'round-robin' "
        "(each partition in turn) ignore keys. An object of your own is asked for every record "
        "whose partition is not given: see kafkaclient.Partitioner. Only 'late' and 'kip794' heed "
        "adaptive_partitioning_enable, availability_timeout_ms and partitioner_rack_aware.",
        section=_PARTITIONS,
    )
    partitioner_share_floor: float = option(
        0.6,
        number(between(0, 1)),
        "Late binding: the least part of its fair share of bytes that a partition gets from "
        "records without a key while its broker is in working order, however slow, up to a tenth "
        "of a second and eight times what the others take; 0 is no floor. More means a more even "
        "spread, and more records that wait for the slow broker.",
        section=_PARTITIONS,
    )
    partitioner_ignore_keys: bool = option(
        False,
        boolean(),
        "Whether records with a key are spread like those without. Otherwise a key's murmur2 hash "
        "names the partition, the same one as with the Java client.",
        section=_PARTITIONS,
    )
    adaptive_partitioning_enable: bool = option(
        True,
        boolean(),
        "Whether partitions whose broker is slow get fewer of the records without a key "
        "(KIP-794). Otherwise all partitions get the same.",
        section=_PARTITIONS,
        aliases=("partitioner.adaptive.partitioning.enable",),
    )
    availability_timeout_ms: int = option(
        0,
        integer(at_least(0, INT64_MAX)),
        "A partition whose broker could not take a ready batch for this many milliseconds gets no "
        "records without a key until it can; 0 is never (KIP-794).",
        section=_PARTITIONS,
        aliases=("partitioner.availability.timeout.ms",),
    )
    partitioner_rack_aware: bool = option(
        False,
        boolean(),
        "Whether records without a key go to partitions whose leader is in the rack client_rack "
        "while there are any, with 'late' and 'kip794' (KIP-1123).",
        section=_PARTITIONS,
    )
    client_rack: str = option(
        "",
        text(),
        "The rack that this client is in, as in the broker.rack of the brokers; "
        "partitioner_rack_aware needs it.",
        section=_PARTITIONS,
    )

    # --- compression --------------------------------------------------------------------------

    compression_type: str = option(
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed. What takes longer than about half a millisecond is done by "
        "threads of the producer's own, beside the event loop.",
        section=_COMPRESSION,
    )
    compression_gzip_level: int | None = option(
        None,
        optional(integer(between(1, 9, also=(-1,)))),
        "The level of gzip, from 1 (fast) to 9 (small); None or -1 is the codec's own default, 6 "
        "(KIP-390).",
        section=_COMPRESSION,
    )
    compression_lz4_level: int | None = option(
        None,
        optional(integer(between(1, 17))),
        "The level of lz4 (KIP-390). None or 9 is its fast compressor, as in Java; every other "
        "level is its high compressor, some five times slower at 3 and thirty times at 12. 1 and 2 "
        "are as 3, and what is above 12 is as 12.",
        section=_COMPRESSION,
    )
    compression_zstd_level: int | None = option(
        None,
        optional(integer(between(-131_072, 22))),
        "The level of zstd, from -131072 (fast) to 22 (small); None is the codec's own default, 3 "
        "(KIP-390). Levels above 5 are many times slower.",
        section=_COMPRESSION,
    )

    # --- serializers and hooks ----------------------------------------------------------------

    key_serializer: Callable[[Any], bytes | None] | None = option(
        None,
        optional(function("(key) -> bytes or None")),
        "Makes bytes of every key that is not None. Without it keys are bytes.",
        section=_HOOKS,
    )
    value_serializer: Callable[[Any], bytes | None] | None = option(
        None,
        optional(function("(value) -> bytes or None")),
        "Makes bytes of every value that is not None. Without it values are bytes.",
        section=_HOOKS,
    )
    on_delivery: Callable[..., object] | None = option(
        None,
        optional(function("(delivery)")),
        "Called on the event loop with each record's Delivery once it is delivered or has failed.",
        section=_HOOKS,
    )
    on_error: Callable[..., object] | None = option(
        None,
        optional(function("(failure)")),
        "Called on the event loop with an UnseenFailure (topic, partition, records, error) when "
        "records failed and nobody looked at their Delivery.",
        section=_HOOKS,
    )

    # --- metrics ------------------------------------------------------------------------------

    metrics_sample_window_ms: int = option(
        30_000,
        integer(at_least(1, INT64_MAX)),
        "The length in milliseconds of one window of rates, averages and maxima.",
        section=_METRICS,
    )
    metrics_num_samples: int = option(
        2,
        integer(at_least(1)),
        "Over how many windows rates, averages and maxima are taken.",
        section=_METRICS,
    )
    telemetry: Path | None = option(
        None,
        optional(path()),
        "A directory to write Parquet files to, with a row for every batch: when it was made, "
        "bound to its partition, sent and acknowledged, and the load seen at the decision. Needs "
        "pyarrow (the extra kafkaclient[telemetry]); see telemetry.md. None records nothing.",
        section=_METRICS,
    )

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        settle(values, given)


ProducerConfig.OPTIONS = options_of(ProducerConfig)
