"""The user's options in seconds; the producer's states; numbers for no lane and no partition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.wire.compression import CompressionType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig


# --- Converts the user's options (milliseconds, names) to internal settings -----------------------

MAX_OPEN_SHARE = 0.1
"""The fraction of delivery.timeout.ms for which a batch takes records. They expire with its first
record, so its last record may fail this fraction of delivery.timeout.ms too early."""

_REQUEST_OVERHEAD = 1024  # bytes: header, client id and topic name of a request take less


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """Times in seconds, sizes in bytes."""

    batch_size: int = 16384
    linger: float = 0.005
    buffer_memory: int = 33554432
    delivery_timeout: float = 120.0
    codec: CompressionType = CompressionType.NONE
    level: int | None = None
    late: bool = False
    """Late binding: unkeyed records get their partition when a broker can take their batch."""
    adaptive: bool = True
    elastic_limit: int = 16384
    """How large an unbound batch may grow while no broker can take it."""
    share_floor: float = 0.6
    """Late binding: the smallest fraction of its fair share that a partition gets."""
    ignore_keys: bool = False
    """The partitioner also chooses for records with a key."""
    rack: str = ""
    """The client's rack, if partitions with their leader in it are preferred (KIP-1123)."""
    one_in_flight: bool = False
    """max.in.flight.requests.per.connection=1: a partition is muted while a batch is in flight."""
    slot_clock: Callable[[], float] | None = None
    """The clock of the append slots; see :class:`TopicAppendSlots`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Times in seconds."""

    retries: int = 2147483647
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """Times in seconds, sizes in bytes."""

    client_id: str
    transactional_id: str | None = None
    acks: int = -1
    max_request_size: int = 1048576
    max_in_flight: int = 5
    request_timeout: float = 30.0
    delivery_timeout: float = 120.0
    idempotent: bool = False
    adaptive: bool = True
    adaptive_window: bool = False
    """Late binding: keep only as many requests in flight as the network's latency needs."""
    availability_timeout: float = 0.0
    retrying: RetrySettings = RetrySettings()


def accumulator_settings(
    config: ProducerConfig, early: float = 0.0, slot_clock: Callable[[], float] | None = None
) -> AccumulatorSettings:
    """``early``: how late timers fire on average, in seconds; lingering ends earlier by it."""
    delivery_timeout = config.delivery_timeout_ms / 1000
    linger = min(config.linger_ms / 1000, MAX_OPEN_SHARE * delivery_timeout)
    codec = CompressionType[config.compression_type.upper()]
    levels = {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }
    return AccumulatorSettings(
        batch_size=config.batch_size,
        linger=linger - min(early, linger / 10),
        buffer_memory=config.buffer_memory,
        delivery_timeout=delivery_timeout,
        codec=codec,
        level=levels.get(codec),
        late=config.partitioner == "late",
        share_floor=config.partitioner_share_floor,
        adaptive=_adaptive(config),
        elastic_limit=max(config.batch_size, config.max_request_size - _REQUEST_OVERHEAD),
        ignore_keys=config.partitioner_ignore_keys or not _built_in(config),
        rack=config.client_rack if config.partitioner_rack_aware else "",
        one_in_flight=config.max_in_flight_requests_per_connection == 1,
        slot_clock=slot_clock,
    )


def sender_settings(config: ProducerConfig) -> SenderSettings:
    return SenderSettings(
        client_id=config.client_id,
        transactional_id=config.transactional_id,
        acks=config.acks,
        max_request_size=config.max_request_size,
        max_in_flight=config.max_in_flight_requests_per_connection,
        request_timeout=config.request_timeout_ms / 1000,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        idempotent=config.enable_idempotence,
        adaptive=_adaptive(config),
        # With acks=0 no response can be measured; the transport's own buffer is the window.
        adaptive_window=config.partitioner == "late" and config.acks != 0,
        availability_timeout=config.availability_timeout_ms / 1000,
        retrying=RetrySettings(
            retries=config.retries,
            retry_backoff=config.retry_backoff_ms / 1000,
            retry_backoff_max=config.retry_backoff_max_ms / 1000,
        ),
    )


def _adaptive(config: ProducerConfig) -> bool:
    # Custom partitioners read the load themselves, if they need it (as in Java).
    return config.adaptive_partitioning_enable and _built_in(config)


def _built_in(config: ProducerConfig) -> bool:
    return config.partitioner in ("late", "kip794")


# --- The states of a producer's life --------------------------------------------------------------


class ProducerState(Enum):
    """``value`` completes the sentence "the producer ..."."""

    NEW = "has not been started"
    STARTING = "is being started"
    RUNNING = "is running"
    STOPPING = "is being stopped"
    STOPPED = "is stopped"
    FORKED = "belongs to the process that started it; create a new producer in a forked child"


# --- Constants of time, in seconds of the clock ---------------------------------------------------

NEVER = float("inf")

SOON = 0.0005
"""Work that is due within this many seconds is done now. Event loops count time in milliseconds, so
another timer would fire later than the work is due."""


UNBOUND = -1
"""In the place of a partition: the topic's queue of batches that have no partition yet."""


# --- The number of a lane: one int for a broker ---------------------------------------------------
# The primary lane of a broker has the broker's own id; the side lane has ``side_of(id)``.

NO_LANE = -1
"""No lane: the partition has no leader, or unkeyed records avoid the partition."""


def side_of(node_id: int) -> int:
    """The number of a broker's side lane."""
    return -2 - node_id


def node_of(lane: int) -> int:
    """The id of a lane's broker; :data:`NO_LANE` for no lane."""
    return lane if lane >= NO_LANE else -2 - lane
