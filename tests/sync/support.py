"""What the tests of the sync producer share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkaclient import SyncProducer
from kafkaclient.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


def one_topic(partitions: int = 1, *, auto_create_topics: bool = True) -> FakeCluster:
    """A fake cluster with the topic ``t``."""
    fake = FakeCluster(1, auto_create_topics=auto_create_topics)
    fake.create_topic("t", partitions, 1)
    return fake


@contextmanager
def running(fake: FakeCluster, **options: Any) -> Iterator[SyncProducer]:
    with SyncProducer(fake.bootstrap, dialer=fake, **options) as producer:
        yield producer


def values(fake: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in fake.log("t", partition)]
