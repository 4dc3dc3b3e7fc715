"""The records of a load, and the bytes and requests that a client has sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, cycle, repeat
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


# --- The records of a load, which are made before the run, so -------------------------------------

KeyValue: TypeAlias = tuple[bytes | None, bytes]

_CAPITALS = bytes(ord("A") + byte % 26 for byte in range(256))
_POOL_BYTES = 8 * 1024 * 1024
_POOL_RECORDS = 16_384
_DRAWS = 65_536


def random_payloads(size: int, seed: int = 0) -> Iterator[KeyValue]:
    """Endless records without key, with values of ``size`` random capital letters.

    Values repeat after 16,384 records or 8 MB, whichever is less. A batch is smaller than that, so
    it compresses like random letters.
    """
    rng = Random(seed)
    pool = max(1, min(_POOL_RECORDS, _POOL_BYTES // size))
    return cycle([(None, rng.randbytes(size).translate(_CAPITALS)) for _ in range(pool)])


def monotonic_payloads() -> Iterator[KeyValue]:
    """Endless records without key, with the numbers from 0 in decimal ASCII."""
    return zip(repeat(None), map(b"%d".__mod__, count()), strict=False)


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    """The payloads in a file, split at ``delimiter``, which may also end the file."""
    payloads = path.read_bytes().split(delimiter.encode())
    if not payloads[-1]:
        payloads.pop()
    return payloads


def file_payloads(payloads: Iterable[bytes], seed: int = 0) -> Iterator[KeyValue]:
    """Endless records without key, drawn from ``payloads`` (65,536 draws, which repeat)."""
    drawn = Random(seed).choices([(None, payload) for payload in payloads], k=_DRAWS)
    return cycle(drawn)


# --- The bytes and requests that a client has sent to each broker and partition -------------------

Completed: TypeAlias = Callable[[float, float, int, int, BaseException | None], None]
"""``completed(started, finished, count, nbytes, error)``: ``count`` records, ``nbytes`` bytes
together, have the same outcome.

Times come from ``perf_counter``. Called on the event loop's thread.
"""


def unheard(
    _started: float, _finished: float, _count: int, _nbytes: int, _error: BaseException | None
) -> None:
    """The :data:`Completed` of a client that was not started."""


@dataclass(frozen=True, slots=True)
class BrokerTraffic:
    """A broker's totals since the client's start, and gauges; None: the client does not know."""

    node_id: int
    bytes_sent: int
    requests_sent: int | None = None
    queued_bytes: int | None = None
    in_flight_requests: int | None = None
    window: int | None = None
    """The number of requests that may be in flight at the moment."""
    latency_s: float | None = None
    """The median latency of the latest responses."""
    exclusions: int | None = None
    """How often the broker was excluded from records without key."""


@dataclass(frozen=True, slots=True)
class PartitionTraffic:
    """A partition's totals since the client's start; None: the client does not know."""

    partition: int
    leader: int
    records_sent: int
    bytes_sent: int
    batches_sent: int | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Brokers by their ids, and the partitions of the topic by their numbers, both rising."""

    brokers: tuple[BrokerTraffic, ...]
    partitions: tuple[PartitionTraffic, ...]
    skew: float | None = None
    """The most bytes of a partition as a multiple of the mean: 1.0 is even. None: not known."""

    @property
    def bytes_per_broker(self) -> tuple[int, ...]:
        return tuple(broker.bytes_sent for broker in self.brokers)

    @property
    def requests_per_broker(self) -> tuple[int, ...] | None:
        """Requests in the order of broker ids; None if a broker's are not known."""
        sent = (broker.requests_sent for broker in self.brokers)
        known = tuple(number for number in sent if number is not None)
        return known if len(known) == len(self.brokers) else None


def skew_of(partitions: Sequence[PartitionTraffic]) -> float | None:
    """The skew of a topic with these partitions, over those that have a leader."""
    given = [partition.bytes_sent for partition in partitions if partition.leader >= 0]
    return max(given) * len(given) / sum(given) if any(given) else None


def merged_traffic(parts: Sequence[Traffic]) -> Traffic | None:
    """The traffic of several clients to one topic together, without gauges; None for no parts."""
    if not parts:
        return None
    brokers: dict[int, list[BrokerTraffic]] = {}
    partitions: dict[int, list[PartitionTraffic]] = {}
    for part in parts:
        for broker in part.brokers:
            brokers.setdefault(broker.node_id, []).append(broker)
        for partition in part.partitions:
            partitions.setdefault(partition.partition, []).append(partition)
    merged = tuple(
        PartitionTraffic(
            number, found[-1].leader, **_sums(found, "records_sent", "bytes_sent", "batches_sent")
        )
        for number, found in sorted(partitions.items())
    )
    return Traffic(
        tuple(
            BrokerTraffic(node_id, **_sums(found, "bytes_sent", "requests_sent", "exclusions"))
            for node_id, found in sorted(brokers.items())
        ),
        merged,
        skew_of(merged),
    )


def _sums(parts: Sequence[object], *names: str) -> dict[str, Any]:
    """The sum of each attribute; None if a part does not know it."""
    columns = {name: [getattr(part, name) for part in parts] for name in names}
    return {name: None if None in column else sum(column) for name, column in columns.items()}
