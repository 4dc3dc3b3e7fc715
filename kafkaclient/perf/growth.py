"""The number of records that arrive in a topic: the progress of producers on other machines."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafkaclient.config import ReaderConfig
from kafkaclient.errors import KafkaError, MetadataTimeoutError
from kafkaclient.reader import Reader
from kafkaclient.spark.loop import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicPartition

_EVERY_S = 0.5
_TIMEOUT_MS = 5_000


class TopicGrowth:
    """Counts the records that arrive in a topic from its start on, by the partitions' end offsets.

    ``config`` is a producer's, by Kafka's names; only the options that a reader also has are used.
    Everything appended counts: other producers' records, records of aborted transactions, and
    a marker for each partition of a transaction.
    """

    def __init__(
        self, config: Mapping[str, str], topic: str, *, dialer: Dialer | None = None
    ) -> None:
        own = (each for each in ReaderConfig.OPTIONS.values() if each.name != "max_block_ms")
        known = {spelling for option in own for spelling in option.spellings}
        options = {name: value for name, value in config.items() if name in known}
        self._reader = Reader({**options, "max.block.ms": _TIMEOUT_MS}, dialer=dialer)
        self._topic = topic
        self._starts: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect, and read the end offsets; they count as 0 if the topic does not exist after 5 s.

        Raises what :meth:`kafkaclient.reader.Reader.start` and its ``offsets`` raise, and closes
        everything before.
        """
        try:
            await self._reader.start()
            with suppress(MetadataTimeoutError):
                self._starts = await self._reader.offsets(self._topic, at="latest")
        except BaseException:
            await self.close()
            raise

    async def records(self) -> int:
        """The number of records since the start.

        Raises what :meth:`kafkaclient.reader.Reader.offsets` raises; a retriable error after 5 s.
        """
        ends = await self._reader.offsets(self._topic, at="latest")
        return sum(end - self._starts.get(tp, 0) for tp, end in ends.items())

    async def close(self) -> None:
        await self._reader.close()


@contextmanager
def growth_followed(
    config: Mapping[str, str], topic: str, on_progress: Callable[[int], None]
) -> Iterator[None]:
    """Call ``on_progress`` on a thread, twice a second, with the number of records so far.

    It is not called while brokers do not answer, or while the topic does not exist, or if the topic
    cannot be described. The producers report such errors.
    """
    with LoopThread("kafkaclient-topic-growth") as loop:
        _following = loop.run(_begun(config, topic, on_progress))  # ends with the loop
        yield


async def _begun(
    config: Mapping[str, str], topic: str, on_progress: Callable[[int], None]
) -> asyncio.Task[None] | None:
    try:
        growth = TopicGrowth(config, topic)
        await growth.start()
    except (KafkaError, OSError):
        return None
    return asyncio.create_task(_follow(growth, on_progress))


async def _follow(growth: TopicGrowth, on_progress: Callable[[int], None]) -> None:
    try:
        while True:
            await asyncio.sleep(_EVERY_S)
            with suppress(KafkaError, OSError):
                on_progress(await growth.records())
    finally:
        await growth.close()
