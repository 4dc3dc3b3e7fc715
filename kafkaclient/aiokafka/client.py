"""``AIOKafkaProducer.client``: what other libraries read of aiokafka's client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from kafkaclient.aiokafka.errors import Translation
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kafkaclient import Producer

__all__ = ["ClientFacade", "ClusterFacade"]


class ClusterFacade:
    """What the producer knows of topics at this moment. No call waits."""

    def __init__(self) -> None:
        self._producer: Producer | None = None
        self._topics: set[str] = set()

    def topics(self) -> set[str]:
        """The topics that :class:`ClientFacade` was asked for, and whose metadata has arrived."""
        return set(self._topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions; None if its metadata is not known."""
        views = self._views(topic)
        return None if views is None else {view.partition for view in views}

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions with a leader; None as above."""
        views = self._views(topic)
        return None if views is None else {view.partition for view in views if view.leader >= 0}

    def _views(self, topic: str) -> tuple[Any, ...] | None:
        assert self._producer is not None
        asking = self._producer.partitions_for(topic)
        try:
            asking.send(None)  # it returns at once if the metadata is known
        except StopIteration as known:
            return cast("tuple[Any, ...]", known.value)
        except KafkaError:
            return None
        finally:
            asking.close()
        return None


class ClientFacade:
    """The attributes and methods of ``aiokafka.AIOKafkaClient`` that instrumentations and
    frameworks use with a producer."""

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
        self._producer = self.cluster._producer = producer

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions.

        Raises UnknownTopicOrPartitionError after ``request_timeout_ms``.
        """
        assert self._producer is not None
        with Translation():
            views = await self._producer.partitions_for(topic)
        self.cluster._topics.add(topic)
        return {view.partition for view in views}

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Have the topic's metadata fetched. The result: whether it has arrived."""
        return self._in_background(self._wait_on_metadata(topic))

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Fetch the metadata of all topics in use. The result: whether a broker has answered."""
        return self._in_background(self._update())

    async def _update(self) -> None:
        assert self._producer is not None
        with Translation():
            await self._producer.refresh_metadata()

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[bool]:
        async def succeeds() -> bool:
            try:
                await work
            except KafkaError:
                return False
            return True

        task = asyncio.get_running_loop().create_task(succeeds())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)
