"""How many records have come into a topic: what can be seen of producers on other machines."""

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

__all__ = ["TopicGrowth", "growth_followed"]

_EVERY_S = 0.5
_PATIENCE_MS = 5_000


class TopicGrowth:
    """Counts the records that come into a topic from when it is started, by its partitions' ends.

    ``config`` is a producer's, under Kafka's names; of it counts what a reader has as well: about
    connections and security. Everything that is appended is counted: other producers' records,
    those of transactions that will be aborted, and a marker for each partition of a transaction.
    """

    def __init__(
        self, config: Mapping[str, str], topic: str, *, dialer: Dialer | None = None
    ) -> None:
        known = {
            spelling
            for option in ReaderConfig.OPTIONS.values()
            if option.name != "max_block_ms"
            for spelling in option.spellings
        }
        options = {name: value for name, value in config.items() if name in known}
        self._reader = Reader({**options, "max.block.ms": _PATIENCE_MS}, dialer=dialer)
        self._topic = topic
        self._starts: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect, and see where the topic ends now; at 0 if it does not exist in five seconds.

        Raises what :meth:`kafkaclient.reader.Reader.start` and its ``offsets`` raise, when
        everything is closed again.
        """
        try:
            await self._reader.start()
            with suppress(MetadataTimeoutError):
                self._starts = await self._reader.offsets(self._topic, at="latest")
        except BaseException:
            await self.close()
            raise

    async def records(self) -> int:
        """How many have come. Raises what :meth:`kafkaclient.reader.Reader.offsets` raises, after
        five seconds if waiting may mend it."""
        ends = await self._reader.offsets(self._topic, at="latest")
        return sum(end - self._starts.get(tp, 0) for tp, end in ends.items())

    async def close(self) -> None:
        await self._reader.close()


@contextmanager
def growth_followed(
    config: Mapping[str, str], topic: str, tell: Callable[[int], None]
) -> Iterator[None]:
    """Have ``tell`` hear, on a thread, how many records have come so far: twice a second.

    It hears nothing while brokers do not answer or the topic does not exist, and never of one that
    must not be described: what is wrong, its producers will say.
    """
    with LoopThread("kafkaclient-topic-growth") as loop:
        _following = loop.run(_begun(config, topic, tell))  # cancelled with its loop
        yield


async def _begun(
    config: Mapping[str, str], topic: str, tell: Callable[[int], None]
) -> asyncio.Task[None] | None:
    try:
        growth = TopicGrowth(config, topic)
        await growth.start()
    except (KafkaError, OSError):
        return None
    return asyncio.create_task(_follow(growth, tell))


async def _follow(growth: TopicGrowth, tell: Callable[[int], None]) -> None:
    try:
        while True:
            await asyncio.sleep(_EVERY_S)
            with suppress(KafkaError, OSError):
                tell(await growth.records())
    finally:
        await growth.close()
