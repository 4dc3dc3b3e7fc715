"""Rights that are taken away from a consumer while it consumes, and given back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from integration.security.broker import heeded
from kafkaclient import Consumer, Producer
from kafkaclient.errors import AuthorizationError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from kafkaclient.testing import LocalCluster

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

PARTITIONS = 3
_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}


class Rights:
    """Alice's rights to read a topic, and in the group that is called like it."""

    def __init__(self, secured: LocalCluster, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": secured.bootstrap})
        self._name = name
        for done in self._admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            done.result(30)

    def _rule(self, kind: str, cls: Any) -> Any:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return cls(
            *(_KINDS[kind], self._name, literal, "User:alice", "*", AclOperation.READ, allow)
        )

    def grant(self, *kinds: str) -> None:
        rules = [self._rule(kind, AclBinding) for kind in kinds]
        for done in self._admin.create_acls(rules).values():
            done.result(30)

    def take(self, kind: str) -> None:
        for done in self._admin.delete_acls([self._rule(kind, AclBindingFilter)]).values():
            done.result(30)


class Reading:
    """What consumers have processed, in order."""

    def __init__(self, secured: LocalCluster, name: str) -> None:
        self._bootstrap = secured.bootstrap
        self._name = name
        self.seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}

    async def send(self, count: int) -> None:
        async with Producer(self._bootstrap) as producer:
            for n in range(count * PARTITIONS):
                await producer.send(self._name, b"%d" % n, partition=n % PARTITIONS)

    async def until(self, consumer: Consumer, ends: int) -> None:
        """Consume until each partition was read up to this offset."""
        async with asyncio.timeout(60):
            while not all(found[-1:] == [ends - 1] for found in self.seen.values()):
                record = await consumer.getone()
                self.seen[record.partition].append(record.offset)


async def refused(consumer: Consumer, expected: str) -> None:
    with pytest.raises(AuthorizationError, match=expected):
        await asyncio.wait_for(consumer.getone(), 30)


@pytest.fixture(params=["classic", "consumer"])
async def granted(
    request: Any, secured: LocalCluster, options: Any, topic: str
) -> tuple[Rights, Reading, dict[str, Any]]:
    """Rights, five records a partition, and the options of a member of each protocol."""
    rights, reading = Rights(secured, topic), Reading(secured, topic)
    rights.grant("topic", "group")
    security = options("SASL_PLAINTEXT", "PLAIN")
    bootstrap, _ = security.pop("bootstrap_servers"), security.pop("max_block_ms")
    await heeded(bootstrap, security, topic)
    given = options("SASL_PLAINTEXT", "PLAIN", group_id=topic, group_protocol=request.param)
    given |= {"topics": [topic], "auto_offset_reset": "earliest", "metadata_max_age_ms": 3000}
    await reading.send(5)
    return rights, reading, given


async def test_the_right_to_read_the_topic(granted: Any, topic: str) -> None:
    """Each call tells of it; when it is given back, the same consumer goes on."""
    rights, reading, given = granted
    async with Consumer(**given) as consumer:
        await reading.until(consumer, 5)
        await consumer.commit()
        rights.take("topic")
        expected = f"may not (Read|Describe) on the topic '{topic}'"
        await refused(consumer, expected)
        await reading.send(5)
        with pytest.raises(AuthorizationError, match=expected):
            await consumer.commit({TopicPartition(topic, 0): 5})
        await asyncio.sleep(8)  # also the leader of the group has noticed it
        await refused(consumer, expected)
        rights.grant("topic")
        async with asyncio.timeout(60):
            while any(found[-1] != 9 for found in reading.seen.values()):
                with suppress(AuthorizationError):
                    await reading.until(consumer, 10)
        assert reading.seen == {number: [*range(10)] for number in range(PARTITIONS)}
        await consumer.commit()
        found = await consumer.committed([(topic, n) for n in range(PARTITIONS)])
        assert set(found.values()) == {10}


@pytest.mark.full
async def test_the_right_to_read_the_group(granted: Any, topic: str) -> None:
    """The consumer ends with the error; another one goes on behind what was committed."""
    rights, reading, given = granted
    expected = f"may not (Read|Describe) on the group '{topic}'"
    async with Consumer(**given) as consumer:
        await reading.until(consumer, 5)
        await consumer.commit()
        rights.take("group")
        await refused(consumer, expected)
        with pytest.raises(AuthorizationError, match=expected):
            await consumer.commit({TopicPartition(topic, 0): 5})
        await refused(consumer, expected)
    await reading.send(5)
    async with Consumer(**given) as consumer:
        await refused(consumer, expected)
    rights.grant("group")
    await asyncio.sleep(1)
    async with Consumer(**given) as consumer:
        await reading.until(consumer, 10)
    assert reading.seen == {number: [*range(10)] for number in range(PARTITIONS)}
