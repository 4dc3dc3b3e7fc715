"""The reader's public class."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Literal, Never, Self, TypeAlias, overload

from kafkaclient.cluster.waits import close_dropped
from kafkaclient.config import ReaderConfig
from kafkaclient.errors import ReaderStateError
from kafkaclient.reader.cluster import ReaderCluster, timestamp_of
from kafkaclient.reader.cursor import Cursor
from kafkaclient.reader.reading import Reading
from kafkaclient.topic_names import partition_of, several

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Unpack

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.config.keywords import ReaderKeywords
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicListing, TopicPartition

Where: TypeAlias = str | Iterable[str | tuple[str, int]]
"""Partitions, and topics, which mean all of their partitions."""


class Reader:
    """Reads records from partitions, by offset and by time, without a consumer group.

    ::

        async with Reader("localhost:9092", isolation_level="read_committed") as reader:
            starts = await reader.offsets("flights", at="earliest")
            ends = await reader.offsets("flights", at="latest")
            async for batch in reader.read({p: (starts[p], ends[p]) for p in starts}):
                table = pyarrow.record_batch(batch)

    Parameters: as for :class:`~kafkaclient.Producer`; the options are the fetch options of Java's
    consumer (docs/how-to/reader.md). A reader belongs to the event loop in which it was started. A
    reader that is deleted without :meth:`close` emits a ResourceWarning, and is closed in the
    background while its event loop runs.

    Raises:
        ConfigError: an option is unknown, unusable or in conflict with another.
    """

    _cluster: ReaderCluster | None = None  # also for __del__ after __init__ raised

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        rng: Random | None = None,
        **options: Unpack[ReaderKeywords],
    ) -> None:
        self.config: ReaderConfig = ReaderConfig.build(bootstrap_or_mapping, options)
        self._dialer = dialer
        self._clock = clock
        self._rng = rng or Random()
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._cluster else "not started"
        return f"<Reader {self.config.client_id!r} {state}>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a Reader cannot be copied or pickled: it owns its connections; make another Reader "
            "with the same options"
        )

    def __del__(self) -> None:
        cluster = self._cluster
        if cluster is not None and not self._closed:
            close_dropped(self, f"reader {self.config.client_id!r}", cluster.loop, cluster.close)

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            BootstrapError: no bootstrap server answered within ``max.block.ms`` or
                ``bootstrap.connect.timeout.ms``, if that is longer; or all of them refused
                connections for the latter.
            AuthenticationError: a broker and this client could not authenticate; at once, or if
                the broker refuses the login at the third attempt.
            ConfigError: a certificate or key cannot be read.
            ReaderStateError: the reader was started before.
        """
        if self._cluster is not None or self._closed:
            raise ReaderStateError("a reader can be started once")
        cluster = ReaderCluster(self.config, dialer=self._dialer, clock=self._clock, rng=self._rng)
        self._cluster = cluster
        try:
            await cluster.metadata.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all reads, and disconnect. Calling it again does nothing. Raises ReaderStateError if
        it is called in another event loop than :meth:`start`."""
        if self._closed:
            return
        if self._cluster is not None:
            self._cluster.check_home()
        self._closed = True
        if self._cluster is not None:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic.

        Raises :class:`~kafkaclient.errors.MetadataTimeoutError` if the topic is not known within
        ``max.block.ms``, and AuthorizationError at once.
        """
        return await self._running().partitions_of(topic)

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """The topic's partitions in order, with leader, replicas and in-sync replicas. Raises as
        :meth:`partitions`."""
        cluster = self._running()
        view = await cluster.metadata.wait_topic(topic, self.config.max_block_ms / 1000)
        return view.partitions

    async def list_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicListing]:
        """The topics that exist now, by name, from fresh metadata. Creates no topic.

        ``names=None``: all topics that this client may describe, except internal ones. Otherwise
        those of the names that exist.

        Raises:
            AuthorizationError: this client may not describe one of the names.
            InvalidTopicError: a name is illegal.
            KafkaError: no broker has answered within ``max.block.ms``: the last error.
        """
        named = None if names is None else several(names, "names")
        return await self._running().list_topics(named)

    async def refresh_metadata(
        self, *, max_age_s: float = 0.0, forget_topics: bool = False
    ) -> None:
        """Refresh the metadata, as :meth:`kafkaclient.Producer.refresh_metadata`."""
        cluster = self._running()
        await cluster.metadata.refresh(max_age_s=max_age_s, forget_topics=forget_topics)

    @overload
    async def offsets(
        self, where: Where, at: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]: ...

    @overload
    async def offsets(
        self, where: Where, at: int | datetime
    ) -> dict[TopicPartition, int | None]: ...

    async def offsets(
        self, where: Where, at: Literal["earliest", "latest"] | int | datetime
    ) -> dict[TopicPartition, int] | dict[TopicPartition, int | None]:
        """Offsets at which reads of partitions, or of all partitions of topics, can begin or end.

        ``at``: "earliest" is the first offset in the log. "latest" is the offset behind the last
        record; with ``isolation.level=read_committed``, where the oldest open transaction begins. A
        time (milliseconds since the epoch, or a datetime with a time zone) is the offset of the
        first record that is not older, None if there is none. All leaders are queried at the same
        time, with one request each.

        Raises:
            MetadataTimeoutError: a topic is not known within ``max.block.ms``.
            PartitionOutOfRangeError: a topic has no such partition.
            KafkaError: a broker answered with an error; a retriable error is raised after
                ``max.block.ms``, another error at once.
        """
        cluster = self._running()
        timestamp = timestamp_of(at)
        found = await cluster.list_offsets(await self._expanded(cluster, where), timestamp)
        if timestamp < 0:
            return {tp: each.offset for tp, each in found.items()}
        return {tp: each.offset if each.offset >= 0 else None for tp, each in found.items()}

    async def end_offsets(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The "latest" :meth:`offsets` of partitions, for a caller that knows an offset of each,
        such as the end of an earlier answer or a committed offset.

        A broker that was paused, and does not know yet that another one leads the partition now,
        answers with a lower end. So an end lower than the known offset is returned only if three
        answers, over two seconds and with fresh metadata, are so low: then the topic has lost
        records, or was created again. While an open transaction begins before the known offset,
        with ``isolation.level=read_committed``, the known offset is returned.

        Raises as :meth:`offsets`.
        """
        cluster = self._running()
        await cluster.find(known)
        return await cluster.ends_from(known)

    async def _expanded(self, cluster: ReaderCluster, where: Where) -> list[TopicPartition]:
        partitions: list[TopicPartition] = []
        named = [where] if isinstance(where, str) else list(where)
        cluster.use(each for each in named if isinstance(each, str))
        for each in named:
            if isinstance(each, str):
                partitions += await cluster.partitions_of(each)
                continue
            partitions.append(partition_of(each))
        await cluster.find(partitions)
        return partitions

    def read(
        self,
        ranges: Mapping[tuple[str, int], tuple[int, int | None] | int],
        *,
        headers: bool = False,
    ) -> Reading:
        """An asynchronous iterator over the batches of partitions.

        ``ranges``: :class:`~kafkaclient.TopicPartition` -> (start, end), with the end excluded.
        With an end of None, or with the start alone, the read waits for new records and never ends.
        Offsets without a record (deleted, or not visible in this ``isolation.level``) are skipped.
        ``headers``: whether to decode the headers of records.

        Several reads may be in progress. Each has its own connections and its own
        ``fetch.max.bytes``. The next read uses the connections of a read that ended without a
        request in flight.

        Raises:
            ValueError: an offset is negative, or an end before its start.
            ReaderStateError: the reader is not running.
        """
        cluster = self._running()
        cursors = []
        for where, given in ranges.items():
            start, end = given if isinstance(given, tuple) else (given, None)
            cursor = Cursor(where, start, end)
            if not cursor.done:
                cursors.append(cursor)
        reading = Reading(cluster, cursors, headers=headers)
        cluster.readings.add(reading)
        return reading

    def _running(self) -> ReaderCluster:
        if self._cluster is None or self._closed:
            state = "closed" if self._closed else "not started: use `async with`, or start()"
            raise ReaderStateError(f"the reader is {state}")
        self._cluster.check_home()
        return self._cluster
