from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from experiments.watcher import ConsoleWatcher
from kafkaclient.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def shown() -> Callable[[bool], str]:
    def show(terminal: bool) -> str:
        out = io.StringIO()
        watcher = ConsoleWatcher(Console(file=out, force_terminal=terminal, width=120))

        async def main() -> None:
            async with watcher.working("Warming [up]", 10, lambda: 10):
                watcher.say("in between")
            for number in (1, 2):
                async with watcher.running("java: adaptive [5 ms]", number, 90, 60.0):
                    await asyncio.sleep(1)

        run_virtual(main())
        return out.getvalue()

    return show


def test_without_a_terminal_there_is_a_line_for_each_run(shown: Callable[[bool], str]) -> None:
    text = shown(False)
    assert "Warming [up]" in text
    assert "in between" in text
    assert "1/90 java: adaptive [5 ms]" in text
    assert "2/90 java: adaptive [5 ms]" in text


def test_a_terminal_shows_what_runs_and_the_time_left(shown: Callable[[bool], str]) -> None:
    text = shown(True)
    assert "java: adaptive [5 ms]" in text
    assert "1/90" in text
    assert "1 h 30 min left" in text
