"""A fake cluster of three brokers, and an admin client on it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin import Admin
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kafkaclient.testing.fake import Control, Request


def can_fetch(fake: FakeCluster) -> Control:
    """Let the fake's leaders answer Fetch for whole small logs."""

    def answer(request: Request) -> dict[str, Any]:
        (topic,) = request.message.topics
        (wanted,) = topic.partitions
        partition = inspect(fake).partition(topic.topic, wanted.partition)
        if partition is None or partition.leader != request.broker:
            told = {"partition_index": wanted.partition, "error_code": 6 if partition else 3}
        else:
            kept = [
                header.base_offset.to_bytes(8, "big") + batch[8:]
                for header, batch in partition.log.batches
                if header.base_offset + header.record_count > wanted.fetch_offset
            ]
            told = {
                "partition_index": wanted.partition,
                "high_watermark": partition.log.end_offset,
                "records": b"".join(kept),
            }
        return {"responses": [{"topic": topic.topic, "partitions": [told]}]}

    fake.set_versions(ApiKey.FETCH, 4, 12)
    return fake.control(ApiKey.FETCH, answer, keep=True)


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster(3, partitions=2)


@pytest.fixture(autouse=True)
def fetches(fake: FakeCluster) -> Control:
    """What has the fake's leaders answer Fetch, until it is removed."""
    return can_fetch(fake)


@pytest.fixture
def new_admin(fake: FakeCluster) -> Callable[..., Admin]:
    def make(**options: Any) -> Admin:
        wall_clock = options.pop("wall_clock", lambda: asyncio.get_running_loop().time())
        options = {"limits": "topic", "rng": Random(1), "wall_clock": wall_clock, **options}
        return Admin(fake.bootstrap, dialer=fake, **options)

    return make


@pytest.fixture
async def admin(new_admin: Callable[..., Admin]) -> AsyncIterator[Admin]:
    async with new_admin() as client:
        yield client


@pytest.fixture
def fake_virtual(fake: FakeCluster, new_admin: Callable[..., Admin]) -> tuple[FakeCluster, Admin]:
    """The fake, and a client to be started in virtual time."""
    return fake, new_admin()
