"""What the commands of experiments share: what was measured is shown, whatever ends them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkaclient.cli.run import WIDE, run_command, stdout_console

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

__all__ = ["results_console", "run_experiment"]


class _Experiment(Protocol):
    async def run(self) -> object: ...


E = TypeVar("E", bound=_Experiment)


def run_experiment(begin: Callable[[], E], show: Callable[[E], None]) -> E:
    """Run the experiment that ``begin`` makes, then ``show`` it: also after Ctrl-C, and when
    brokers could not be ended; one that could not be made is not shown. Ends the process as
    :func:`run_command` does."""
    made: list[E] = []

    async def main() -> None:
        experiment = begin()
        made.append(experiment)
        await experiment.run()

    try:
        run_command(main())
    finally:
        if made:
            show(made[0])
    return made[0]


def results_console(summary: Path, *, as_json: bool) -> Console | None:
    """Where the tables go; None when ``summary`` has been printed instead, as ``--json`` asks."""
    if not as_json:
        return stdout_console(WIDE)
    sys.stdout.write(summary.read_text("utf-8"))
    return None
