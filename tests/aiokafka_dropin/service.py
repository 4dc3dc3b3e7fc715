"""A service written against aiokafka's documented API, with the one changed import.

``test_service.py`` runs it, and has ``mypy --strict`` check it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from kafkaclient.aiokafka import AIOKafkaProducer, RecordMetadata, TopicPartition
from kafkaclient.errors import DeliveryTimeoutError, KafkaError


def encode(value: object) -> bytes:
    return json.dumps(value).encode()


def by_first_byte(key: bytes | None, everything: list[int], available: list[int]) -> int:
    return available[0] if key is None else everything[key[0] % len(everything)]


@dataclass
class Outbox:
    """Publishes events, and keeps those that were not delivered."""

    producer: AIOKafkaProducer
    topic: str
    undelivered: list[dict[str, str]] = field(default_factory=list)

    async def publish(self, event: dict[str, str]) -> RecordMetadata | None:
        try:
            return await self.producer.send_and_wait(
                self.topic, event, key=event["id"].encode(), headers=[("type", b"event")]
            )
        except DeliveryTimeoutError as error:
            if error.maybe_written:
                return None
            self.undelivered.append(event)
        except KafkaError:
            self.undelivered.append(event)
        return None

    async def publish_all(self, events: list[dict[str, str]]) -> list[int]:
        futures: list[asyncio.Future[RecordMetadata]] = [
            await self.producer.send(self.topic, value=event, partition=0) for event in events
        ]
        done, pending = await asyncio.wait(futures, timeout=5)
        assert not pending
        return sorted(future.result().offset for future in done)

    async def publish_batch(self, events: list[dict[str, str]]) -> int:
        partitions = await self.producer.partitions_for(self.topic)
        batch = self.producer.create_batch()
        for event in events:
            appended = batch.append(key=None, value=event, timestamp=None)
            if appended is None:
                break
            assert appended.size > 0
        batch.close()
        sent = await self.producer.send_batch(batch, self.topic, partition=min(partitions))
        metadata = await asyncio.wait_for(sent, 5)
        assert metadata.topic_partition == TopicPartition(self.topic, min(partitions))
        return batch.record_count()


async def move(producer: AIOKafkaProducer, topic: str, offsets: dict[TopicPartition, int]) -> int:
    """A read-process-write step in a transaction."""
    async with producer.transaction():
        future = await producer.send(topic, {"id": "moved"}, partition=0)
        future.add_done_callback(lambda done: done.exception())
        await producer.send_offsets_to_transaction(offsets, "group")
    return (await future).offset


async def run(bootstrap_servers: list[str], topic: str, **options: Any) -> Outbox:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        client_id="outbox",
        acks="all",
        enable_idempotence=True,
        value_serializer=encode,
        compression_type="gzip",
        linger_ms=5,
        request_timeout_ms=10_000,
        partitioner=by_first_byte,
        **options,
    )
    await producer.start()
    try:
        outbox = Outbox(producer, topic)
        metadata = await outbox.publish({"id": "a"})
        assert metadata is not None
        offset: int = metadata.offset
        assert offset >= 0
        await outbox.publish_all([{"id": "b"}, {"id": "c"}])
        await outbox.publish_batch([{"id": "d"}, {"id": "e"}])
        await producer.flush()
    finally:
        await producer.stop()
    return outbox
