"""The snippets of docs/sync.md."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
from kafkaclient import SyncProducer
from kafkaclient.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[2] / "docs" / "sync.md").read_text("utf-8")
FIRST, SCRIPT, EVENTS, DJANGO, CELERY = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


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
