"""In the calling thread: serializers and columns, and how records and calls go to the producer's
thread.
"""

from __future__ import annotations

import threading
from asyncio import _get_running_loop
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from kafkaclient.config.kinds import Limit
from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.admission.pending_sends import buffer_full_error
from kafkaclient.producer.admission.send_queue import run_serializer
from kafkaclient.producer.batches.record import (
    PendingRecord,
    RawRecord,
    header_pairs,
    serialized_record,
)
from kafkaclient.producer.batches.serializers import AwaitedFields, Serializers
from kafkaclient.producer.bulk.batch_builder import check_column
from kafkaclient.time_limit import monotonic
from kafkaclient.types import HeadersLike

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from contextvars import Context

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.types import Headers


# --- Applies serializers in the calling thread, which waits for those that are async --------------

Wait: TypeAlias = "Callable[[Callable[[], Coroutine[Any, Any, Record]], float], Record]"

_THREAD_S = 0.5  # how much longer a call waits for the producer's thread than for the serializer


class Serializing:
    """The serializers of one producer.

    ``wait(function, seconds)``, which methods take, runs the coroutine of a function in the
    producer's thread. It raises TimeoutError after ``seconds``, and ProducerStateError where the
    caller must not wait.
    """

    def __init__(self, config: ProducerConfig, wall_clock: Callable[[], float]) -> None:
        self._config = config
        self._wall_clock = wall_clock
        self._serializers = Serializers.of(config)

    @property
    def needed(self) -> bool:
        """Whether the producer has serializers."""
        return self._serializers is not None

    def record(self, raw: RawRecord, deadline: float, wait: Wait) -> Record:
        """The record in bytes; raises InvalidRecordError and its subclasses. An async serializer
        may work until ``deadline`` (of ``time.monotonic``)."""
        record = serialized_record(self._config, self._wall_clock, raw, self._serializers)
        if isinstance(record, PendingRecord):
            return _waited(record, deadline, wait)
        return record

    def columns(self, topic: str, columns: GivenColumns, deadline: float, wait: Wait) -> None:
        """Serialize the records of a ``send_many``, in place. Columns of different lengths stay as
        they are, for ``send_many`` to refuse."""
        serializers, values, keys = self._serializers, columns.values, columns.keys
        if serializers is None or not columns.are_equally_long:
            return
        all_headers = list[HeadersLike]()
        for n, value in enumerate(values):
            key = None if keys is None else keys[n]
            own = None if columns.record_headers is None else columns.record_headers[n]
            raw = RawRecord(topic, value, key, headers=columns.headers if own is None else own)
            try:
                values[n], key, headers = self._row(serializers, raw, deadline, wait)
            except InvalidRecordError as error:
                error.index = n
                raise
            if keys is not None:
                keys[n] = key
            all_headers.append(headers)
        if serializers.get_context:
            columns.record_headers = all_headers

    def _row(
        self, serializers: Serializers, raw: RawRecord, deadline: float, wait: Wait
    ) -> tuple[Any, Any, Any]:
        value, key, headers = serializers.apply(raw.topic, raw.value, raw.key, raw.headers)
        if isinstance(value, AwaitedFields):
            raw = raw._replace(value=value, key=None, headers=())
            record = PendingRecord(self._config, self._wall_clock, raw)
            done = _waited(record, deadline, wait)
            return done.value, done.key, done.headers
        return value, key, headers


def _waited(record: PendingRecord, deadline: float, wait: Wait) -> Record:
    """The record in bytes, after its async serializer."""
    seconds = max(0.0, deadline - monotonic())
    limit = Limit(round(seconds, 3), "the rest of max.block.ms")
    try:
        return wait(partial(run_serializer, record, limit, set()), seconds + _THREAD_S)
    except TimeoutError:
        raise record.not_finished("the producer's thread does not respond") from None
    finally:
        record.close()


# --- The arguments of ``SyncProducer.send_many``, copied ------------------------------------------


