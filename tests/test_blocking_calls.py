"""The watch over all tests for calls of ours that block their event loop."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

import kafkaclient

PACKAGE = Path(kafkaclient.__file__).parent
PRODUCT = PACKAGE / "producer" / "not_there.py"
TOOL = PACKAGE / "testing" / "not_there.py"


def run(code: str, where: Path = PRODUCT) -> None:
    exec(compile(code, str(where), "exec"), {"socket": socket})  # noqa: S102


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("open('/dev/null').close()", "open"),
        ("socket.getaddrinfo('localhost', 1)", "socket.getaddrinfo"),
        pytest.param(
            *("import time; time.sleep(0)", "time.sleep"),
            marks=pytest.mark.skipif(sys.version_info < (3, 13), reason="Python does not tell"),
        ),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("with socket.socket() as s: s.connect_ex(('127.0.0.1', 1))", "socket.connect"),
    ],
)
async def test_they_are_caught(blocking_calls: list[str], code: str, event: str) -> None:
    run(code)
    assert blocking_calls[0].startswith(f"{event}(")
    assert "not_there.py" in blocking_calls[0]
    blocking_calls.clear()


async def test_elsewhere_they_may_be_made(blocking_calls: list[str]) -> None:
    await asyncio.to_thread(run, "open('/dev/null').close()")
    run("open('/dev/null').close()", TOOL)
    run("open('/dev/null').close()", Path(__file__))
    run("with socket.socket() as s: s.setblocking(False); s.connect_ex(('127.0.0.1', 1))")
    run("socket.getaddrinfo('127.0.0.1', 1)")
    assert blocking_calls == []


def test_without_an_event_loop_they_may_be_made(blocking_calls: list[str]) -> None:
    run("open('/dev/null').close()")
    assert blocking_calls == []
