"""The fake cluster with a topic ``t`` of three partitions, and options that lead there."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.cluster import topics as log_ends
from kafkaclient.spark import jobs, planning
from kafkaclient.spark.client_cache import ClientCache
from kafkaclient.spark.options import ReadOptions
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.fetch import LATEST_TIMESTAMP
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    """Collect the objects that a test froze, so that later tests see their leaks."""
    before = jobs._modules
    yield
    if jobs._modules != before:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster()
    cluster.round_trip_s = 0.0
    cluster.create_topic("t", 3)
    return cluster


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between answers about a log that seems to be shorter, or a topic that seems to be another."""
    monkeypatch.setattr(log_ends, "_PAUSE_S", 0.0)
    monkeypatch.setattr(planning, "_PAUSES_S", (0.0, 0.0))


@pytest.fixture
def answer_old_ends(fake: FakeCluster) -> Callable[..., None]:
    """Let the next answers say that no log is longer than ``end``, as a leader says that was
    paused and does not know yet that another broker leads."""

    def start(end: int, answers: int = 1) -> None:
        left = [answers]

        def old(topic: str, partition: Any) -> dict[str, int]:
            number = partition.partition_index
            found = {"offset": min(end, fake.end_offset(topic, number)), "leader_epoch": 0}
            return found | {"partition_index": number, "error_code": 0, "timestamp": -1}

        def answer(request: Any) -> Any:
            topics = request.message.topics
            wanted = {p.timestamp for topic in topics for p in topic.partitions}
            if wanted != {LATEST_TIMESTAMP} or not left[0]:
                return None
            left[0] -= 1
            return {
                "throttle_time_ms": 0,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [old(topic.name, p) for p in topic.partitions],
                    }
                    for topic in topics
                ],
            }

        fake.control(ApiKey.LIST_OFFSETS, answer, keep=True)

    return start


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
            builder.seal(CompressionType.NONE)
            fake.append(topic, partition, bytes(builder.buffer()))

    return append


@pytest.fixture
def options(fake: FakeCluster) -> Callable[..., ReadOptions]:
    def make(mode: Any = "batch", /, **given: str) -> ReadOptions:
        if not {"assign", "subscribePattern"} & given.keys():
            given.setdefault("subscribe", "t")
        return ReadOptions.parse({"kafka.bootstrap.servers": fake.bootstrap, **given}, mode)

    return make
