"""What the integration tests share: topics of their own, and an independent reader."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from integration.brokers import everywhere
from kafkaclient.admin import Admin, NewTopic
from pytest_kafkaclient import COMPOSE_VARIABLE
from pytest_kafkaclient.topics import create_topic as create_on
from pytest_kafkaclient.topics import unique_name
from tests.stuck import pytest_runtest_teardown  # noqa: F401 - a hook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background. Commands that the tests interrupt would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With containers, leave to `make integration` what does not use them."""
    if not os.environ.get(COMPOSE_VARIABLE):
        return
    elsewhere = pytest.mark.skip(reason="needs no cluster, or starts brokers of its own")
    for item in items:
        marked = item.get_closest_marker("local_cluster") is not None
        if not marked and "kafka_cluster" not in item.fixturenames:
            item.add_marker(elsewhere)


class Consumed(NamedTuple):
    """A record as aiokafka's consumer gives it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses, on whatever cluster; the topic does not exist yet."""
    return unique_name(request.node.name)


@pytest.fixture
def create_topic(kafka_cluster) -> Callable[..., Awaitable[None]]:
    async def create(
        name: str,
        partitions: int = 6,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        assignments: Mapping[int, list[int]] | None = None,
    ) -> None:
        """``assignments`` (partition -> its replicas) stand for both numbers. When this returns,
        every broker knows the topic. It keeps its records, however old their timestamps are: now
        and then brokers look for what they have to delete."""
        if assignments is not None:
            partitions = replication_factor = -1
        replicas = {p: tuple(nodes) for p, nodes in (assignments or {}).items()}
        settings = {"retention.ms": "-1", **(config or {})}
        new = NewTopic(name, partitions, replication_factor, settings, replicas)
        await create_on(kafka_cluster.bootstrap, new)
        async with Admin(kafka_cluster.bootstrap) as admin:
            await everywhere(admin, name)

    return create


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    spark_session = pytest.importorskip("kafkaclient.spark").spark_session
    session = spark_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def spark_options(kafka_cluster) -> dict[str, str]:
    """Options of Spark's reads and writes."""
    return {"kafka.bootstrap.servers": kafka_cluster.bootstrap}


@pytest.fixture
def read_topic(kafka_cluster) -> Callable[..., Awaitable[list[Consumed]]]:
    """All records of a topic up to its present end, each partition in the order of offsets."""

    async def read(name: str, isolation_level: str = "read_uncommitted") -> list[Consumed]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka_cluster.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
        )
        await consumer.start()
        try:
            async with asyncio.timeout(60):
                return await _read_to_end(consumer, name)
        finally:
            await consumer.stop()

    return read


async def _read_to_end(consumer: AIOKafkaConsumer, name: str) -> list[Consumed]:
    while not (numbers := await consumer._client._wait_on_metadata(name)):
        await asyncio.sleep(0.1)
    partitions = [TopicPartition(name, number) for number in sorted(numbers)]
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    await consumer.seek_to_beginning(*partitions)
    records: list[Consumed] = []
    left = {tp for tp in partitions if ends[tp] > 0}
    while left:
        for messages in (await consumer.getmany(*left, timeout_ms=500)).values():
            records += (
                Consumed(m.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
                for m in messages
            )
        left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
    return records
