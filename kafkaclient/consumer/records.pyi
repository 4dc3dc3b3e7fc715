"""Records, one object each, and how a loop steps through them without a task switch."""

from collections.abc import Awaitable, Callable
from types import GenericAlias
from typing import Generic, Protocol, Self, TypeVar, final

from kafkaclient.reader.batch import FetchedBatch
from kafkaclient.types import Headers, Key_co, TopicPartition, Value_co

__all__ = ["Record", "RecordStream", "Rows"]

K = TypeVar("K")
V = TypeVar("V")

class Tracker(Protocol):
    """What a record belongs to: its partition, while it is assigned to this consumer."""

    def done(self, offset: int) -> None: ...

@final
class Record(Generic[Key_co, Value_co]):
    """A record. ``timestamp``: milliseconds since the epoch, -1 if it has none. ``timestamp_type``:
    0 if the producer set it (CreateTime), 1 if the broker did (LogAppendTime). ``key`` and
    ``value`` are bytes, or what the consumer's deserializers make of them; None if they are
    null. For type checkers, ``Record[str, Order]`` has a key of ``str | None`` and a value of
    ``Order | None``; ``Record`` has bytes."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: Key_co | None = None,
        value: Value_co | None = None,
        headers: Headers = (),
        tracker: Tracker | None = None,
    ) -> None: ...
    @classmethod
    def __class_getitem__(cls, types: object) -> GenericAlias: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> Key_co | None: ...
    @property
    def value(self) -> Value_co | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def raw(self) -> Record:
        """The record as it was fetched, with key and value in bytes."""

    def deserialized(self, key: K | None, value: V | None) -> Record[K, V]:
        """The same record with another key and value; ``raw`` is this one."""

    def done(self) -> None:
        """The record is finished: the offset behind it may be committed once all records of the
        partition before it are finished, too. Without effect if it is finished already, or if the
        partition was revoked meanwhile. May be called in any task, and in any thread."""

@final
class Rows:
    """The records of a fetched batch, and which of them are in hand: handed out, not finished.

    ``unfinished``: the offsets of records that each end with ``done()`` are added to it; None:
    a record is finished when the next one is taken.
    """

    def __init__(
        self,
        batch: FetchedBatch,
        tracker: Tracker | None = None,
        unfinished: dict[int, None] | None = None,
    ) -> None: ...
    @property
    def batch(self) -> FetchedBatch: ...
    @property
    def finished(self) -> int:
        """The offset up to which all records are finished, those in hand excluded."""

    @property
    def position(self) -> int:
        """The offset behind what was handed out."""

    @property
    def has_hand(self) -> bool:
        """Whether anything is in hand."""

    @property
    def is_tracked(self) -> bool:
        """Whether each record ends with ``done()``."""

    @property
    def is_untouched(self) -> bool:
        """Whether no record was handed out yet."""

    @property
    def left(self) -> int:
        """How many records were not handed out yet."""

    def take(self, most: int) -> list[Record]:
        """Up to so many further records. They are in hand, together with those before them."""

    @property
    def is_cut(self) -> bool:
        """Whether :meth:`cut` was called."""

    def next(self) -> Record | None:
        """The next record, which is then in hand; None if there is none. The one before it is
        finished."""

    def take_all(self) -> None:
        """All records that are left are in hand."""

    def finish(self) -> None:
        """What is in hand is finished."""

    def finish_record(self, offset: int) -> None:
        """The record in hand is finished, if it has this offset."""

    def step_back(self) -> None:
        """What is in hand is not: it is handed out again."""

    def give_back(self) -> None:
        """The record that was handed out last was not: it is the next one again, unless the rows
        are cut. Only directly after :meth:`next`."""

    def cut(self) -> None:
        """Hand out no more records."""

@final
class RecordStream:
    """An asynchronous iterator over records.

    It takes them from :class:`Rows`, without a task switch. When these are used up, it awaits
    ``refill()``, which returns further ones, or None at the end. It lets other tasks run at least
    every 10 ms.
    """

    def __init__(self, rows: Rows | None, refill: Callable[[], Awaitable[Rows | None]]) -> None: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Record]: ...
    @property
    def rows(self) -> Rows | None:
        """The rows of the record that was taken last."""

    def end(self) -> None:
        """Take no further record of the rows: another loop has them."""
