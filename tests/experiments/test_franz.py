from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from experiments import franz
from experiments.franz import franz_command, franz_program, run_franz
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.perf.load import LoadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC = LoadSpec(num_records=100, rate=50.0, warmup_records=25)
LINES = """\
50 records sent, 50.000000 records/sec (0.02 MB/sec), 7.00 ms avg latency, 27.00 ms max latency.
100 records sent, 50.000000 records/sec (0.02 MB/sec), 8.00 ms avg latency, 27.10 ms max latency, \
7 ms 50th, 26 ms 95th, 27 ms 99th, 27 ms 99.9th.
75 steady state records sent, 50.000000 records/sec (0.02 MB/sec), 6.50 ms avg latency, \
9.10 ms max latency, 6 ms 50th, 8 ms 95th, 9 ms 99th, 9 ms 99.9th.
"""


@pytest.fixture(autouse=True)
def unbuilt() -> Iterator[None]:
    franz_program.cache_clear()
    yield
    franz_program.cache_clear()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in place of the program."""
    path = tmp_path / "load"
    monkeypatch.setattr(franz, "franz_program", lambda: path)
    return path


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def test_without_go_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(ConfigError, match=r"franz-go needs Go 1.26"):
        franz_program()


def test_what_go_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _script(tmp_path / "go", "echo no such module >&2; exit 1")
    monkeypatch.setattr(shutil, "which", lambda _name: str(tmp_path / "go"))
    with pytest.raises(ConfigError, match=r"cannot build .*: no such module"):
        franz_program()


def test_its_options_have_the_names_of_javas_tool(program: Path) -> None:
    config = {"bootstrap.servers": "a:1,b:2", "client.id": "c", "linger.ms": "5"}
    assert franz_command("t", config, "--num-records", "7") == [
        *(str(program), "--bootstrap-server", "a:1,b:2", "--topic", "t", "--num-records", "7"),
        *("--command-property", "client.id=c,linger.ms=5"),
    ]


async def test_its_output_is_read_as_that_of_javas_tool(program: Path) -> None:
    _script(program, f"cat <<'END'\n{LINES}END")
    outcome = await run_franz("a:1", "t", {"linger.ms": "5"}, SPEC, 512)
    assert (outcome.whole.records, outcome.whole.avg_ms) == (100, 8.0)
    assert outcome.steady_state is not None
    assert (outcome.steady_state.records, outcome.steady_state.p99_ms) == (75, 9.0)


async def test_a_failure_is_told(program: Path) -> None:
    _script(program, "echo no broker >&2; exit 1")
    with pytest.raises(KafkaError, match=r"franz-go's load ended with status 1.*no broker"):
        await run_franz("a:1", "t", {}, SPEC, 512)