class GivenColumns:
    """Lists with an item for each record, and the ``headers`` that records without headers of their
    own have. Raises InvalidRecordError if an argument is not acceptable."""

    def __init__(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: HeadersLike,
        timestamps_ms: Iterable[int | None] | None,
        record_headers: Iterable[HeadersLike] | None,
    ) -> None:
        self.values = _list_of("values", values)
        self.keys = _list_or_none("keys", keys)
        self.headers = _pairs("headers", headers)
        self.timestamps_ms = _list_or_none("timestamps_ms", timestamps_ms)
        self.record_headers = _list_or_none("record_headers", record_headers)

    @property
    def are_equally_long(self) -> bool:
        columns = (self.keys, self.timestamps_ms, self.record_headers)
        return all(column is None or len(column) == len(self.values) for column in columns)

    def freeze(self) -> int:
        """Copy buffers that may change; returns the bytes of all keys, values and headers."""
        size = _headers_size(self.headers) + _freeze(self.values)
        if self.keys is not None:
            size += _freeze(self.keys)
        if self.record_headers is not None:
            for n, headers in enumerate(self.record_headers):
                if headers is not None:
                    try:
                        pairs = self.record_headers[n] = _pairs(f"record {n}: headers", headers)
                    except InvalidRecordError as error:
                        error.index = n
                        raise
                    size += _headers_size(pairs)
        return size


def _list_of(name: str, column: Iterable[Any]) -> list[Any]:
    check_column(name, column)
    return list(column)


def _list_or_none(name: str, column: Iterable[Any] | None) -> list[Any] | None:
    return None if column is None else _list_of(name, column)


def _pairs(name: str, headers: HeadersLike) -> Headers:
    if not headers:
        return ()
    try:
        return header_pairs(headers)
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"{name}: {error}; nothing was sent") from error


def _freeze(column: list[Any]) -> int:
    size = 0
    for n, item in enumerate(column):
        if item.__class__ is not bytes:
            if not isinstance(item, (bytes, bytearray, memoryview)):
                continue  # None, or what the producer refuses
            column[n] = bytes(item)
        size += len(column[n])
    return size


def _headers_size(pairs: Headers) -> int:
    """The bytes of names and values, where they are acceptable."""
    return sum(len(item) for pair in pairs for item in pair if isinstance(item, (str, bytes)))


# --- What the calling threads hand over to the producer's thread ----------------------------------

# Plain tuples: a NamedTuple takes as long to make as everything else in a send.
One: TypeAlias = "tuple[str, Any, Any, int | None, int | None, HeadersLike]"
"""A record: topic, value, key, partition, timestamp_ms, headers."""

Entry: TypeAlias = "tuple[Any, One | Many | None, Context, bool, float, int, int]"
"""What a thread hands over: (future, work, context, awaited, deadline, thread, size).

``future`` is a SendFuture. ``work`` None: it is a plain Future, and done when all earlier entries
are appended. ``context``: a copy of the caller's context variables, among them a tracer's current
span. ``awaited``: the caller waits for the record's outcome, so its batch need not linger.
``deadline``: until when the record may wait for metadata and buffer space, in seconds of
``time.monotonic``. ``thread``: the identifier of the calling thread. ``size``: its room in the
handover."""


@dataclass(frozen=True, slots=True)
class Many:
    """A call of ``send_many``."""

    topic: str
    partition: int | None
    call: Callable[[Producer], Coroutine[Any, Any, BulkDelivery]]


def topic_of(work: One | Many | None) -> str:
    """The topic as a plain str: a subclass, such as an enum, may have another hash. Empty if it
    is no string, which the producer refuses."""
    topic = work.topic if isinstance(work, Many) else None if work is None else work[0]
    return str.__str__(topic) if isinstance(topic, str) else ""


def records_in(entries: list[Entry]) -> int:
    """How many of the entries send records."""
    return len([work for _, work, *_ in entries if work is not None])


# --- How records go from the calling threads to the producer's thread -----------------------------

E = TypeVar("E")


