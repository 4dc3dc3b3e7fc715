"""What a consumer commits, and when."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import BrokerError, ConsumerStateError, KafkaError
from kafkaclient.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.consumer.reports import ConsumerReports
    from kafkaclient.group.connection import GroupOffsets
    from kafkaclient.types import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)

_EVICTED = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""The coordinator has given the partitions to others, and this member does not know yet."""
_LOST = (
    "another member of the group may have it, and consumes again what was not committed before. A "
    "partition is lost if the application keeps a record in hand for longer than "
    "max.poll.interval.ms, or blocks the event loop for longer than session.timeout.ms"
)


class Commits:
    """Commits the offsets behind finished records: by the clock, when partitions are given up, at
    the end, and when the application asks for it. ``interval_s`` None: only when it asks.
    """

    def __init__(
        self,
        partitions: Partitions,
        offsets: GroupOffsets | None,
        interval_s: float | None,
        clock: Callable[[], float],
        reports: ConsumerReports,
    ) -> None:
        self._partitions = partitions
        self._offsets = offsets
        self._clock = clock
        self._reports = reports
        self._interval_s = interval_s if offsets is not None else None

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, or what is finished. Raises as :meth:`.GroupOffsets.commit`, and
        ConsumerStateError if a partition was lost."""
        if self._offsets is None:
            raise ConsumerStateError("only a consumer with a group_id commits offsets")
        self._check(offsets)

        def checked() -> Mapping[TopicPartition, int | OffsetAndMetadata]:
            if offsets is None:
                return self._partitions.finished_offsets()
            self._check(offsets)
            return offsets

        try:
            await self._commit_now(checked)
        except BrokerError as error:
            if error.code not in _EVICTED:
                raise
            text = f"{error}. The partition is not assigned to this consumer any more: {_LOST}"
            raise ConsumerStateError(text) from error

    async def _commit_now(
        self, wanted: Callable[[], Mapping[TopicPartition, int | OffsetAndMetadata]]
    ) -> None:
        """``wanted`` is called when the commit is sent: partitions may be revoked before."""
        if (offsets := wanted()) and self._offsets is not None:
            began = self._clock()
            try:
                sent = await self._offsets.commit(wanted)
            except Exception as error:
                self._reports.committed(offsets, self._clock() - began, error)
                raise
            self._reports.committed(sent, self._clock() - began, None)
            self._partitions.note_committed(
                {tp: each if isinstance(each, int) else each.offset for tp, each in sent.items()}
            )

    def _check(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None) -> None:
        lost = self._partitions.given_up_in_hand if offsets is None else None
        for where, given in (offsets or {}).items():
            offset = getattr(given, "offset", given)
            if not isinstance(offset, int):
                raise TypeError(f"{where}: {given!r} is no offset")
            if offset < 0:  # brokers accept it, and forget the group's offset
                raise ValueError(f"{where}: offset {offset} cannot be committed")
            if where not in self._partitions:
                lost = where
        if lost is not None:
            raise ConsumerStateError(
                f"{lost} is not assigned to this consumer any more, so nothing was committed: "
                f"{_LOST}"
            )

    async def run(self) -> None:
        """Commit every ``interval_s`` seconds."""
        if self._interval_s is None:
            return
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._commit_now(self._partitions.finished_offsets)
            except KafkaError as error:
                _log.warning("a commit failed; the next one has its offsets: %s", error)

    async def commit_before(
        self, what: str, timeout_s: float, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Commit what is finished, before the partitions are given up, and log which records are
        not. Raises as :meth:`commit_last`."""
        self._warn_of_unfinished(what, partitions)
        await self.commit_last(
            what, timeout_s, partial(self._partitions.finished_offsets, partitions)
        )

    def _warn_of_unfinished(self, what: str, partitions: Iterable[TopicPartition] | None) -> None:
        unfinished = self._partitions.unfinished(partitions)
        if unfinished and self._offsets is not None:
            lowest = [f"{where} from offset {offset}" for where, (offset, _) in unfinished.items()]
            _log.warning(
                "%s: %d records were handed out and are not done(), so they will be consumed "
                "again: %s%s",
                what,
                sum(count for _, count in unfinished.values()),
                ", ".join(lowest[:10]),
                ", ..." if len(lowest) > 10 else "",
            )

    async def commit_last(
        self, what: str, timeout_s: float, wanted: Callable[[], Mapping[TopicPartition, int]]
    ) -> None:
        """Commit these offsets, unless only the application commits. Never raises a KafkaError:
        records after the last commit are consumed again by their next owner."""
        if self._interval_s is None or self._offsets is None:
            return
        try:
            async with time_limit(timeout_s):
                await self._commit_now(wanted)
        except (KafkaError, TimeoutError) as error:
            _log.warning(
                "%s: no commit, so records that are finished may be consumed again: %s",
                what,
                str(error) or self._offsets.silence(timeout_s),
            )
