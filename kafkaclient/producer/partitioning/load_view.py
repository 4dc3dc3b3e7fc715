"""The load of a producer that partitioners can choose by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class PartitionLoad(NamedTuple):
    """Queued: not sent, or waiting for a retry. Bound: sent for the first time, whatever the
    outcome. Sent: acknowledged. Bytes are counted as on the wire."""

    topic: str
    partition: int
    leader: int
    queued_batches: int
    queued_bytes: int
    in_flight_batches: int
    bytes_sent: int
    records_sent: int
    batches_bound: int
    bytes_bound: int


class BrokerLoad(NamedTuple):
    """``oldest_in_flight_s``: age of the oldest unanswered Produce request, 0.0 when there is
    none. ``bytes_sent`` and ``requests_sent`` count Produce requests since the start.
    ``window``: how many requests the broker may have in flight at present. ``excluded``: why the
    broker got no records without key at the last look (broker_exclusion.py has the reasons:
    ``overdue``, ``slow``, ``availability``, ``throttled``, ``connection``), None when it did;
    ``exclusions`` counts how often a reason came up. ``latency_s``: the median of the latest
    responses, None before the first."""

    node_id: int
    queued_batches: int
    queued_bytes: int
    in_flight_requests: int
    oldest_in_flight_s: float
    bytes_sent: int
    requests_sent: int
    window: int = 1
    excluded: str | None = None
    exclusions: int = 0
    latency_s: float | None = None


class LoadSnapshot(NamedTuple):
    """Brokers in the order of their ids; partitions that have been used, by topic; each topic's
    :func:`partition_skew`."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]
    skew: Mapping[str, float]
    unbound: Mapping[str, int]
    """By topic, the bytes that wait without a partition (late binding); topics with none are left
    out."""


class LoadView(Protocol):
    """A producer's load, read-only and live: each method returns the present value.

    A method for one partition or broker costs the same with any number of them; :meth:`snapshot`
    goes over all. A partition or broker that is not known has nothing queued or in flight.
    """

    def queued_batches(self, topic: str, partition: int) -> int:
        """Batches that wait to be sent, the open one too."""
        ...

    def queued_bytes(self, topic: str, partition: int) -> int:
        """The size of those batches."""
        ...

    def in_flight_batches(self, topic: str, partition: int) -> int:
        """Batches that were sent and are not answered yet."""
        ...

    def in_flight_requests(self, node_id: int) -> int:
        """Produce requests that a broker has not answered yet."""
        ...

    def oldest_in_flight_s(self, node_id: int) -> float:
        """Age in seconds of the oldest of them, 0.0 when there is none."""
        ...

    def recent_latency_s(self, node_id: int) -> float | None:
        """How long a broker took for its latest Produce requests (64 at most), on average in
        seconds; None when it has answered none yet."""
        ...

    def window(self, node_id: int) -> int:
        """How many Produce requests a broker is given before an answer is waited for."""
        ...

    def snapshot(self) -> LoadSnapshot:
        """Everything at once."""
        ...
