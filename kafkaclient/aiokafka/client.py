"""``AIOKafkaProducer.client``: what other libraries read of aiokafka's client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkaclient.aiokafka.errors import Translation
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kafkaclient import Producer

__all__ = ["ClientFacade", "ClusterFacade"]


class ClusterFacade:
    """The topics that the producer has asked for. It reads no network."""

    def __init__(self) -> None:
        self._partitions: dict[str, set[int]] = {}
        self._available: dict[str, set[int]] = {}

    def topics(self) -> set[str]:
        """The names of the topics whose metadata has arrived."""
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions; None if its metadata has not arrived."""
        return self._partitions.get(topic)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions with a leader; None as above."""
        return self._available.get(topic)


class ClientFacade:
    """The attributes and methods of ``aiokafka.AIOKafkaClient`` that instrumentations and
    frameworks use with a producer."""

    api_version = (4, 0)
    """What faust compares with the version from which brokers take headers, (0, 11)."""

    def __init__(self, bootstrap_servers: Any, client_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._producer: Producer | None = None
        self._tasks: set[asyncio.Task[bool]] = set()
        self.cluster = ClusterFacade()

    def __repr__(self) -> str:
        return f"<ClientFacade client_id={self._client_id}>"

    def attach(self, producer: Producer) -> None:
        """Ask this producer from now on."""
        self._producer = producer

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions.

        Raises UnknownTopicOrPartitionError after ``request_timeout_ms``.
        """
        assert self._producer is not None
        with Translation():
            views = await self._producer.partitions_for(topic)
        cluster, found = self.cluster, {view.partition for view in views}
        cluster._partitions[topic] = found
        cluster._available[topic] = {view.partition for view in views if view.leader >= 0}
        return found

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Have the topic's metadata fetched. The result: whether it has arrived."""
        return self._in_background(self._wait_on_metadata(topic))

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Fetch the metadata of all topics in use. The result: whether a broker has answered."""
        return self._in_background(self._update())

    async def _update(self) -> None:
        assert self._producer is not None
        await self._producer.refresh_metadata()
        for topic in self.cluster.topics():
            await self._wait_on_metadata(topic)

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[bool]:
        async def succeeds() -> bool:
            try:
                await work
            except (KafkaError, AssertionError):
                return False
            return True

        task = asyncio.get_running_loop().create_task(succeeds())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)
