"""What the tests of the sync producer share."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkaclient import SyncProducer
from kafkaclient.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY_VIOLATION = 44


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


def threads() -> list[str]:
    """Those that do not end within 10 seconds. What a test has left behind may take a moment."""
    deadline = time.monotonic() + 10
    while found := [t.name for t in threading.enumerate() if t.name.startswith("kafkaclient-")]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return found


@contextmanager
def busy(producer: SyncProducer) -> Iterator[None]:
    """Keeps the producer's thread busy in a callback, for 30 seconds at most."""
    busy, go_on = threading.Event(), threading.Event()
    thread = producer._thread
    assert thread is not None
    thread._loop.call_soon_threadsafe(lambda: (busy.set(), go_on.wait(30)))
    busy.wait()
    try:
        yield
    finally:
        go_on.set()


def stalled(**options: Any) -> tuple[FakeCluster, Any]:
    """A producer whose broker answers nothing more once the producer has started."""
    fake = one_topic()
    producer = SyncProducer(
        fake.bootstrap, dialer=fake, batch_size=1000, buffer_memory=2000, linger_ms=0, **options
    )
    producer.send_and_wait("t", b"0")
    fake.stall_broker(0)
    return fake, producer
