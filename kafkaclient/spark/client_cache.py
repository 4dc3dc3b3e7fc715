"""An event loop on a thread, and clients that a Spark worker keeps from task to task.

A Python worker runs one task after the other, in a stream many small ones. Connecting for each task
would cost more than writing its rows. So a client that has completed a task is reused for the next
task with the same options, as in the JVM's connector (``InternalKafkaProducerPool``,
``InternalKafkaConsumerPool``).

Spark ends a worker that has been idle for a minute, and its clients with it. A worker that is busy
closes a client that no task has used for a minute.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kafkaclient.spark.jobs import freeze_objects
from kafkaclient.time_limit import loop_factory

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Iterator,
        Mapping,
    )

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.producer.producer import Producer
    from kafkaclient.reader import Reader


# --- An event loop on its own thread, for blocking code that Spark calls --------------------------

S = TypeVar("S")
T = TypeVar("T")


class LoopThread:
    """Runs coroutines for a blocking thread, all in one event loop.

    Connections stay alive and requests continue while the calling thread does something else. A
    context manager: at its end, running coroutines are cancelled.
    """

    def __init__(self, name: str) -> None:
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        # A daemon thread: a worker that Spark ends must not wait for it.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or exception. Interrupting this thread cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def feed(self, items: Iterable[S], take: Callable[[S], Coroutine[Any, Any, None]]) -> None:
        """Await ``take(item)`` for each item in order, while this thread gets the next item. Raises
        the errors of ``items`` and ``take``; no item is taken after an error."""
        taking: Future[None] = Future()
        taking.set_result(None)
        try:
            for item in items:
                taking.result()
                taking = asyncio.run_coroutine_threadsafe(take(item), self._loop)
            taking.result()
        except BaseException:
            taking.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Generator[T]:
        """The items; the next one is awaited while the caller uses the current one. After the
        iteration, complete or not, ``items`` is no longer running."""
        ahead: asyncio.Future[T | None] | None = None

        async def take_and_start_next() -> T | None:
            nonlocal ahead
            found = await ahead if ahead is not None else None
            ahead = asyncio.ensure_future(anext(items, None))
            return found

        self.run(take_and_start_next())
        try:
            while (found := self.run(take_and_start_next())) is not None:
                yield found
        finally:
            self.run(_cancel(ahead))

    def close(self) -> None:
        """Cancel what runs, and end the thread. May be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _cancel(task: asyncio.Future[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# --- Keeps an event loop and clients in a Spark worker, from task to task -------------------------

# Names, because a worker that writes need not import the reader, and the other way round.
C = TypeVar("C", "Producer", "Reader")

_log = logging.getLogger(__name__)

_MAX_IDLE_S = 60.0  # clients idle for longer are closed when the next task comes
_MAX_METADATA_AGE_S = 1.0  # a reused client refreshes older metadata
_REFRESH_TIMEOUT_S = 5.0


class ClientCache:
    """The clients of one process. A client is used by one task at a time."""

    def __init__(
        self, *, dialer: Dialer | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._dialer = dialer
        self._clock = clock
        self._idle: list[tuple[float, bytes, Producer | Reader]] = []

    @cached_property
    def loop(self) -> LoopThread:
        """The event loop of all clients."""
        return LoopThread("kafkaclient-spark")

    @contextmanager
    def client(self, kind: type[C], options: Mapping[str, str]) -> Iterator[C]:
        """A started client with current metadata. After the block the client is kept for the next
        task. It is closed instead if the block raises, or if stopping the client may still write
        something (``telemetry``, ``acks=0``).

        Raises the errors of starting the client.
        """
        freeze_objects()
        loop, key = self.loop, _key(kind, options)
        self._close_expired()
        client: Any = self._take_idle(key)
        if client is not None and not loop.run(_refreshed(client)):
            self._discard(client)
            client = None
        if client is None:
            client = kind(options, dialer=self._dialer)
            loop.run(client.start())
        try:
            yield client
        except BaseException:
            self._discard(client)
            raise
        # Spark kills workers: a client with something left to write must stop now.
        if "telemetry" in options or options.get("acks") == "0":
            self._discard(client)
        else:
            self._idle.append((self._clock(), key, client))

    def _close_expired(self) -> None:
        oldest = self._clock() - _MAX_IDLE_S
        while self._idle and self._idle[0][0] < oldest:  # in the order in which they became idle
            self._discard(self._idle.pop(0)[2])

    def _take_idle(self, key: bytes) -> Producer | Reader | None:
        for place, (_since, client_key, client) in enumerate(self._idle):
            if client_key == key:
                del self._idle[place]
                return client
        return None

    def _discard(self, client: Producer | Reader) -> None:
        """Close the client, and drop its unfinished records. Errors are only logged: the task has
        failed for another reason or is done."""
        try:
            self.loop.run(_close(client))
        except Exception:  # noqa: BLE001
            _log.exception("%r could not be closed", client)

    def close(self) -> None:
        """Close all idle clients and the loop. A client in use is closed by its task."""
        while self._idle:
            self._discard(self._idle.pop()[2])
        if "loop" in vars(self):
            self.loop.close()
            del self.loop


def _key(kind: type, options: Mapping[str, str]) -> bytes:
    """A digest of the options, because passwords are among them."""
    return sha256(repr((kind.__name__, sorted(options.items()))).encode()).digest()


async def _refreshed(client: Producer | Reader) -> bool:
    """Whether the client could refresh its metadata. Topics may have been recreated or got
    partitions since its last task. Topics of earlier tasks are forgotten, because refreshing a
    deleted one could create it. After a failure, a new client is started and raises the reason.
    """
    try:
        async with asyncio.timeout(_REFRESH_TIMEOUT_S):
            await client.refresh_metadata(max_age_s=_MAX_METADATA_AGE_S, forget_topics=True)
    except Exception:  # noqa: BLE001
        return False
    return True


async def _close(client: Any) -> None:
    if hasattr(client, "stop"):  # a producer
        await client.stop(timeout=0)
    else:
        await client.close()


WORKER_CACHE = ClientCache()  # of this process
