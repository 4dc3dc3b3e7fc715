"""aiokafka's value types and what its users reach through ``producer.client``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.aiokafka.errors import Translation

if TYPE_CHECKING:
    from kafkaclient import Producer

__all__ = ["ClientFacade", "ClusterFacade", "RecordMetadata", "TopicPartition"]


# --- aiokafka's RecordMetadata and TopicPartition. aiokafka has no type annotations ---------------

if TYPE_CHECKING:

    class TopicPartition(NamedTuple):
        """A topic's name and a partition's number."""

        topic: str
        partition: int

    class RecordMetadata(NamedTuple):
        """Where a record was written. ``timestamp`` is in milliseconds since the epoch;
        ``timestamp_type`` is 1 if the broker set the timestamp (LogAppendTime), otherwise 0."""

        topic: str
        partition: int
        topic_partition: TopicPartition
        offset: int
        timestamp: int | None
        timestamp_type: int
        log_start_offset: int | None

else:
    from aiokafka.structs import RecordMetadata, TopicPartition


# --- ``AIOKafkaProducer.client``: what instrumentations -------------------------------------------


class ClusterFacade:
    """What the producer knows of topics at this moment. No call waits, or sends a request."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions; None if its metadata is not known."""
        views = self._producer.known_partitions(topic)
        return None if views is None else {view.partition for view in views}

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions with a leader; None if its metadata is not
        known."""
        views = self._producer.known_partitions(topic)
        return None if views is None else {view.partition for view in views if view.leader >= 0}


class ClientFacade:
    """The attributes of ``aiokafka.AIOKafkaClient`` that OpenTelemetry's instrumentation reads, and
    the metadata of the cluster."""

    def __init__(self, bootstrap_servers: Any, client_id: str, producer: Producer) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self.attach(producer)

    def __repr__(self) -> str:
        return f"<ClientFacade client_id={self._client_id}>"

    def attach(self, producer: Producer) -> None:
        """Ask this producer from now on."""
        self._producer = producer
        self.cluster: ClusterFacade = ClusterFacade(producer)

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions.

        Raises UnknownTopicOrPartitionError after ``request_timeout_ms``.
        """
        with Translation():
            views = await self._producer.partitions_for(topic)
        return {view.partition for view in views}
