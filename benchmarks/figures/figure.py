"""A figure: the command that measures it, its results, and its tables in a page.

A page has ``<!-- measured: NAME -->`` and ``<!-- end of measured -->`` around each table that is
written here. The results say when, at which commit and on which machine they were measured. What is
between the marks stays as it is until the results are there.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docsite.tables import table
from experiments.machine import machine_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

__all__ = ["DOCS", "RESULTS", "Digest", "Figure", "Found", "aligned", "rows_table", "written"]

_ROOT = Path(__file__).parent.parent.parent
RESULTS = _ROOT / "benchmarks/results"
DOCS = _ROOT / "docs"
_BLOCK = re.compile(r"<!-- measured: ([\w-]+) -->\n(.*?)<!-- end of measured -->\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """What one command measured, and where."""

    measured: str
    """The day, as 2026-11-29."""
    commit: str
    command: str
    load: float | None
    """The machine's load average (of the last minute) before it began; None: not noted."""
    machine: Mapping[str, Any] | None
    """None: not noted."""
    results: Any
    """What the command wrote, of its own form."""

    @classmethod
    def read(cls, path: Path) -> Found:
        return cls(**json.loads(path.read_text("utf-8")))


def _sentence(page: str, names: Sequence[str]) -> str:
    """What stands below the tables on a page: where the figures of these names are from."""
    folder = (DOCS / page).resolve().parent
    found = [Found.read(RESULTS / f"{name}.json") for name in names]
    days, commits = (
        ", ".join(dict.fromkeys(values))
        for values in ((f.measured for f in found), (f.commit for f in found))
    )
    links = [f"[results]({os.path.relpath(RESULTS, folder)}/{name}.json)" for name in names]
    loads = [f.load for f in found if f.load is not None]
    load = [f"load average before: {max(loads):.1f}"] if loads else []
    machine = "" if found[-1].machine is None else f": {machine_sentence(found[-1].machine)}"
    return f"Measured on {days} at commit {commits} ({', '.join([*links, *load])}){machine}."


@dataclass(frozen=True, slots=True)
class Figure:
    """``name`` is also the results' file, in benchmarks/results."""

    name: str
    page: str
    """Below docs."""
    minutes: int
    """How long the command takes on two cores, about."""
    command: Sequence[str]
    """A module and its options; ``OUT`` is the file for its results, ``FOLDER`` a folder."""
    blocks: Mapping[str, Callable[[Any], str]]
    """By the name in the page's mark: from the results to Markdown. None: a digest has them."""
    summary: str | None = None
    """With ``FOLDER``: the file in it that has the results."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """With ``FOLDER``: a file in it, and the file below docs that it replaces."""
    draw: Callable[[Path], None] | None = None
    """Draws these pictures from the files in ``FOLDER``; None: the command has drawn them."""

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"


@dataclass(frozen=True, slots=True)
class Digest:
    """A table of a page from the results of other figures, or of a campaign."""

    name: str
    """In the page's mark."""
    page: str
    of: Sequence[str]
    """Whose results ``render`` gets, in this order."""
    render: Callable[..., str]
    told: bool = False
    """Whether it says below the table where and when the figures were measured."""


def _results(name: str) -> Any:
    """Of a figure, or of a campaign, whose file has nothing else."""
    found = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found.get("results", found)


def _are_there(names: Iterable[str]) -> bool:
    return all((RESULTS / f"{name}.json").exists() for name in names)


def written(page: str, figures: Iterable[Figure], digests: Iterable[Digest] = ()) -> str:
    """The page's text with its blocks written from the results.

    Raises ValueError if the page has no mark for a block, or a mark that nothing writes.
    """
    blocks: dict[str, str | None] = {}
    for figure in figures:
        if not figure.results.exists():
            blocks |= dict.fromkeys(figure.blocks)
        elif figure.blocks:
            found = _results(figure.name)
            made = {name: render(found) for name, render in figure.blocks.items()}
            made[list(made)[-1]] += f"\n{_sentence(figure.page, [figure.name])}\n"
            blocks |= made
    for digest in digests:
        if not _are_there(digest.of):
            blocks[digest.name] = None
            continue
        text = digest.render(*map(_results, digest.of))
        told = f"\n{_sentence(digest.page, digest.of)}\n" if digest.told else ""
        blocks[digest.name] = text + told
    marked: list[str] = []

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name not in blocks:
            raise ValueError(f"nothing writes the block {name}")
        marked.append(name)
        if (text := blocks[name]) is None:
            return match[0]
        return f"<!-- measured: {name} -->\n\n{text}\n<!-- end of measured -->\n"

    text = _BLOCK.sub(block, page)
    if missing := blocks.keys() - set(marked):
        raise ValueError(f"the page has no mark for {', '.join(sorted(missing))}")
    return text


def aligned(head: Sequence[str], rows: Iterable[Sequence[object]], names: int = 1) -> str:
    """A Markdown table whose columns behind the first ``names`` are of numbers."""
    lines = table(head, rows).splitlines()
    rule = ["---"] * names + ["---:"] * (len(head) - names)
    return "\n".join([lines[0], f"| {' | '.join(rule)} |", *lines[2:]]) + "\n"


def rows_table(columns: Mapping[str, str | Callable[[Row], object]], names: int = 1) -> Any:
    """A function from rows to an :func:`aligned` table.

    ``columns`` has the heading of each, and a format of the row's fields (``"{p99_ms:.1f}"``) or a
    function of the row. A format with a field that is None makes an empty cell.
    """

    def cell(row: Row, column: str | Callable[[Row], object]) -> object:
        if callable(column):
            return column(row)
        try:
            return column.format_map(row)
        except TypeError:
            return ""

    def render(rows: Iterable[Row]) -> str:
        cells = [[cell(row, column) for column in columns.values()] for row in rows]
        return aligned(list(columns), cells, names)

    return render
