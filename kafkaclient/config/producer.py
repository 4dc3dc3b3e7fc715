"""The options of :class:`kafkaclient.Producer`, each declared once.

Names, defaults and checks follow Java's ``ProducerConfig`` of Kafka 4.3, with KIP-1123 of 4.4; what
differs on purpose is listed in ``tests/config/test_producer.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kafkaclient.config.kinds import (
    INT32_MAX,
    INT64_MAX,
    Address,
    acknowledgements,
    addresses,
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
from kafkaclient.config.options import REQUIRED, Option, option, options_of, read_options
from kafkaclient.config.security import SecurityOptions
from kafkaclient.config.settle import settle
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["ProducerConfig"]

_CONNECTIONS = "Connections"
_METADATA = "Metadata"
_BATCHING = "Batching and memory"
_DELIVERY = "Delivery and retries"
_TRANSACTIONS = "Transactions"
_PARTITIONS = "Choice of partition"
_COMPRESSION = "Compression"
_HOOKS = "Serializers and hooks"
_METRICS = "Metrics"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(SecurityOptions):
    """Checked options; made by :meth:`build`, which also settles how they bear on each other."""

    # --- connections --------------------------------------------------------------------------

    bootstrap_servers: tuple[Address, ...] = option(
        REQUIRED,
        addresses(),
        "The brokers to ask first; the others are learnt from them.",
        section=_CONNECTIONS,
    )
    client_id: str = option(
        "kafkaclient",
        text(),
        "The name under which brokers log, meter and limit (quotas) this client.",
        section=_CONNECTIONS,
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        integer(at_least(1)),
        "How many Produce requests may wait for their answer on one connection. At most 5 with "
        "idempotence; with more than 1 and without idempotence a retry can reorder records.",
        section=_CONNECTIONS,
    )
    request_timeout_ms: int = option(
        30_000,
        integer(at_least(1)),
        "How long a broker may take to answer one request, in milliseconds; then the connection "
        "is closed and the request is made again, as far as delivery_timeout_ms allows.",
        section=_CONNECTIONS,
    )
    reconnect_backoff_ms: int = option(
        50,
        integer(at_least(0, INT64_MAX)),
        "The pause before a broker is dialled again after a failure, in milliseconds. It doubles "
        "with each failure in a row, varied by up to 20 %.",
        section=_CONNECTIONS,
    )
    reconnect_backoff_max_ms: int = option(
        1_000,
        integer(at_least(0, INT64_MAX)),
        "The longest of those pauses, in milliseconds.",
        section=_CONNECTIONS,
    )
    socket_connection_setup_timeout_ms: int = option(
        10_000,
        integer(at_least(1, INT64_MAX)),
        "How long a connection may take to be made, in milliseconds. It doubles with each failure "
        "in a row, varied by up to 20 %.",
        section=_CONNECTIONS,
    )
    socket_connection_setup_timeout_max_ms: int = option(
        30_000,
        integer(at_least(1, INT64_MAX)),
        "The longest of those times, in milliseconds.",
        section=_CONNECTIONS,
    )
    connections_max_idle_ms: int = option(
        540_000,
        integer(at_least(-1, INT64_MAX)),
        "A connection unused for this many milliseconds is closed; -1 keeps all of them.",
        section=_CONNECTIONS,
    )
    send_buffer_bytes: int = option(
        -1,
        integer(at_least(-1)),
        "Size of the socket's send buffer (SO_SNDBUF); -1 leaves it to the system, which makes it "
        "larger as it is needed. Java's 131072 holds less than an event loop can fill and a "
        "broker take in a millisecond.",
        section=_CONNECTIONS,
    )
    receive_buffer_bytes: int = option(
        32_768,
        integer(at_least(-1)),
        "Size of the socket's receive buffer (SO_RCVBUF); -1 leaves it to the system.",
        section=_CONNECTIONS,
    )

    # --- metadata -----------------------------------------------------------------------------

    metadata_max_age_ms: int = option(
        300_000,
        integer(at_least(0, INT64_MAX)),
        "Metadata is asked for again after this many milliseconds, even when nothing has failed.",
        section=_METADATA,
    )
    metadata_max_idle_ms: int = option(
        300_000,
        integer(at_least(5_000, INT64_MAX)),
        "A topic that got no record for this many milliseconds is left out of later metadata "
        "requests (KIP-526).",
        section=_METADATA,
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        one_of("rebootstrap", "none"),
        "What to do when no known broker answers any more: 'rebootstrap' asks the bootstrap "
        "servers again, and follows a broker that says to (KIP-899, KIP-1102); 'none' goes on with "
        "the brokers that are known.",
        section=_METADATA,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300_000,
        integer(at_least(0)),
        "The bootstrap servers are asked again when the known brokers can be connected but have "
        "not answered for this many milliseconds (KIP-1102). When none can be connected, that is "
        "done at once.",
        section=_METADATA,
    )
    allow_auto_create_topics: bool = option(
        True,
        boolean(),
        "Whether brokers may create a topic that does not exist, if their own "
        "auto.create.topics.enable agrees.",
        section=_METADATA,
    )

    # --- batching and memory ------------------------------------------------------------------

    linger_ms: float = option(
        5,
        number(at_least(0, INT64_MAX)),
        "How long a batch waits for more records before it is ready to be sent, in milliseconds; "
        "fractions count. A batch that is full does not wait.",
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
        "in milliseconds; and how long a call on a transaction may take.",
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
    retry_backoff_ms: int = option(
        100,
        integer(at_least(0, INT64_MAX)),
        "The pause before a retry, in milliseconds. It doubles with each failure in a row, varied "
        "by up to 20 % (KIP-580).",
        section=_DELIVERY,
    )
    retry_backoff_max_ms: int = option(
        1_000,
        integer(at_least(0, INT64_MAX)),
        "The longest of those pauses, in milliseconds.",
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
        "records without a key while its broker is in working order, however slow; 0 is no floor. "
        "More means a more even spread, and more records that wait for the slow broker.",
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
        "How batches are compressed. What takes longer than some half a millisecond is done by the "
        "event loop's default executor, beside the event loop.",
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

    OPTIONS: ClassVar[Mapping[str, Option]]
    """Every option's declaration, by Python name."""

    @classmethod
    def build(
        cls,
        mapping: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ProducerConfig:
        """Check and settle what the user gave, as a mapping, by keyword, or both.

        Both accept an option's Python name (``linger_ms``), its dotted name (``linger.ms``) and
        Java's full name where it is longer (``partitioner.availability.timeout.ms``). Text is
        parsed as in Java's property files.

        Raises ConfigError for an unknown option (naming the closest), one that this client does
        not support, a value of the wrong type or out of range, an option given twice with different
        values, options in conflict, and missing bootstrap servers.
        """
        given = read_options(cls.OPTIONS, (mapping or {}, options or {}))
        if "bootstrap_servers" not in given:
            accepts = cls.OPTIONS["bootstrap_servers"].kind.accepts
            raise ConfigError(f"bootstrap_servers is required: give {accepts}")
        values = {name: declared.default for name, declared in cls.OPTIONS.items()}
        values.update({name: entry.value for name, entry in given.items()})
        settle(values, given)
        return cls(**values)

    def __repr__(self) -> str:
        """Shows the options that differ from their default."""
        shown = []
        for name, declared in self.OPTIONS.items():
            value = getattr(self, name)
            if value != declared.default:
                shown_value = getattr(value, "__qualname__", repr(value))
                shown.append(f"{name}={'[hidden]' if declared.secret else shown_value}")
        return f"ProducerConfig({', '.join(shown)})"


ProducerConfig.OPTIONS = options_of(ProducerConfig)
