"""The view of the own producer, above the bar of ``perf-test`` and of the experiments."""

from __future__ import annotations

import asyncio
import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.watcher import ConsoleWatcher
from kafkaclient.cli import perf_report
from kafkaclient.cli.live_view import OwnProducerView
from kafkaclient.perf.clients import KafkaclientClient
from kafkaclient.testing.clock import run_virtual
from tests.producer.support import one_topic

if TYPE_CHECKING:
    import pytest

    from kafkaclient.testing.fake import FakeCluster


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


async def sending(view: OwnProducerView, fake: FakeCluster) -> None:
    client = KafkaclientClient(
        {"bootstrap.servers": fake.bootstrap, "client.id": "own"},
        "t",
        dialer=fake,
        metrics=view.metrics,
    )
    await client.start(lambda *_: None)
    for _ in range(50):
        await client.send([(None, b"v" * 100)] * 10, 0.0)
        await asyncio.sleep(0.1)
    await client.stop()


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_without_utf_8_gets_no_bars() -> None:
    view = OwnProducerView()

    async def main() -> None:
        sent = asyncio.create_task(sending(view, one_topic()))
        for _ in range(3):
            await asyncio.sleep(1)
            view.refresh()
        await sent

    run_virtual(main())
    for encoding in ("ascii", "utf-8"):
        raw = io.BytesIO()
        console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=120)
        console.print(view)
        console.file.flush()
        printed = raw.getvalue().decode()
        assert "own" in printed
        assert ("sent" in printed) == (encoding == "utf-8")


def test_perf_test_shows_it_on_a_terminal() -> None:
    console, view = terminal(), OwnProducerView()
    load: Any = SimpleNamespace(acknowledged=5, failed=0, spec=SimpleNamespace(num_records=10))
    plan: Any = SimpleNamespace(repeat=1, load=SimpleNamespace(client="kafkaclient", topic="t"))

    async def main() -> None:
        async with perf_report.progress_shown(console, load, plan, 1, view):
            await sending(view, one_topic())

    run_virtual(main())
    text = shown(console)
    assert "own" in text
    assert "in flight" in text
    assert "100 records/s" in text
    assert "5/10" in text  # the bar is below it


def test_an_experiment_shows_it_on_a_terminal() -> None:
    console = terminal()
    watcher = ConsoleWatcher(console)
    view = watcher.producer_view()
    assert view is not None

    async def main() -> None:
        async with watcher.working("publishing", 10, lambda: 5, view):
            await sending(view, one_topic())

    run_virtual(main())
    text = shown(console)
    assert "100 records/s" in text
    assert "publishing" in text
    assert "5/10" in text


def test_there_is_none_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Console(file=io.StringIO())
    assert ConsoleWatcher(pipe).producer_view() is None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert perf_report.producer_view(pipe, "kafkaclient") is None
    assert perf_report.producer_view(terminal(), "aiokafka") is None
    assert perf_report.producer_view(terminal(), "kafkaclient") is not None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert perf_report.producer_view(terminal(), "kafkaclient") is None
