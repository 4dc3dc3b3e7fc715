"""Progress of a download."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kafkaclient.testing import progress
from kafkaclient.testing.progress import show_progress

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(progress.sys, "stderr", stream)
    with show_progress("Fetching", 4_000_000) as advance:
        for _ in range(40):
            advance(100_000)
    assert stream.getvalue().splitlines() == [
        "Fetching, 4 MB",
        "Fetching, 25 %",
        "Fetching, 50 %",
        "Fetching, 75 %",
        "Fetching, 100 %",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", stream)
    with show_progress("Fetching", 1000) as advance:
        advance(1000)
    assert "Fetching" in stream.getvalue()
    assert "1.0/1.0 kB" in stream.getvalue()


def test_plain_lines_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", stream)
    monkeypatch.setitem(progress.sys.modules, "rich.progress", None)
    with show_progress("Fetching", 1_000_000):
        pass
    assert stream.getvalue() == "Fetching, 1 MB\n"
