"""Members of one group, each of another client: what they own, and what they have seen."""

from __future__ import annotations

import asyncio
import json
import tempfile
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer as ConfluentConsumer

from kafkaclient.consumer import Consumer, RebalanceListener
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jvm import Jvm, find_java
from kafkaclient.testing.settings import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Set

    from kafkaclient.types import TopicPartition

__all__ = ["CLIENTS", "OURS", "GroupMember", "member"]

OURS = "kafkaclient"
_POLL_S = 0.1
_JAVA_HEAP_MB = 96
_JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
_AIOKAFKA_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class GroupMember(ABC):
    """A member; ``protocol`` is ``consumer``, or the classic protocol's strategy."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.protocol = protocol
        self.seen: list[tuple[int, int]] = []
        """Partition and offset of each record, in the order of processing."""
        self.gone: list[int] = []
        """Partitions that were revoked or lost, in order; only of our member."""

    @property
    def is_classic(self) -> bool:
        return self.protocol != "consumer"

    @property
    @abstractmethod
    def owned(self) -> set[int]:
        """The partitions that it has now."""

    @abstractmethod
    async def run(self) -> None:
        """Be a member until cancelled, then leave the group."""


class OurMember(GroupMember, RebalanceListener):
    consumer: Consumer | None = None

    @property
    def owned(self) -> set[int]:
        running = self.consumer is not None and self.consumer.is_running
        return {each.partition for each in self.consumer.assignment} if running else set()  # type: ignore[union-attr]

    def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        self.gone += sorted(each.partition for each in partitions)

    async def run(self) -> None:
        classic = {"partition_assignment_strategy": self.protocol} if self.is_classic else {}
        async with Consumer(
            self.bootstrap,
            group_id=self.group,
            topics=[self.topic],
            group_protocol="classic" if self.is_classic else "consumer",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
            listener=self,
            **classic,
        ) as self.consumer:
            async for record in self.consumer:
                self.seen.append((record.partition, record.offset))


class JavaMember(GroupMember):
    """Kafka's ``VerifiableConsumer``, which prints what happens to it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owned: set[int] = set()

    @property
    def owned(self) -> set[int]:
        return self._owned

    async def run(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
            config.write("metadata.max.age.ms=2000\n")
            if self.is_classic:
                config.write("heartbeat.interval.ms=500\n")
            config.flush()
            process = await asyncio.create_subprocess_exec(
                *await asyncio.to_thread(self._command, config.name),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert process.stdout is not None
            reading = asyncio.create_task(self._read(process.stdout))
            try:
                await asyncio.shield(reading)
                raise AssertionError(f"Java's consumer ended with status {await process.wait()}")
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()
                await reading

    def _command(self, config: str) -> list[str]:
        jvm = Jvm(find_java().path, JarCache().ensure(read_lock(DEFAULT_VERSION)), quick=True)
        classic = ("--session-timeout", "10000")
        strategy = f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS.get(self.protocol)}"
        return jvm.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            [
                *("--bootstrap-server", self.bootstrap, "--topic", self.topic),
                *("--group-id", self.group, "--verbose", "--command-config", config),
                *("--group-protocol", "classic" if self.is_classic else "consumer"),
                *((*classic, "--assignment-strategy", strategy) if self.is_classic else ()),
            ],
            heap_mb=_JAVA_HEAP_MB,
            properties={"log4j2.level": "OFF"},
        )

    async def _read(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            event = json.loads(line)
            partitions = {each["partition"] for each in event.get("partitions", ())}
            match event["name"]:
                case "partitions_assigned":
                    self._owned |= partitions
                case "partitions_revoked":
                    self._owned -= partitions
                case "record_data":
                    self.seen.append((event["partition"], event["offset"]))
                case "shutdown_complete":
                    self._owned.clear()


class ConfluentMember(GroupMember):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owned: set[int] = set()

    @property
    def owned(self) -> set[int]:
        return self._owned

    async def run(self) -> None:
        options: dict[str, Any] = {"group.protocol": "consumer"}
        if self.is_classic:
            options = {
                "partition.assignment.strategy": self.protocol,
                "heartbeat.interval.ms": 500,
                "session.timeout.ms": 10_000,
            }
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                **options,
            }
        )
        consumer.subscribe([self.topic])
        try:
            while True:
                message = await asyncio.to_thread(consumer.poll, _POLL_S)
                if message is not None and message.error() is None:
                    self.seen.append((message.partition(), message.offset()))
                self._owned = {each.partition for each in consumer.assignment()}
        finally:
            await asyncio.shield(asyncio.to_thread(consumer.close))
            self._owned = set()


class AiokafkaMember(GroupMember):
    consumer: AIOKafkaConsumer | None = None

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()} if self.consumer else set()

    async def run(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(_AIOKAFKA_ASSIGNORS[self.protocol],),
        )
        await consumer.start()
        self.consumer = consumer
        try:
            async for record in consumer:
                self.seen.append((record.partition, record.offset))
        finally:
            self.consumer = None
            await consumer.stop()


CLIENTS: Mapping[str, type[GroupMember]] = {
    OURS: OurMember,
    "java": JavaMember,
    "confluent": ConfluentMember,
    "aiokafka": AiokafkaMember,
}


@asynccontextmanager
async def member(
    client: str, bootstrap: str, group: str, topic: str, protocol: str
) -> AsyncIterator[tuple[GroupMember, asyncio.Task[None]]]:
    """A member, and the task that runs it until the block ends."""
    made = CLIENTS[client](bootstrap, group, topic, protocol)
    running = asyncio.create_task(made.run())
    try:
        yield made, running
    finally:
        running.cancel()
        await asyncio.wait({running})
