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
from kafkaclient.aiokafka import PLACES, AIOKafkaProducer, install, uninstall
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    assert list(PLACES) == [aiokafka, aiokafka.producer, aiokafka.producer.producer]
    install()
    install()
    assert [place.AIOKafkaProducer for place in PLACES] == [AIOKafkaProducer] * 3
    uninstall()
    uninstall()
    assert [place.AIOKafkaProducer for place in PLACES] == [THEIRS] * 3


def test_modules_that_have_the_name_already_are_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (("early_bird", "AIOKafkaProducer"), ("early_alias", "P")):
        early = ModuleType(module)
        setattr(early, name, THEIRS)
        monkeypatch.setitem(sys.modules, module, early)
    with caplog.at_level(logging.WARNING):
        install()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "early_alias, early_bird" in message
    assert "kafkaclient" not in message
    assert early.P is THEIRS


def in_a_fresh_process(code: str) -> str:
    """What the code writes to the log; modules of other tests may have the class already."""
    code = f"import logging\nlogging.basicConfig(format='%(message)s')\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr


INSTALL = "from kafkaclient.aiokafka import install\ninstall()\n"
INSTRUMENT = """
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
AIOKafkaInstrumentor().instrument()
"""
WRAP = """
import functools, aiokafka
send = aiokafka.AIOKafkaProducer.send
aiokafka.AIOKafkaProducer.send = functools.wraps(send)(lambda *args: send(*args))
"""


@pytest.mark.parametrize("wrap", [INSTRUMENT, WRAP], ids=["opentelemetry", "functools.wraps"])
def test_an_instrumentation_that_came_before_is_reported(wrap: str) -> None:
    """It has wrapped aiokafka's own class: the drop-in would have no spans."""
    for before in (wrap, f"import kafkaclient.aiokafka\n{wrap}"):
        assert "instrument after install()" in in_a_fresh_process(before + INSTALL)


def test_the_right_order_is_not_reported() -> None:
    assert not in_a_fresh_process(INSTALL + INSTALL + INSTRUMENT + INSTALL)


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
    """As OpenTelemetry does: one attribute of the class, put back afterwards. ``send_and_wait``
    goes through it."""
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
