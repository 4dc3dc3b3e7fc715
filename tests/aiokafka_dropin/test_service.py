"""A service written against aiokafka's API runs on the drop-in, and passes ``mypy --strict``."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient.aiokafka
from kafkaclient.aiokafka import TopicPartition
from kafkaclient.aiokafka.structs import BatchBuilder
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.aiokafka_dropin import service
from tests.aiokafka_dropin.support import dropin

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent


@virtual_time
async def test_the_service_runs() -> None:
    fake = FakeCluster()
    fake.create_topic("events", 3)
    outbox = await service.run(fake.bootstrap.split(","), "events", dialer=fake)
    assert not outbox.undelivered
    log = [record.value or b"" for n in range(3) for record in fake.log("events", n)]
    assert sorted(json.loads(value)["id"] for value in log) == ["a", "b", "c", "d", "e"]


@virtual_time
async def test_the_services_transaction() -> None:
    fake = FakeCluster()
    fake.create_topic("events", 1)
    async with dropin(fake, transactional_id="tx", value_serializer=service.encode) as producer:
        assert await service.move(producer, "events", {TopicPartition("events", 0): 5}) == 0


@virtual_time
async def test_the_service_keeps_what_failed() -> None:
    fake = FakeCluster()
    fake.create_topic("events", 1)
    async with dropin(fake, value_serializer=service.encode) as producer:
        outbox = service.Outbox(producer, "events")
        fake.fail_produce("events", 0, 87)
        assert await outbox.publish({"id": "x"}) is None
    assert outbox.undelivered == [{"id": "x"}]


@pytest.mark.timeout(300)
def test_mypy_strict_passes(tmp_path: Path) -> None:
    """As a service would run it, with no settings of this project, and aiokafka without types."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from kafkaclient.aiokafka import AIOKafkaProducer\n"
        "async def f(p: AIOKafkaProducer) -> str:\n"
        "    return await p.send_and_wait('t', b'v')\n"
    )
    command = [
        *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
        *("--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache' / 'service'}"),
        *(str(Path(service.__file__)), str(wrong)),
    ]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    errors = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, found.stdout + found.stderr
    assert "wrong.py:3" in errors[0]
    assert "RecordMetadata" in errors[0]


def public() -> Iterator[tuple[str, Any]]:
    for kind in (kafkaclient.aiokafka.AIOKafkaProducer, BatchBuilder):
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") or name == "__init__":
                yield f"{kind.__name__}.{name}", function
    for name in ("install", "uninstall"):
        yield name, getattr(kafkaclient.aiokafka, name)


@pytest.mark.parametrize("name", dict(public()))
def test_everything_public_is_annotated_and_described(name: str) -> None:
    function = dict(public())[name]
    signature = inspect.signature(function)
    untyped = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is parameter.empty and parameter.name != "self"
    ]
    assert not untyped
    assert signature.return_annotation is not signature.empty
    assert name.endswith("__init__") or function.__doc__
