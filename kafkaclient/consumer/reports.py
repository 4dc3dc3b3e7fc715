"""Reports of a consumer to hooks: its start, batches, commits and rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.hooks import ConsumedBatch, FinishedCommit, Hooks
from kafkaclient.producer.user_code import call_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkaclient.reader.batch import FetchedBatch
    from kafkaclient.types import OffsetAndMetadata, TopicPartition


class ConsumerReports:
    """Calls those methods of ``hooks`` that are overridden; what they raise is logged."""

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        def wanted(name: str) -> list[Callable[[Any], object]]:
            base = getattr(Hooks, name)
            return [getattr(each, name) for each in hooks if getattr(type(each), name) is not base]

        self._start = wanted("on_start")
        self._consume = wanted("on_consume")
        self._commit = wanted("on_commit")
        self._assigned = wanted("on_assigned")
        self._revoked = wanted("on_revoked")
        self._lost = wanted("on_lost")

    def started(self, consumer: object) -> None:
        call_hooks(self._start, consumer)

    def consumed(self, batch: FetchedBatch, waited_s: float) -> None:
        if self._consume:
            seen = ConsumedBatch(
                batch.topic,
                batch.partition,
                len(batch),
                batch.content_bytes,
                batch.base_offset,
                batch.next_offset,
                max(0, batch.high_watermark - batch.next_offset),
                waited_s,
                batch,
            )
            call_hooks(self._consume, seen)

    def committed(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        latency_s: float,
        error: Exception | None,
    ) -> None:
        if offsets:
            call_hooks(self._commit, FinishedCommit(offsets, latency_s, error))

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        call_hooks(self._assigned, partitions)

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        call_hooks(self._revoked, partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        call_hooks(self._lost, partitions)
