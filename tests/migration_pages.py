"""The tables of the migration pages of docs, and of other pages; and which code is beside which."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tests.code_blocks import ROOT, select

if TYPE_CHECKING:
    from tests.code_blocks import Block

_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Page:
    """``path`` is the page's path in docs without ``.md``."""

    path: str
    module: str

    @cached_property
    def text(self) -> str:
        return (ROOT / "docs" / f"{self.path}.md").read_text("utf-8")

    @cached_property
    def sections(self) -> dict[str, str]:
        """Text by heading, without the part before the first heading."""
        parts = re.split(r"^##+ (.+)\n", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def unchanged(self, title: str) -> list[str]:
        """The names that a section lists as unchanged, beside its table."""
        found = re.search(r"^Unchanged\b.*?\.$", self.sections[title], re.MULTILINE | re.DOTALL)
        return names(found[0]) if found else []

    def tables(self, title: str) -> list[list[list[str]]]:
        """The tables of a section: rows of cells, without heads."""
        found: list[list[list[str]]] = []
        rows: list[list[str]] = []
        for line in [*self.sections[title].splitlines(), ""]:
            if line.startswith("| "):
                rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
            elif rows and not line.startswith("|--"):
                found.append(rows[1:])
                rows = []
        return found


def names(cell: str) -> list[str]:
    """What a cell has between backticks."""
    return _CODE.findall(cell)


def counterpart(block: Block) -> Block:
    """The block that follows on the page: the same with kafkaclient."""
    blocks = select(block.page, "python")
    return blocks[blocks.index(block) + 1]


PAGES = (
    Page("reference/from-aiokafka", "aiokafka"),
    Page("reference/from-confluent-kafka", "confluent_kafka"),
    Page("reference/from-kafka-python", "kafka"),
)
