"""How a topic's growth is counted and told, on the fake cluster and without any."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    KafkaError,
    MetadataTimeoutError,
)
from kafkaclient.perf import latency as growth
from kafkaclient.perf.latency import TopicGrowth, growth_followed
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping


def fake_cluster() -> FakeCluster:
    fake = FakeCluster()
    fake.create_topic("t", 3, 3)
    return fake


def sealed(records: int) -> bytes:
    builder = BatchBuilder(2**16)
    for number in range(records):
        builder.append(1000 + number, None, b"v", [])
    builder.seal(0)
    return bytes(builder.buffer())


def config(fake: FakeCluster) -> dict[str, str]:
    """A producer's, of which a reader knows a part."""
    return {
        "bootstrap.servers": fake.bootstrap,
        "acks": "1",
        "linger_ms": "3",
        "max.block.ms": "60000",
        "queue.buffering.max.messages": "9",
    }


@virtual_time
async def test_what_came_since_the_start_is_counted_over_all_partitions() -> None:
    fake = fake_cluster()
    fake.append("t", 0, sealed(100))
    counted = TopicGrowth(config(fake), "t", dialer=fake)
    await counted.start()
    assert await counted.records() == 0
    for partition, records in ((0, 5), (1, 7), (2, 11)):
        fake.append("t", partition, sealed(records))
    assert await counted.records() == 23
    await counted.close()


@virtual_time
async def test_a_topic_that_is_made_later_began_empty() -> None:
    fake = fake_cluster()
    counted = TopicGrowth(config(fake), "later", dialer=fake)
    await counted.start()
    with pytest.raises(MetadataTimeoutError):
        await counted.records()
    fake.create_topic("later", 2, 1)
    fake.append("later", 1, sealed(4))
    assert await counted.records() == 4
    assert asyncio.get_running_loop().time() < 12, "nobody waits long for it"
    await counted.close()


@virtual_time
async def test_what_cannot_be_reached_leaves_nothing_open() -> None:
    fake = fake_cluster()
    fake.control(ApiKey.LIST_OFFSETS, 29, broker=1)
    with pytest.raises(AuthorizationError):
        await TopicGrowth(config(fake), "t", dialer=fake).start()
    await asyncio.sleep(0)
    assert not any(fake.connections(broker) for broker in inspect(fake).brokers)


class Growth:
    """Stands for the topic's: counts on, fails every second time."""

    made: Growth
    fails: KafkaError | None = None

    def __init__(self, _config: Mapping[str, str], _topic: str) -> None:
        Growth.made = self
        self.calls = 0
        self.closed = False

    async def start(self) -> None:
        if self.fails is not None:
            raise self.fails

    async def records(self) -> int:
        self.calls += 1
        if self.calls % 2:
            raise BrokerError("nobody leads it now")
        return self.calls

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> type[Growth]:
    monkeypatch.setattr(growth, "TopicGrowth", Growth)
    monkeypatch.setattr(growth, "_EVERY_S", 0)
    return Growth


def test_it_is_told_until_the_end_and_through_failures(made_up: type[Growth]) -> None:
    heard: list[int] = []
    enough = threading.Event()

    def tell(records: int) -> None:
        heard.append(records)
        if len(heard) == 3:
            enough.set()

    with growth_followed({}, "t", tell):
        assert enough.wait(10)
    assert heard[:3] == [2, 4, 6]
    assert made_up.made.closed


@pytest.mark.parametrize("error", [MetadataTimeoutError("no topic"), ConfigError("bad")])
def test_what_cannot_be_followed_is_not_told(
    made_up: type[Growth], monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    monkeypatch.setattr(made_up, "fails", error)
    with growth_followed({}, "t", pytest.fail):
        pass
    assert made_up.made.calls == 0
