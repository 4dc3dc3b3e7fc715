"""The commands of docs/how-to/admin.md and command-line.md print what the pages show."""

from __future__ import annotations

import os
import re
import shlex
import socket
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from kafkaclient.admin import Admin
from kafkaclient.cli.app import app
from kafkaclient.testing.fake import FakeCluster
from tests.code_blocks import Block, runs

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[str], tuple[str, str]]

ROOT = Path(__file__).parents[2]
FLIGHTS = "topics create flights --partitions 6 --replication-factor 3 --config retention.ms=1"
# With these, the three brokers have 10, 9 and 8 replicas.
HOSTED = [
    "topics create wide --partitions 8 --replication-factor 3",
    "topics create base --replica-assignment 0,0,1",
    "limits set max.broker.partitions=12 max.partitions=20",
]
BEFORE = {
    "topics delete": ["topics create base --partitions 3"],
    "topics add-partitions": [FLIGHTS],
    "topics elect-leaders": [FLIGHTS],
    "topics describe": [FLIGHTS.replace("ms=1", "ms=86400000")],
    "configs alter": [
        FLIGHTS,
        "configs alter --broker-defaults --add-config min.insync.replicas=2",
    ],
    "topics create more": HOSTED,
    "limits check": [*HOSTED, "topics create more --partitions 2 --replication-factor 3"],
}
"""What is done before the command of a block."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a fake cluster, in a wide terminal. Returns what it prints, with its exit
    status as the pages show it."""
    fake = FakeCluster(3, racks=["a", "b", "c"])
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=fake, rng=Random(1)))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("KAFKACLIENT_BOOTSTRAP", fake.bootstrap)

    def invoke(line: str) -> tuple[str, str]:
        result = CliRunner().invoke(app, shlex.split(line.removeprefix("kafkaclient ")))
        return result.output, f"(exit {result.exit_code})" if result.exit_code else ""

    return invoke


def _comparable(text: str) -> list[str]:
    """The words. The placement of replicas is the brokers' choice, a cluster's id random."""
    text = re.sub(r"^│ +\d │ +\d │ \d,\d,\d( +)│ \d,\d,\d", "│ placed", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(│ +\d │) \S+ +│ (\w) +│ (?:yes|active|) +", r"\1 \2", text, flags=re.MULTILINE
    )
    text = re.sub(r"^cluster \S+$", "cluster", text, flags=re.MULTILINE)
    return re.sub(r"[─━┳╇┻┼┏┓┡┩└┘┴]+", " ", text).split()


@runs("docs/how-to/admin.md", "console")
def test_the_commands_about_a_cluster(block: Block, run: Run) -> None:
    for words, lines in BEFORE.items():
        if block.source.startswith(f"$ kafkaclient {words}"):
            for line in lines:
                assert run(line)[1] == ""
    for command in block.commands:
        assert _comparable(" ".join(run(command.line))) == _comparable("\n".join(command.output))


@runs("docs/how-to/command-line.md", "console", having="--version")
def test_the_version(block: Block, run: Run) -> None:
    (command,) = block.commands
    printed = run(command.line)[0].strip()
    assert re.sub(r"[\d.]+", "", printed) == re.sub(r"[\d.]+", "", "\n".join(command.output))


@runs("docs/how-to/command-line.md", "console", having="export")
def test_ways_to_name_the_cluster(
    block: Block, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topics create flights") == ("created topic flights\n", "")
    brokers = os.environ["KAFKACLIENT_BOOTSTRAP"]
    (home / "profiles.toml").write_text(f'[prod]\nbootstrap.servers = "{brokers}"\n')
    monkeypatch.delenv("KAFKACLIENT_BOOTSTRAP")
    for command in block.commands:
        words = command.line.replace("localhost:9092", brokers)
        if words.startswith("export "):
            monkeypatch.setenv(*words.removeprefix("export ").split("="))
        else:
            assert run(words) == ("flights\n", "")


@runs("docs/how-to/command-line.md", "toml", name="profiles")
@runs("docs/how-to/command-line.md", "console", having="kafkaclient profiles")
def test_the_profiles(
    profiles: Block, block: Block, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "profiles.toml").write_text(profiles.text())
    monkeypatch.chdir(home.parent)
    monkeypatch.setattr(typer, "get_app_dir", lambda _name: home.name)  # short, for the table
    (command,) = block.commands
    printed = run(command.line)[0].replace(f"{home.name}/", "/home/me/.config/kafkaclient/")
    assert _comparable(printed) == _comparable("\n".join(command.output))


@runs("docs/how-to/command-line.md", "console", having="(exit 1)")
def test_a_broker_that_is_not_there(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = block.commands
    monkeypatch.setenv("COLUMNS", "400")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"  # not listening
        words = command.line.replace("localhost:9093", address).split()[1:]
        result = CliRunner().invoke(app, words)
    shown = " ".join(command.output).replace("localhost:9093", address)
    assert result.exit_code == 1
    assert f"{result.output.strip()} (exit 1)" == shown.replace(" (127.0.0.1)", "")


def table() -> list[tuple[str, int]]:
    """The commands of the table in command-line.md, of all tools, with their numbers."""
    cell = r"`([^`]+)` \| (\d+) \|"
    lines = (ROOT / "docs/how-to/command-line.md").read_text().splitlines()
    return [
        (command.replace("\\|", "|"), int(number))
        for line in lines
        for command, number in re.findall(cell, line)
    ]


@pytest.mark.parametrize("command", [each for each, _ in table() if each.startswith("kafkac")])
def test_the_grammar_has_each_command_of_the_table(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("f", "p.json"):
        Path(name).touch()
    for line in command.split(" | "):
        _, *words = shlex.split(line)
        parsed: Any = typer.main.get_command(app)
        context = parsed.make_context("kafkaclient", words)
        while hasattr(parsed, "resolve_command"):
            rest = [*context._protected_args, *context.args]
            name, parsed, words = parsed.resolve_command(context, rest)
            context = parsed.make_context(name, words, parent=context)


def test_the_table_counts_keystrokes() -> None:
    assert [(each, len(each)) for each, _ in table()] == table()
