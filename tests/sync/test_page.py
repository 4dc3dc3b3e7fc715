"""The snippets of docs/how-to/sync.md."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import SyncProducer
from kafkaclient.testing import FakeCluster
from tests.code_blocks import Block, runs
from tests.schema_registry.stub import running_stub

if TYPE_CHECKING:
    from collections.abc import Callable


class Here:
    """Runs snippets on a fake cluster, without Django and Celery."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = FakeCluster(1)
        self.fake.create_topic("flights", 1, 1)
        self._monkeypatch = monkeypatch

    def run(self, block: Block, **replaced: str) -> dict[str, Any]:
        return block.run(dialer=self.fake, replaced=replaced)

    def module(self, name: str, **names: object) -> None:
        module = ModuleType(name)
        vars(module).update(names)
        self._monkeypatch.setitem(sys.modules, name, module)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.fake.log("flights", 0)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(monkeypatch)


@runs("docs/how-to/sync.md", having="with SyncProducer")
def test_the_first_example(here: Here, block: Block) -> None:
    here.run(block)
    assert here.values() == [b"value", b"value", b"one", b"two"]


@runs("docs/how-to/sync.md", having="for record in consumer:", name="loop")
@runs("docs/how-to/sync.md", having="ThreadPoolExecutor")
def test_consuming(
    here: Here, loop: Block, block: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncProducer(here.fake.bootstrap, dialer=here.fake) as producer:
        producer.send_many("flights", [b"one", b"two"]).result()
    begins = {'["orders"]': '["flights"], auto_offset_reset="earliest"'}
    end = "; record.offset and consumer.stop()"
    here.run(loop, **begins, **{"print(record.value)": f"print(record.value){end}"})
    assert capsys.readouterr().out.split() == ["b'one'", "b'two'"]
    pool = {'"billing"': '"pool"', "(8)": "(1)", "record.done()": f"record.done(){end}"}
    here.run(block, **begins, **pool)
    assert capsys.readouterr().out.split() == ["b'one'", "b'two'"]
    assert here.fake.committed_offset("pool", "flights", 0) == 2


@runs("docs/how-to/sync.md", having="range(1000)")
def test_the_script(here: Here, block: Block) -> None:
    here.run(block)["producer"].close()
    assert here.values() == [b"%d" % n for n in range(1000)]


@runs("docs/how-to/sync.md", having="# events.py", name="module")
@runs("docs/how-to/sync.md", having="django")
def test_django(here: Here, module: Block, block: Block) -> None:
    committed: list[Callable[[], None]] = []

    class Atomic:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            while committed:
                committed.pop()()

    events = here.run(module)
    here.module("events", **events)
    transaction = SimpleNamespace(atomic=Atomic, on_commit=committed.append)
    here.module("django")
    here.module("django.db", transaction=transaction)
    here.run(block)
    events["producer"].close()
    assert here.values() == [b'{"order": 7}']


# The connection to the registry is open when the producer's event loop ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@runs("docs/how-to/sync.md", having="AvroSerializer")
def test_a_schema_registry(here: Here, block: Block) -> None:
    started, over = Future[str](), threading.Event()

    async def serve() -> None:
        async with running_stub(password=None) as stub:
            started.set_result(stub.url)
            await asyncio.to_thread(over.wait)

    registry = threading.Thread(target=asyncio.run, args=(serve(),))
    registry.start()
    names = here.run(block, **{"http://localhost:8081": started.result(10)})
    for _ in range(2):
        names["flight_delayed"]("UA", 12)
    over.set()
    registry.join(10)  # its end closes the client's connection
    assert names["producer"].close() == 0
    names.clear()
    gc.collect()
    assert here.values() == [b"\x00\x00\x00\x00\x01" + b"\x04UA\x18"] * 2


@runs("docs/how-to/sync.md", having="# events.py", name="module")
@runs("docs/how-to/sync.md", having="celery")
def test_celery(here: Here, module: Block, block: Block) -> None:
    connected: list[Callable[..., None]] = []
    events = here.run(module)
    here.module("events", **events)
    here.module("celery")
    shutdown = SimpleNamespace(connect=connected.append)
    here.module("celery.signals", worker_process_shutdown=shutdown)
    here.run(block)
    events["order_placed"](7, "ann")
    connected[0](sender=None, pid=1, exitcode=0)
    assert here.values() == [b'{"order": 7}']
