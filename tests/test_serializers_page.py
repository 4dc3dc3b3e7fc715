"""The programs of docs/how-to/serializers.md run, and write what they say."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkaclient
from kafkaclient import Producer
from kafkaclient.testing import FakeCluster
from tests.schema_registry.stub import running_stub

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "serializers.md").read_text("utf-8")
JSON, MSGSPEC, AVRO, CLOUD_EVENTS, AWAITING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DELAYED = {"carrier": "UA", "delay": 12}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("flights", 1)
    monkeypatch.setattr(kafkaclient, "Producer", partial(Producer, dialer=cluster), raising=False)
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


def run(code: str, fake: FakeCluster, registry_url: str = "") -> list[bytes]:
    code = code.replace("localhost:9092", fake.bootstrap)
    exec(code.replace("http://localhost:8081", registry_url), {})  # noqa: S102
    return [record.value or b"" for record in fake.log("flights", 0)]


@pytest.mark.parametrize("code", [JSON, MSGSPEC], ids=["orjson", "msgspec"])
def test_json(code: str, fake: FakeCluster) -> None:
    [value] = run(code, fake)
    assert json.loads(value) == DELAYED


def test_avro(fake: FakeCluster, registry_url: str) -> None:
    assert run(AVRO, fake, registry_url) == [b"\x00\x00\x00\x00\x01" + b"\x04UA\x18"]


def test_cloud_events(fake: FakeCluster) -> None:
    [value] = run(CLOUD_EVENTS, fake)
    assert json.loads(value) == DELAYED
    [record] = fake.log("flights", 0)
    headers = dict(record.headers)
    assert record.key == b"EWR"
    assert headers["ce_type"] == b"org.example.delayed"
    assert headers["ce_id"] == b"1"
    assert headers["content-type"] == b"application/json"


def test_a_serializer_that_waits(fake: FakeCluster) -> None:
    assert run(AWAITING, fake) == [b"\x00\x00\x00\x00\x07UA", b"\x00\x00\x00\x00\x07AA"]


@pytest.mark.parametrize("code", [JSON, MSGSPEC, AVRO, CLOUD_EVENTS])
def test_recipes_are_short(code: str) -> None:
    assert len([line for line in code.splitlines() if line]) <= 30
