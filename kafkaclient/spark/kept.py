"""What a worker keeps from task to task: an event loop, and clients by their options.

Spark's Python workers do one task after the other, in a stream many small ones. To connect anew for
each would cost more than its rows, so a client that has served a task well is there for the next
one with the same options, as in the JVM's connector (``InternalKafkaProducerPool``,
``InternalKafkaConsumerPool``). Spark ends a worker that has had no task for a minute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.errors import KafkaError
from kafkaclient.producer.producer import Producer
from kafkaclient.reader import Reader
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.loop import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.net.dialer import Dialer

__all__ = ["WORKER", "Kept"]

C = TypeVar("C", Producer, Reader)

_log = logging.getLogger(__name__)

_KEPT_S = 60.0
"""Older ones are closed when the next task comes; without one, Spark ends the worker by then."""

_FRESH_S = 1.0
_ANSWER_S = 5.0


class Kept:
    """One of a process. What it lends, nobody else has until it is given back."""

    def __init__(
        self, *, dialer: Dialer | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._dialer = dialer
        self._clock = clock
        self._loop: LoopThread | None = None
        self._idle: list[tuple[float, bytes, Producer | Reader]] = []

    @property
    def loop(self) -> LoopThread:
        """Where the clients live."""
        if self._loop is None:
            self._loop = LoopThread("kafkaclient-spark")
        return self._loop

    @contextmanager
    def client(self, kind: type[C], options: Mapping[str, str]) -> Iterator[C]:
        """A started client that knows how the cluster is now; closed if the block raises, else
        kept.

        Raises what starting it raises.
        """
        freeze_imports()
        loop, key = self.loop, _key(kind, options)
        made: Any = self._take(key)
        if made is not None and not loop.run(_is_up_to_date(made)):
            self._end(made)
            made = None
        if made is None:
            made = kind(options, dialer=self._dialer)
            loop.run(made.start())
        try:
            yield made
        except BaseException:
            self._end(made)
            raise
        # Spark ends workers by killing them: what is written when a client stops must be by then.
        if "telemetry" in options or options.get("acks") == "0":
            self._end(made)
        else:
            self._idle.append((self._clock(), key, made))

    def _take(self, key: bytes) -> Producer | Reader | None:
        found = None
        for each in list(self._idle):
            since, whose, client = each
            if since < self._clock() - _KEPT_S:
                self._idle.remove(each)
                self._end(client)
            elif whose == key and found is None:
                self._idle.remove(each)
                found = client
        return found

    def _end(self, client: Producer | Reader) -> None:
        """What has no outcome yet is given up. Its task has failed for another reason, or is done:
        nothing that goes wrong here is one to fail it."""
        try:
            self.loop.run(_close(client))
        except Exception:  # noqa: BLE001
            _log.exception("%r could not be closed", client)

    def close(self) -> None:
        """Everything that is kept; what is lent, its task closes."""
        while self._idle:
            self._end(self._idle.pop()[2])
        if self._loop is not None:
            self._loop.close()
            self._loop = None


def _key(kind: type, options: Mapping[str, str]) -> bytes:
    """A digest: there are passwords among the options."""
    return sha256(repr((kind.__name__, sorted(options.items()))).encode()).digest()


async def _is_up_to_date(client: Producer | Reader) -> bool:
    """Once it has asked: topics may have been created anew, or got partitions, since its last task.
    If it cannot, a new client will say why."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            await client.refresh_metadata(max_age_s=_FRESH_S)
    except (KafkaError, TimeoutError):
        return False
    return True


async def _close(client: Producer | Reader) -> None:
    if isinstance(client, Producer):
        await client.stop(timeout=0)
    else:
        await client.close()


WORKER = Kept()
"""Of this process."""
