"""``install()`` puts the drop-in in the place of aiokafka's producer, and ``uninstall()`` back."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import aiokafka
import aiokafka.producer
import aiokafka.producer.producer
import pytest

import kafkaclient.aiokafka
from kafkaclient.aiokafka import AIOKafkaProducer, install, uninstall
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES: list[Any] = [aiokafka, aiokafka.producer, aiokafka.producer.producer]
THEIRS = aiokafka.AIOKafkaProducer


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    uninstall()
    assert [place.AIOKafkaProducer for place in PLACES] == [THEIRS] * 3


def test_import_alone_changes_nothing() -> None:
    assert kafkaclient.aiokafka.AIOKafkaProducer is not THEIRS
    assert [place.AIOKafkaProducer for place in PLACES] == [THEIRS] * 3


def test_without_aiokafka_the_extra_is_named() -> None:
    code = "import sys; sys.modules['aiokafka'] = None; import kafkaclient.aiokafka"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'kafkaclient[aiokafka]'" in done.stderr.splitlines()[-1]


def test_all_three_names() -> None:
    install()
    install()
    assert [place.AIOKafkaProducer for place in PLACES] == [AIOKafkaProducer] * 3
    uninstall()
    uninstall()
    assert [place.AIOKafkaProducer for place in PLACES] == [THEIRS] * 3


def test_modules_that_have_the_name_already_are_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    early: Any = ModuleType("early_bird")
    early.AIOKafkaProducer = THEIRS
    monkeypatch.setitem(sys.modules, "early_bird", early)
    with caplog.at_level(logging.WARNING):
        install()
    assert "early_bird" in caplog.text
    assert early.AIOKafkaProducer is THEIRS


@virtual_time
async def test_a_library_that_makes_a_producer() -> None:
    """With aiokafka's own default of acks, as FastStream passes it on."""
    install()
    fake = FakeCluster(1)
    fake.create_topic("t", 1)
    missing = aiokafka.producer.producer._missing
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=fake.bootstrap, dialer=fake, acks=missing
    ) as producer:
        assert isinstance(producer, AIOKafkaProducer)
        assert (await producer.send_and_wait("t", b"v")).offset == 0


@virtual_time
async def test_an_instrumentation_wraps_send() -> None:
    """As OpenTelemetry, Datadog and Sentry do: one attribute of the class, put back afterwards.
    ``send_and_wait`` goes through it."""
    install()
    original = aiokafka.AIOKafkaProducer.send
    seen: list[Any] = []

    async def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return await original(self, *args, **kwargs)

    fake = FakeCluster(1)
    fake.create_topic("t", 1)
    aiokafka.AIOKafkaProducer.send = traced
    try:
        async with AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake) as producer:
            await producer.send_and_wait("t", b"1")
            await (await producer.send("t", b"2"))
    finally:
        aiokafka.AIOKafkaProducer.send = original
    assert [args[:2] for args, _ in seen] == [("t", b"1"), ("t", b"2")]
