"""The programs of docs/how-to/serializers.md run, and write what they say."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING

import pytest

from kafkaclient.testing import FakeCluster
from tests.code_blocks import Block, runs
from tests.schema_registry.stub import running_stub

if TYPE_CHECKING:
    from collections.abc import Iterator

DELAYED = {"carrier": "UA", "delay": 12}


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("flights", 1)
    return cluster


@pytest.fixture
def registry_url() -> Iterator[str]:
    """A registry without password, which runs on another thread."""
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    urls: list[str] = []
    ready = threading.Event()

    async def run() -> None:
        async with running_stub(password=None) as stub:
            urls.append(stub.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(10)
    yield urls[0]
    loop.call_soon_threadsafe(over.set)
    thread.join(10)
    loop.close()


def run(block: Block, fake: FakeCluster, registry_url: str = "") -> list[bytes]:
    lines = [line for line in block.source.splitlines() if line]
    assert "WithSchemaId" in block.source or len(lines) <= 30, "recipes are short"
    block.run(dialer=fake, replaced={"http://localhost:8081": registry_url})
    return [record.value or b"" for record in fake.log("flights", 0)]


@runs("docs/how-to/serializers.md", having="orjson")
def test_orjson(block: Block, fake: FakeCluster) -> None:
    [value] = run(block, fake)
    assert json.loads(value) == DELAYED


@runs("docs/how-to/serializers.md", having="msgspec")
def test_msgspec(block: Block, fake: FakeCluster) -> None:
    [value] = run(block, fake)
    assert json.loads(value) == DELAYED


@runs("docs/how-to/serializers.md", having="AvroSerializer")
def test_avro(block: Block, fake: FakeCluster, registry_url: str) -> None:
    assert run(block, fake, registry_url) == [b"\x00\x00\x00\x00\x01" + b"\x04UA\x18"]


@runs("docs/how-to/serializers.md", having="CloudEvent")
def test_cloud_events(block: Block, fake: FakeCluster) -> None:
    [value] = run(block, fake)
    assert json.loads(value) == DELAYED
    [record] = fake.log("flights", 0)
    headers = dict(record.headers)
    assert record.key == b"EWR"
    assert headers["ce_type"] == b"org.example.delayed"
    assert headers["ce_id"] == b"1"
    assert headers["content-type"] == b"application/json"


@runs("docs/how-to/serializers.md", having="WithSchemaId")
def test_a_serializer_that_waits(block: Block, fake: FakeCluster) -> None:
    assert run(block, fake) == [b"\x00\x00\x00\x00\x07UA", b"\x00\x00\x00\x00\x07AA"]
