"""Measure the figures of the documentation, and write its tables and pictures.

Each table is of one run of one command. What this commit has measured already is not measured
again, so that Ctrl-C and another call go on where it ended; ``--again`` measures all. Nothing else
should run on the machine: the load average before each measurement is kept with its results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.figures.campaigns import CAMPAIGNS
from benchmarks.figures.figure import DOCS, RESULTS, Found, written
from benchmarks.figures.tables import DIGESTS, FIGURES, late_ms
from experiments.machine import machine_facts
from experiments.slow_broker.pictures import draw_at_a_glance
from kafkaclient.testing.jvm import find_java
from kafkaclient.testing.settings import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.figures.figure import Figure


_AT_A_GLANCE = ("slow-broker", "stalled-broker")


def _commit() -> str:
    """The last commit that changed the package: what is measured."""
    log = ("git", "log", "-1", "--format=%h", "--", "kafkaclient")
    return subprocess.run(log, check=True, capture_output=True, text=True).stdout.strip()


def measure(figure: Figure, commit: str) -> None:
    """Run the figure's command, and keep its results. Raises CalledProcessError."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = folder / (figure.summary or "results.json")
        command = [part.replace("OUT", str(out)).replace("FOLDER", name) for part in figure.command]
        subprocess.run([sys.executable, "-m", *command], check=True)
        found = Found(
            measured=f"{datetime.now(UTC):%Y-%m-%d}",
            commit=commit,
            command=f"python -m {' '.join(figure.command)}",
            load=load,
            machine=machine_facts(kafka=DEFAULT_VERSION, java=find_java().banner.splitlines()[0]),
            results=json.loads(out.read_text("utf-8")),
        )
        if figure.draw:
            figure.draw(folder)
        for picture, page in figure.pictures.items():
            shutil.copy(folder / picture, DOCS / page)
    figure.results.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


def write_pages(figures: Sequence[Figure]) -> list[Path]:
    """Write the tables of all pages that these figures are on, and those of campaigns. Returns the
    pages."""
    names = {figure.name for figure in figures}
    changed = (each for each in DIGESTS if each in CAMPAIGNS or names.intersection(each.of))
    pages = dict.fromkeys(part.page for part in (*figures, *changed))
    for page in pages:
        path = (DOCS / page).resolve()
        on_page = [figure for figure in FIGURES if figure.page == page]
        digests = [digest for digest in DIGESTS if digest.page == page]
        path.write_text(written(path.read_text("utf-8"), on_page, digests), encoding="utf-8")
    if names.intersection(_AT_A_GLANCE):
        slow, stalled = (Found.read(RESULTS / f"{name}.json").results for name in _AT_A_GLANCE)
        rate = slow["plan"]["rates"][0]
        draw_at_a_glance(DOCS / "pictures/one-slow-broker.svg", rate, late_ms(slow), stalled)
    return [(DOCS / page).resolve() for page in pages]


def _show(figures: Sequence[Figure]) -> None:
    table = Table("figure", "minutes", "measured", "commit", "page", box=None)
    for figure in figures:
        found = Found.read(figure.results) if figure.results.exists() else None
        measured = (found.measured, found.commit) if found else ("never", "")
        table.add_row(figure.name, str(figure.minutes), *measured, f"docs/{figure.page}")
    Console().print(table)


def main() -> None:
    """The exit status is 1 if a command failed; what was measured before it is kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    names = [figure.name for figure in FIGURES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (all)")
    parser.add_argument("--again", action="store_true", help="measure what is measured, too")
    parser.add_argument("--list", action="store_true", help="say what was measured, and when")
    parser.add_argument("--write", action="store_true", help="measure nothing, write the pages")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names):
        parser.error(f"no figure is called {', '.join(sorted(unknown))}")
    chosen = [figure for figure in FIGURES if not given.names or figure.name in given.names]
    if given.list:
        _show(chosen)
        return
    commit = _commit()
    for figure in () if given.write else chosen:
        known = figure.results.exists() and Found.read(figure.results).commit == commit
        if known and not given.again:
            continue
        sys.stderr.write(f"{figure.name}: about {figure.minutes} minutes\n")
        began = time.monotonic()
        try:
            measure(figure, commit)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{figure.name} failed: {error}; the pages are as they were")
        write_pages([figure])
        sys.stderr.write(f"{figure.name}: {(time.monotonic() - began) / 60:.0f} minutes\n")
    for page in write_pages(chosen):
        print(page)


if __name__ == "__main__":
    main()
