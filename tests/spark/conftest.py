"""The fake cluster with a topic ``t`` of three partitions, and options that lead there."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.spark.client_cache import ClientCache
from kafkaclient.spark.options import ReadOptions
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.compression import Codec
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    """Unfreeze the objects that a test froze, so that later tests see their leaks."""
    yield
    gc.unfreeze()


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster()
    cluster.round_trip_s = 0.0
    cluster.create_topic("t", 3)
    return cluster


@pytest.fixture
def cache(fake: FakeCluster) -> Iterator[ClientCache]:
    """A client cache whose clients connect to the fake cluster."""
    made = ClientCache(dialer=fake)
    yield made
    made.close()


@pytest.fixture
def fill(fake: FakeCluster) -> Callable[..., None]:
    """Append records with their offset as value and 1000 ms plus the offset as timestamp."""

    def append(partition: int, records: int, topic: str = "t") -> None:
        for _ in range(records):
            offset = fake.end_offset(topic, partition)
            builder = BatchBuilder(2**20)
            builder.append(1000 + offset, b"k", b"%d" % offset, [])
            builder.seal(Codec.NONE)
            fake.append(topic, partition, bytes(builder.buffer()))

    return append


@pytest.fixture
def options(fake: FakeCluster) -> Callable[..., ReadOptions]:
    def make(mode: Any = "batch", /, **given: str) -> ReadOptions:
        if not {"assign", "subscribePattern"} & given.keys():
            given.setdefault("subscribe", "t")
        return ReadOptions.parse({"kafka.bootstrap.servers": fake.bootstrap, **given}, mode)

    return make
