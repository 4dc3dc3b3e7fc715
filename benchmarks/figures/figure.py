"""A figure: the command that measures it, its results, and its tables in a page.

A page has ``<!-- measured: NAME -->`` and ``<!-- end of measured -->`` around each table that is
written here. The results say when, at which commit and on which machine they were measured.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docsite.tables import table
from experiments.machine import machine_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["DOCS", "RESULTS", "Digest", "Figure", "Found", "aligned", "written"]

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

    def sentence(self) -> str:
        """What stands below the tables."""
        load = "" if self.load is None else f" (load average before: {self.load:.1f})"
        machine = "" if self.machine is None else f": {machine_sentence(self.machine)}"
        return f"Measured on {self.measured} at commit {self.commit}{load}{machine}."


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
    """By the name in the page's mark: from the results to Markdown."""
    summary: str | None = None
    """With ``FOLDER``: the file in it that has the results."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """With ``FOLDER``: a file in it, and the file below docs that it replaces."""

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


def _results(name: str) -> Any:
    """Of a figure, or of a campaign, whose file has nothing else."""
    found = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found.get("results", found)


def written(page: str, figures: Iterable[Figure], digests: Iterable[Digest] = ()) -> str:
    """The page's text with each of its blocks written anew.

    Raises ValueError if the page has no mark of a block, or a mark that nobody writes.
    """
    blocks: dict[str, str] = {}
    for figure in figures:
        found = Found.read(figure.results)
        for name, render in figure.blocks.items():
            blocks[name] = render(found.results)
        blocks[list(figure.blocks)[-1]] += f"\n{found.sentence()}\n"
    for digest in digests:
        blocks[digest.name] = digest.render(*map(_results, digest.of))
    marked: list[str] = []

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name not in blocks:
            raise ValueError(f"nothing writes the block {name}")
        marked.append(name)
        return f"<!-- measured: {name} -->\n\n{blocks[name]}\n<!-- end of measured -->\n"

    text = _BLOCK.sub(block, page)
    if missing := blocks.keys() - set(marked):
        raise ValueError(f"the page has no mark for {', '.join(sorted(missing))}")
    return text


def aligned(head: Sequence[str], rows: Iterable[Sequence[object]], names: int = 1) -> str:
    """A Markdown table whose columns behind the first ``names`` are of numbers."""
    lines = table(head, rows).splitlines()
    rule = ["---"] * names + ["---:"] * (len(head) - names)
    return "\n".join([lines[0], f"| {' | '.join(rule)} |", *lines[2:]]) + "\n"
