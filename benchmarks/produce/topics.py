"""The topics of the runs: how they are made, and how many records they have."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

from experiments.topics import create_topics, delete_topics
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Topic", "Topics", "records_in"]

_KEPT = 100
_AT_ONCE = 2_500  # a broker refuses operations that are excessively large
_VISIBLE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Topic:
    """One to send to; a kept one has records of earlier runs."""

    name: str
    partitions: int
    kept: bool


class Topics:
    """A new topic for each run, but for many partitions, which take the broker long to make."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._cluster = cluster
        self._numbers = count(1)
        self._kept: dict[int, Topic] = {}

    @asynccontextmanager
    async def topic(self, partitions: int) -> AsyncIterator[Topic]:
        topic = self._kept.get(partitions) or await self._made(partitions)
        try:
            yield topic
        finally:
            if not topic.kept:
                await delete_topics(self._cluster, [topic.name])

    async def _made(self, partitions: int) -> Topic:
        name, first = f"bench-{next(self._numbers)}", min(partitions, _AT_ONCE)
        await create_topics(self._cluster, [name], first)
        if first < partitions:
            await self._extend(name, first, partitions)
        topic = Topic(name, partitions, kept=partitions > _KEPT)
        if topic.kept:
            self._kept[partitions] = topic
        return topic

    async def _extend(self, topic: str, have: int, want: int) -> None:
        module = import_module("aiokafka.admin")
        admin = module.AIOKafkaAdminClient(bootstrap_servers=self._cluster.bootstrap)
        await admin.start()
        try:
            while have < want:
                have = min(want, have + _AT_ONCE)
                answer = await admin.create_partitions({topic: module.NewPartitions(have)})
                for _topic, code, detail in answer.topic_errors:
                    if code:
                        raise broker_error(code, f"adding partitions to {topic}", detail)
                await _all_led(admin, topic, have)
        finally:
            await admin.close()


async def _all_led(admin: Any, topic: str, partitions: int) -> None:
    try:
        async with asyncio.timeout(_VISIBLE_WITHIN_S):
            while True:
                (found,) = await admin.describe_topics([topic])
                led = sum(place["leader"] >= 0 for place in found["partitions"])
                if led == partitions:
                    return
                await asyncio.sleep(1.0)  # to tell of so many takes the broker a while
    except TimeoutError:
        raise KafkaError(
            f"topic {topic}: not all of {partitions} partitions had a leader within "
            f"{_VISIBLE_WITHIN_S:.0f} s"
        ) from None


async def records_in(bootstrap: str, topic: Topic) -> int:
    """The sum of the partitions' end offsets."""
    aiokafka = import_module("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        places = [aiokafka.TopicPartition(topic.name, number) for number in range(topic.partitions)]
        consumer.assign(places)
        return sum((await consumer.end_offsets(places)).values())
    finally:
        await consumer.stop()
