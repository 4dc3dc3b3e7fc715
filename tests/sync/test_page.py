"""The snippets of docs/how-to/sync.md."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
from kafkaclient import SyncProducer
from kafkaclient.testing import FakeCluster
from tests.schema_registry.stub import running_stub

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sync.md").read_text("utf-8")
FIRST, SCRIPT, EVENTS, DJANGO, CELERY, REGISTRY = re.findall(
    r"```python\n(.*?)```", PAGE, re.DOTALL
)


class Here:
    """Runs snippets on a fake cluster, without Django and Celery."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = FakeCluster(1)
        self.fake.create_topic("flights", 1, 1)
        self._monkeypatch = monkeypatch
        made = partial(SyncProducer, dialer=self.fake)
        monkeypatch.setattr(kafkaclient, "SyncProducer", made, raising=False)

    def run(self, code: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(code.replace("localhost:9092", self.fake.bootstrap), names)  # noqa: S102
        return names

    def module(self, name: str, **names: object) -> None:
        module = ModuleType(name)
        vars(module).update(names)
        self._monkeypatch.setitem(sys.modules, name, module)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.fake.log("flights", 0)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(monkeypatch)


def test_the_first_example(here: Here) -> None:
    here.run(FIRST)
    assert here.values() == [b"value", b"value", b"one", b"two"]


def test_the_script(here: Here) -> None:
    here.run(SCRIPT)["producer"].close()
    assert here.values() == [b"%d" % n for n in range(1000)]


def test_django(here: Here) -> None:
    committed: list[Callable[[], None]] = []

    class Atomic:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            while committed:
                committed.pop()()

    events = here.run(EVENTS)
    here.module("events", **events)
    transaction = SimpleNamespace(atomic=Atomic, on_commit=committed.append)
    here.module("django")
    here.module("django.db", transaction=transaction)
    here.run(DJANGO)
    events["producer"].close()
    assert here.values() == [b'{"order": 7}']


# The connection to the registry is open when the producer's event loop ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_schema_registry(here: Here) -> None:
    started, over = Future[str](), threading.Event()

    async def serve() -> None:
        async with running_stub(password=None) as stub:
            started.set_result(stub.url)
            await asyncio.to_thread(over.wait)

    registry = threading.Thread(target=asyncio.run, args=(serve(),))
    registry.start()
    names = here.run(REGISTRY.replace("http://localhost:8081", started.result(10)))
    for _ in range(2):
        names["flight_delayed"]("UA", 12)
    over.set()
    registry.join(10)  # its end closes the client's connection
    assert names["producer"].close() == 0
    names.clear()
    gc.collect()
    assert here.values() == [b"\x00\x00\x00\x00\x01" + b"\x04UA\x18"] * 2


def test_celery(here: Here) -> None:
    connected: list[Callable[..., None]] = []
    events = here.run(EVENTS)
    here.module("events", **events)
    here.module("celery")
    shutdown = SimpleNamespace(connect=connected.append)
    here.module("celery.signals", worker_process_shutdown=shutdown)
    here.run(CELERY)
    events["order_placed"](7, "ann")
    connected[0](sender=None, pid=1, exitcode=0)
    assert here.values() == [b'{"order": 7}']