class Handover(Generic[E]):
    """A queue with room for ``limit`` bytes. Threads put entries in; the producer's thread takes
    all that are there.

    ``wake()`` is called, in the thread of :meth:`put`, when the taker sleeps: a :meth:`take` before
    has returned nothing. A burst of entries costs one wake-up. A new queue counts its taker as
    awake.
    """

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self._limit = limit
        self._wake = wake
        # Reentrant: a garbage collection inside may free a SyncProducer, which closes its queue.
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._entries: list[E] = []
        self._callers: deque[object] = deque()
        """Callers that wait for room, in order of arrival."""
        self._stopped: dict[int, str] = {}
        """The threads whose entries wait for buffer space, with which brokers' records fill it."""
        self._used = 0
        self._taker_awake = True
        self._closed: Exception | None = None
        self.holder = ""
        """Which brokers' records fill the buffer, while the taker waits for space in it."""

    def put(self, entry: E, size: int, deadline: float) -> None:
        """Add an entry of ``size`` bytes, behind those of earlier callers. While there is no room,
        or the thread is stopped, wait until ``deadline`` (of ``time.monotonic``). An entry of 0
        bytes needs no room, one larger than the limit waits until the queue is empty.

        Raises:
            BufferFullError: there was no room in time, or the thread runs an event loop, which must
                not wait.
            Exception: what :meth:`close` was given.
        """
        with self._lock:
            if size and (self._stopped or self._callers or not self._has_room(size)):
                self._wait_for_room(size, deadline)
            if self._closed is not None:
                raise self._closed.with_traceback(None)  # it is raised many times
            self._entries.append(entry)
            self._used += size
            if not self._taker_awake:
                # Set last: Ctrl-C can end this call anywhere, and then the next call must wake.
                self._wake()
                self._taker_awake = True

    def take(self) -> list[E]:
        """All entries, in order. They keep their room until :meth:`release`."""
        with self._lock:
            entries, self._entries = self._entries, []
            self._taker_awake = bool(entries)
            return entries

    @property
    def entries(self) -> list[E]:
        """A copy of the entries that were not taken yet."""
        return self._entries[:]

    def release(self, size: int) -> None:
        """Free the room of entries that were taken."""
        with self._lock:
            self._used -= size
            if self._callers:
                self._room.notify_all()

    def stop(self, thread: int) -> None:
        """An entry of the thread waits for buffer space: :meth:`put` waits, too, in this thread."""
        with self._lock:
            self._stopped[thread] = self.holder

    def resume(self, thread: int) -> None:
        """No entry of the thread waits any more."""
        with self._lock:
            if self._stopped.pop(thread, None) is not None:
                self._room.notify_all()

    def close(self, error: Exception) -> None:
        """Take no more entries: :meth:`put` raises ``error``. Those in the queue stay there."""
        with self._lock:
            if self._closed is None:
                self._closed = error
            self._room.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def _has_room(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit

    def _wait_for_room(self, size: int, deadline: float) -> None:
        thread, caller = threading.get_ident(), object()
        while self._closed is None and thread in self._stopped:
            what = "an earlier record of this thread waited for buffer.memory for max.block.ms"
            self._wait(deadline, what, self._stopped[thread])
        if not self._callers and self._has_room(size):
            return
        self._callers.append(caller)
        try:
            while self._closed is None and not (
                self._callers[0] is caller and self._has_room(size)
            ):
                what = (
                    "buffer.memory stayed full for max.block.ms, so the producer's thread took no "
                    "records"
                )
                self._wait(deadline, what, self.holder)
        finally:
            self._callers.remove(caller)
            self._room.notify_all()

    def _wait(self, deadline: float, what: str, holder: str) -> None:
        """Wait until something has changed. ``what``: the error at the deadline."""
        if _get_running_loop() is not None:
            raise buffer_full_error(
                "there is no room for the record now, and the call cannot wait in a thread that "
                "runs an event loop",
                holder,
                "send more slowly, or use kafkaclient.Producer in that thread",
            )
        if not self._room.wait(min(deadline - monotonic(), threading.TIMEOUT_MAX)):
            raise buffer_full_error(what, holder)
