"""What commands print if a cluster has names that look like markup, and if standard output cannot
encode them."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from rich.text import Text

import kafkaclient.cli
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.cli import output
from kafkaclient.cli.output import print_message, print_table, shown_meanwhile, stderr_console
from kafkaclient.reader import Reader
from kafkaclient.testing.fake import FakeCluster
from tests.cli.test_connection import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str]]

RACK = "[/b]é"
ON_BROKERS = {name: words for name, words in COMMANDS.items() if name != "perf-test"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the entry point on a new fake cluster; its exit status, and what it writes to a standard
    output of this encoding."""
    plan = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": 0, "replicas": [0]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))

    def invoke(encoding: str, *words: str) -> tuple[int, str]:
        fake = FakeCluster(2, racks=[RACK, "[red]:smile:"])
        fake.create_topic("t", assignments=[(0,)])
        clients: list[tuple[Any, str, Any]] = [
            (kafkaclient.admin, "Admin", Admin),
            (kafkaclient, "Producer", Producer),
            (kafkaclient.reader, "Reader", Reader),
        ]
        for module, name, client in clients:
            monkeypatch.setattr(module, name, partial(client, dialer=fake, rng=Random(1)))
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stdout)
        given = (str(plan) if word == "PLAN" else word for word in words)
        monkeypatch.setattr(sys, "argv", ["kafkaclient", *given, "-b", fake.bootstrap])
        with pytest.raises(SystemExit) as ended:
            kafkaclient.cli.main()
        stdout.flush()
        return int(ended.value.code or 0), stdout.buffer.getvalue().decode()  # type: ignore[attr-defined]

    return invoke


@pytest.mark.full
@pytest.mark.parametrize("name", ON_BROKERS)
def test_an_encoding_of_stdout_changes_no_exit_status(name: str, run: Run) -> None:
    words = [*name.split(), *ON_BROKERS[name]]
    if name == "streams describe":
        words += ["--wait", "0"]
    status, shown = run("utf-8", *words)
    assert run("ascii", *words)[0] == status
    assert "\ufffd" not in shown


def test_names_are_printed_as_they_are(run: Run) -> None:
    for words in (("cluster", "describe"), ("limits", "check")):
        shown = run("utf-8", *words)[1]
        assert RACK in shown
        assert "[red]:smile:" in shown
        assert r"[/b]\xe9" in run("ascii", *words)[1]


def test_limits_are_checked_where_bars_cannot_be_encoded(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "limits"
    file.write_text("max.partitions=0\n")
    status, shown = run("ascii", "limits", "check", "--limits-file", str(file))
    assert status == 3
    assert "#" * 24 in shown
    assert "\\u" not in shown


def test_cells_headings_and_messages_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    address = "PLAINTEXT://[fe80::1]:9092"
    print_table(("[b]", address), [("[/b]", address), (Text(":x:", "red"), 1)], title="[/red]")
    print_message("error", "[/b]")
    stderr_console().print("[/b] :smile:")
    shown, said = capsys.readouterr()
    assert shown.count(address) == 2
    assert all(word in shown for word in ("[b]", "[/b]", ":x:", "[/red]"))
    assert said == "error: [/b]\n[/b] :smile:\n"


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_progress_is_shown_on_terminals_as_it_is(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_terminal)
    monkeypatch.setattr(output, "stderr_console", lambda: console)
    monkeypatch.setattr(output, "_SHOWN_AFTER_S", 0.0)
    said = "connecting to [::1]:9092 [/b]"
    with shown_meanwhile(lambda: said):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        said = "5 records [/b]"  # at the latest the end draws it
    assert (said in screen.getvalue()) == is_terminal
