"""Pages whose files and commands a reader pastes into an empty directory, in their order.

A block with ``title="NAME"`` is a file. Of a console block, lines that begin with ``$`` are
commands, and the others their output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command and the lines that the page shows below it."""

    line: str
    output: tuple[str, ...]


class PastedPage:
    """``path`` is the page's path in docs."""

    def __init__(self, path: str) -> None:
        blocks = _BLOCK.findall((DOCS / path).read_text("utf-8"))
        self.files: dict[str, str] = {name: code for _, name, code in blocks if name}
        self.commands = [
            command for kind, _, text in blocks if kind == "console" for command in _commands(text)
        ]

    def write(self, directory: Path, replaced: Mapping[str, str] | None = None) -> None:
        """Write the files, with other texts in place of the keys of ``replaced``."""
        for name, code in self.files.items():
            (directory / name).write_text(replace_all(code, replaced or {}), "utf-8")


def replace_all(text: str, replaced: Mapping[str, str]) -> str:
    """The text with each key of ``replaced`` replaced by its value."""
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


def _commands(text: str) -> list[Command]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    lines = [part.rstrip("\n").split("\n") for part in parts]
    return [Command(first, tuple(output)) for first, *output in lines]
