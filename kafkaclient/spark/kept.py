"""What a worker keeps from task to task: an event loop, and clients by their options.

Spark's Python workers do one task after the other, in a stream many small ones. To connect anew for
each would cost more than its rows, so a client that has served a task well is there for the next
one with the same options, as in the JVM's connector (``InternalKafkaProducerPool``,
``InternalKafkaConsumerPool``). Spark ends a worker that has had no task for a minute.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.producer.producer import Producer
from kafkaclient.reader import Reader
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.loop import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.net.dialer import Dialer

__all__ = ["WORKER", "Kept"]

C = TypeVar("C", Producer, Reader)

_KEPT_S = 60.0
"""Of a client that no task has asked for meanwhile."""


class Kept:
    """One of a process. What it lends, nobody else has until it is given back."""

    def __init__(
        self, *, dialer: Dialer | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._dialer = dialer
        self._clock = clock
        self._loop: LoopThread | None = None
        self._idle: list[tuple[float, tuple[Any, ...], Producer | Reader]] = []

    @property
    def loop(self) -> LoopThread:
        """Where the clients live."""
        if self._loop is None:
            self._loop = LoopThread("kafkaclient-spark")
        return self._loop

    @contextmanager
    def client(self, kind: type[C], options: Mapping[str, str]) -> Iterator[C]:
        """A started client; closed if the block raises, else kept.

        Raises what starting it raises.
        """
        freeze_imports()
        loop = self.loop
        key = (kind, *sorted(options.items()))
        made: Any = self._take(key)
        if made is None:
            made = kind(options, dialer=self._dialer)
            loop.run(made.start())
        try:
            yield made
        except BaseException:
            loop.run(_close(made))
            raise
        if "telemetry" in options:  # its last rows are written when it stops; workers are killed
            loop.run(_close(made))
            return
        self._idle.append((self._clock(), key, made))
        while self._idle[0][0] < self._clock() - _KEPT_S:
            loop.run(_close(self._idle.pop(0)[2]))

    def _take(self, key: tuple[Any, ...]) -> Producer | Reader | None:
        for place, (_, whose, _) in enumerate(self._idle):
            if whose == key:
                return self._idle.pop(place)[2]
        return None

    def close(self) -> None:
        """Everything that is kept; what is lent, its task closes."""
        while self._idle:
            self.loop.run(_close(self._idle.pop()[2]))
        if self._loop is not None:
            self._loop.close()
            self._loop = None


async def _close(client: Producer | Reader) -> None:
    """What has no outcome yet is given up."""
    if isinstance(client, Producer):
        await client.stop(timeout=0)
    else:
        await client.close()


WORKER = Kept()
"""Of this process."""
