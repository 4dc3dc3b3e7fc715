"""``python -m experiments dashboard``: pictures of the Grafana dashboard and of ``top``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.dashboard.pictures import draw_dashboard
from kafkaclient.cli.output import run_blocking, stdout_console
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dashboard"]


def dashboard(
    folder: Annotated[Path, typer.Argument(help="Where the SVG files go.")] = Path("docs/pictures"),
) -> None:
    """Draw the Grafana dashboard and `kafkaclient top` for the documentation, as SVG files.

    A producer runs for ten minutes of virtual time on three brokers in memory, one of them slow for
    a while, one stopped for a while. Needs matplotlib, which the development tools have.
    """

    def draw() -> Sequence[Path]:
        try:
            return draw_dashboard(folder)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error.name} is not installed; the development tools have it"
            ) from error

    for path in run_blocking(draw):
        stdout_console().print(str(path), soft_wrap=True)
