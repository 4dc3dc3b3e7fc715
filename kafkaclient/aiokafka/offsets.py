"""The methods of :class:`AIOKafkaConsumer` for positions, committed offsets and offsets of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from aiokafka import errors
from aiokafka.errors import IllegalOperation, IllegalStateError
from aiokafka.structs import OffsetAndTimestamp
from aiokafka.util import commit_structure_validate

from kafkaclient.aiokafka.errors import Translation, joined_error
from kafkaclient.aiokafka.structs import TopicPartition
from kafkaclient.aiokafka.subscribing import check_partitions
from kafkaclient.errors import BrokerError, ConsumerStateError, PartitionOutOfRangeError
from kafkaclient.topic_names import several_partitions
from kafkaclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient import Consumer
    from kafkaclient.types import LastFetch

__all__ = ["OffsetsMixin"]

_MEMBERSHIP_CHANGED = frozenset({22, 25, 27, 82})
"""Error codes of a commit by who is no member (in this generation)."""


class OffsetsMixin:
    """Positions and offsets, with aiokafka's methods and errors."""

    _consumer: Consumer
    _group_id: str | None

    if TYPE_CHECKING:

        @property
        def _is_assigned(self) -> bool: ...

        @property
        def _is_subscribed(self) -> bool: ...

        def assignment(self) -> set[TopicPartition]: ...

    # --- commits ----------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit these offsets: partition -> offset of the next record, or (offset, metadata).
        Default: behind the records that were handed out.

        Raises IllegalOperation without ``group_id``, IllegalStateError if a partition is not
        assigned, CommitFailedError if the group has given the partitions to others, ValueError or
        TypeError for other arguments, KafkaError if the coordinator refuses the commit.
        """
        self._check_group()
        if not self._is_subscribed:
            raise IllegalStateError("Not subscribed to any topics")
        if not self._is_assigned:
            raise IllegalStateError("No partitions assigned")
        checked = None
        if offsets is not None:
            given = commit_structure_validate(offsets)
            if missing := given.keys() - self.assignment():
                raise IllegalStateError(f"Partition {missing.pop()} is not assigned")
            checked = {where: OffsetAndMetadata(*each) for where, each in given.items()}
        try:
            with Translation():
                await self._consumer.commit(checked)
        except (BrokerError, ConsumerStateError) as error:
            refusal = error.__cause__ if isinstance(error, ConsumerStateError) else error
            if not isinstance(refusal, BrokerError) or refusal.code not in _MEMBERSHIP_CHANGED:
                raise
            kinds = errors.CommitFailedError, errors.for_code(refusal.code)
            raise joined_error(kinds, error) from error

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's offset of a partition, None if it has none. Raises IllegalOperation without
        ``group_id``."""
        self._check_group()
        with Translation():
            return (await self._consumer.committed([partition]))[partition]  # type: ignore[index]

    def _check_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

    # --- positions --------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; waits until it is known. Raises IllegalStateError if the
        partition is not assigned."""
        while True:
            self._check_assigned({partition})
            try:
                with Translation():
                    return await self._consumer.wait_position(partition)
            except ConsumerStateError:  # it was given up meanwhile
                if not self._is_subscribed or not self._consumer.is_running:
                    raise
                await self._consumer.wait_assigned()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset, which is also what is committed next. Raises ValueError for what
        is no offset, IllegalStateError if the partition is not assigned."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        with Translation():
            self._consumer.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first record. Default: all assigned partitions. Returns True. Raises
        IllegalStateError if one is not assigned."""
        return await self._seek_to("earliest", partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue behind the last record, otherwise as :meth:`seek_to_beginning`."""
        return await self._seek_to("latest", partitions)

    async def _seek_to(
        self, at: Literal["earliest", "latest"], partitions: tuple[TopicPartition, ...]
    ) -> bool:
        chosen = self._chosen(partitions)
        with Translation():
            await self._consumer.seek_to(at, chosen)
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the group's offsets, where there are any, and return them. Default: all
        assigned partitions. Raises as :meth:`seek_to_beginning` and :meth:`committed`."""
        chosen = self._chosen(partitions)
        self._check_group()
        with Translation():
            found = await self._consumer.committed(chosen)
            for where, offset in found.items():
                if offset:
                    self._consumer.seek(where, offset)
        return {TopicPartition(*where): offset for where, offset in found.items()}

    def _chosen(self, partitions: tuple[TopicPartition, ...]) -> set[TopicPartition]:
        check_partitions(partitions, "partitions must be TopicPartition instances")
        if not partitions:
            assigned = self.assignment()
            assert assigned, "No partitions are currently assigned"
            return assigned
        self._check_assigned(set(partitions))
        return set(partitions)

    def _check_assigned(self, partitions: set[TopicPartition]) -> None:
        if missing := partitions - self.assignment():
            raise IllegalStateError(f"Partitions {missing} are not assigned")

    # --- what the log has -------------------------------------------------------------------------

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record at the last fetch, None before it."""
        last = self._last_fetch(partition)
        return None if last is None else last.high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset up to which all transactions had ended at the last fetch, None before it."""
        last = self._last_fetch(partition)
        return None if last is None else last.last_stable_offset

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """The time of the last fetch in milliseconds since the epoch, None before it."""
        last = self._last_fetch(partition)
        return None if last is None else last.timestamp

    def _last_fetch(self, partition: TopicPartition) -> LastFetch | None:
        assert partition in self.assignment(), "Partition is not assigned"
        return self._consumer.last_fetch(partition)

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than a time (milliseconds since the
        epoch); None if there is none. Raises ValueError for a negative time, KafkaTimeoutError
        after ``request_timeout_ms`` or if there is no such partition."""
        for where, at in timestamps.items():
            if at < 0:
                raise ValueError(
                    f"The target time for partition {where} is {at}."
                    " The target time cannot be negative."
                )
        with _Lookup():
            found = await self._consumer.offsets_for_times(
                {where: int(at) for where, at in timestamps.items()}  # type: ignore[misc]
            )
        return {
            TopicPartition(*where): None if each is None else OffsetAndTimestamp(*each)
            for where, each in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Raises as :meth:`offsets_for_times`."""
        return await self._ends(several_partitions(partitions), "earliest")

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition. Raises as
        :meth:`offsets_for_times`."""
        return await self._ends(several_partitions(partitions), "latest")

    async def _ends(
        self, partitions: Iterable[tuple[str, int]], at: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        with _Lookup():
            found = await self._consumer.offsets(list(partitions), at)
        return {TopicPartition(*where): offset or 0 for where, offset in found.items()}

    # --- topics -----------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """All topics that this client may describe, without internal ones."""
        with Translation():
            return set(await self._consumer.list_topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions; None if its metadata is not known."""
        known = self._consumer.known_partitions(topic)
        return None if known is None else {view.partition for view in known}


class _Lookup(Translation):
    """Offsets of a partition that does not exist: aiokafka waits, then raises KafkaTimeoutError."""

    __slots__ = ()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, PartitionOutOfRangeError):
            kinds = errors.KafkaTimeoutError, errors.UnknownTopicOrPartitionError
            raise joined_error(kinds, error) from error.__cause__
        super().__exit__(kind, error, traceback)
