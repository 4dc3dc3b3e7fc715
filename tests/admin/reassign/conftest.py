"""Upstream's fixture: five brokers on two racks, and the topics foo, bar, baz."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.producer.producer import Producer
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(5, racks=["rack0", "rack0", "rack1", "rack1", "rack1"])
    cluster.create_topic("foo", assignments=[(0, 1, 2), (1, 2, 3)])
    cluster.create_topic("bar", assignments=[(3, 2, 1)])
    cluster.create_topic("baz", assignments=[(1, 0, 2), (2, 0, 1), (0, 2, 1)])
    return cluster


@pytest.fixture
def configured(fake: FakeCluster) -> Callable[[], dict[str, dict[str, str]]]:
    """What is set in the cluster, by topic and by broker's id."""

    def found() -> dict[str, dict[str, str]]:
        topics = {name: dict(topic.configs) for name, topic in inspect(fake).topics.items()}
        all_ = topics | {node: dict(own) for node, own in inspect(fake).broker_configs.items()}
        return {name: own for name, own in all_.items() if own}

    return found


@pytest.fixture
def write_records(fake: FakeCluster) -> Callable[..., Awaitable[None]]:
    """Write so many records to a partition, each in a batch of its own."""

    async def write(topic: str, partition: int, count: int, nbytes: int = 100) -> None:
        async with Producer(fake.bootstrap, dialer=fake, linger_ms=0) as producer:
            for _ in range(count):
                await producer.send_and_wait(topic, b"x" * nbytes, partition=partition)

    return write
