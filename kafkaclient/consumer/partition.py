"""One partition that a consumer has: its position, what is in hand, and what is finished."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from kafkaclient.consumer.records import Rows
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition


class PartitionState(Enum):
    """::

    ADDED --start--> STARTING --begin--> READING --reset--> STARTING
    ADDED, STARTING --seek--> READING
    (any) --leave--> LEAVING;  (any) --remove--> (gone)
    """

    ADDED = "the rebalance listener may decide where it begins"
    STARTING = "its position is not known yet"
    READING = "its records are fetched and handed out"
    LEAVING = "it is given up once what is in hand is finished"


class Partition:
    """An assigned partition. A new assignment of the same partition is another object, so that
    ``done()`` of an older record has no effect."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        on_done: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.topic_partition = topic_partition
        self._loop = loop
        self.state = PartitionState.ADDED
        self.paused = False
        self.is_new = False
        """Whether it was created while the consumer was in its group."""
        self.first_topic_id: UUID | None = None
        """Its topic's id when the consumer joined its group. With another one it is new."""
        self.is_recreated = False
        """Whether the topic was created again while it was read: the group's offset counts only if
        it is surely one of the new topic."""
        self.ignores_commits = False
        """While STARTING: whether to begin where ``auto.offset.reset`` says."""
        self.committed: int | None = None
        """The offset that this consumer knows to be committed."""
        self.unfinished: dict[int, None] = {}
        """Offsets of records that end with ``done()``, in order."""
        self.counted_to = 0
        """The offset up to which metrics count records: without a seek, records count once."""
        self.rows: Rows | None = None
        """The records that are handed out now."""
        self.is_held = False
        """Whether polls hand out the rows: nothing more is fetched until they are used up."""
        self.error: KafkaError | None = None
        """While STARTING: why the position cannot be found."""
        self.denied: tuple[KafkaError, object] | None = None
        """Why it may not be read, and its last fetch then: a later one takes that back."""
        self._position: int | None = None
        self._on_done = on_done

    @property
    def position(self) -> int | None:
        """The offset behind what was handed out; None while it is not known."""
        return self._position if self.rows is None else self.rows.position

    @property
    def finished(self) -> int | None:
        """The offset up to which everything is finished: what may be committed."""
        if self.unfinished:
            return next(iter(self.unfinished))
        return self._position if self.rows is None else self.rows.finished

    @property
    def has_hand(self) -> bool:
        return bool(self.unfinished) or (self.rows is not None and self.rows.has_hand)

    def done(self, offset: int) -> None:
        """A record is finished, see :meth:`.Record.done`."""
        if asyncio._get_running_loop() is not self._loop:
            with suppress(RuntimeError):  # the loop is closed: nothing is committed any more
                self._loop.call_soon_threadsafe(self.done, offset)
            return
        if self.unfinished:
            self.unfinished.pop(offset, None)
        if self.rows is not None:
            self.rows.finish_record(offset)
        if self.state is PartitionState.LEAVING:
            self._on_done()

    def move(self, position: int | None) -> None:
        """Nothing of what was handed out counts any more."""
        if self.rows is not None:
            self.rows.cut()
            self.rows = None
        self.is_held, self.error, self.denied = False, None, None
        self.counted_to = 0
        self.unfinished = {}  # a new object: rows that are handed out still write to the other one
        self._position = position

    def skip_to(self, position: int) -> None:
        """There are no visible records before this offset."""
        self._position = position

    def end_rows(self) -> None:
        """All records of the rows were handed out, and are finished or among ``unfinished``."""
        if self.rows is not None:
            self.rows.finish()
            self._position, self.rows, self.is_held = self.rows.position, None, False
