"""``Hooks``: one place to see what a producer or a consumer does, batch by batch.

Tracing, metrics and the telemetry files stand on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.errors import KafkaError
    from kafkaclient.types import OffsetAndMetadata, TopicPartition


class FinishedBatch(NamedTuple):
    """A batch that was delivered or has failed. Times are seconds of the producer's monotonic clock
    (``time.monotonic``). None: it did not happen, or is not known because the batch failed before
    it had a partition."""

    topic: str
    partition: int
    """-1: the batch failed before it had a partition."""
    broker: int
    """The leader that the batch was first sent to. -1: the batch was never sent."""
    records: int
    bytes: int
    """Size on the wire; an estimate for a batch that was never sent."""
    attempts: int
    base_offset: int
    """The offset of the first record; -1 if it is not known (a failure, or acks=0)."""
    created_s: float
    """When the batch was opened, for its first record."""
    bound_s: float | None
    """When the partition was chosen."""
    sent_s: float | None
    """When the batch was first sent."""
    done_s: float
    """When the response was read, or the batch failed."""
    queued_batches: int | None
    """When the partition was chosen: other batches that waited in the batch's queue."""
    queued_bytes: int | None
    """When the partition was chosen: the bytes of these other batches."""
    in_flight: int | None
    """When the partition was chosen: Produce requests in flight to the partition's leader."""
    window: int | None
    """When the partition was chosen: how many requests the leader may have in flight."""
    bound_by: str | None
    """Why the partition was chosen; docs/reference/telemetry.md lists the values."""
    error: KafkaError | None
    """Why the batch failed; None if it was delivered."""


class FinishedRequest(NamedTuple):
    """A request of any kind that was answered, or will not be answered. A Produce request with
    acks=0 has no answer, and is not reported."""

    broker: int
    """The node id; negative for a bootstrap server, as in Java."""
    api: str
    """As in Java's ``ApiKeys``: ``PRODUCE``, ``METADATA``, ``API_VERSIONS``, ..."""
    latency_s: float
    """From writing the request until its response was read, or until the request failed."""
    response_bytes: int
    """0 if there was no response."""
    error: KafkaError | None
    """Why there was no response. Errors inside a response do not count here."""


class ConsumedBatch(NamedTuple):
    """Records of one partition that a consumer is about to hand out."""

    topic: str
    partition: int
    records: int
    bytes: int
    """Of keys and values."""
    base_offset: int
    next_offset: int
    """The offset behind the last record."""
    lag: int
    """Offsets between the last record and the end of the partition when the batch was fetched."""
    waited_s: float
    """How long the consumer has waited for records since it was last asked for some."""
    contents: Any
    """The records, in bytes: a :class:`kafkaclient.reader.FetchedBatch`."""


class FinishedCommit(NamedTuple):
    """A commit of offsets that the coordinator has answered, or that was given up."""

    offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    latency_s: float
    """From the call until the answer, also if it was tried several times."""
    error: Exception | None
    """Why nothing is known to be committed; None if the offsets were committed."""


class Hooks:
    """Override what you want to see, and give an object as the option ``hooks`` of a producer or a
    consumer.

    The client calls the methods on its event loop, in the middle of its work: they must be quick,
    and must not call the client. An exception is logged, and changes nothing. A method that is not
    overridden costs nothing. ``on_batch`` and ``on_request`` are a producer's.
    """

    def on_start(self, client: Any, /) -> None:
        """``client``, a :class:`kafkaclient.Producer` or :class:`kafkaclient.Consumer`, has been
        started. The requests of the start were reported before. Not called if the start failed."""

    def on_batch(self, batch: FinishedBatch) -> None:
        """A batch was delivered or has failed. A batch that the broker found too large is reported
        as its parts."""

    def on_request(self, request: FinishedRequest) -> None:
        """A request was answered, or will not be answered."""

    def on_consume(self, batch: ConsumedBatch) -> None:
        """A loop of a consumer is about to go through a batch."""

    def on_commit(self, commit: FinishedCommit) -> None:
        """Offsets of a consumer were committed, or the commit has failed."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """A consumer's group has assigned partitions to it. Its rebalance listener comes after."""

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """A consumer gives up partitions. Its rebalance listener comes after."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Partitions of a consumer may belong to other members already."""
