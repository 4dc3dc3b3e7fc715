"""How records and calls go from the calling threads to the producer's thread."""

from __future__ import annotations

import threading
from asyncio import _get_running_loop
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from kafkaclient.errors import BufferFullError
from kafkaclient.time_limit import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.types import HeadersLike


# --- What the calling threads hand over to the producer's thread ----------------------------------

# Plain tuples: a NamedTuple takes as long to make as everything else in a send.
One: TypeAlias = "tuple[str, Any, Any, int | None, int | None, HeadersLike]"
"""A record: topic, value, key, partition, timestamp_ms, headers."""

Entry: TypeAlias = "tuple[Any, One | Many | None, Context, bool, float, int]"
"""What a thread hands over: (future, work, context, awaited, deadline, size).

``future`` is a SendFuture. ``work`` None: it is a plain Future, and done when all earlier entries
are appended. ``context``: a copy of the caller's context variables, among them a tracer's current
span. ``awaited``: the caller waits for the record's outcome, so its batch need not linger.
``deadline``: until when the record may wait for metadata and buffer space, in seconds of
``time.monotonic``. ``size``: its room in the handover."""


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
        self._used = 0
        self._taker_awake = True
        self._closed: Exception | None = None

    def put(self, entry: E, size: int, deadline: float) -> None:
        """Add an entry of ``size`` bytes, behind those of earlier callers. While there is no room,
        wait until ``deadline`` (of ``time.monotonic``). An entry of 0 bytes needs no room, one
        larger than the limit waits until the queue is empty.

        Raises:
            BufferFullError: there was no room in time, or the thread runs an event loop, which must
                not wait.
            Exception: what :meth:`close` was given.
        """
        with self._lock:
            if size and (self._callers or not self._has_room(size)):
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
        if self._closed is not None:
            return
        if _get_running_loop() is not None:
            raise BufferFullError(
                "the record was not sent: there is no room for it, and the call cannot wait in a "
                "thread that runs an event loop; send more slowly, or use kafkaclient.Producer in "
                "it"
            )
        caller = object()
        self._callers.append(caller)
        try:
            while self._closed is None and not (
                self._callers[0] is caller and self._has_room(size)
            ):
                seconds = min(deadline - monotonic(), threading.TIMEOUT_MAX)
                if not self._room.wait(seconds):
                    raise BufferFullError(
                        "the record was not sent: buffer.memory stayed full for max.block.ms, so "
                        "the producer's thread took no records; send more slowly, or raise "
                        "buffer.memory"
                    )
        finally:
            self._callers.remove(caller)
            self._room.notify_all()
