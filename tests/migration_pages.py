"""The migration pages of docs, and other pages, taken apart: their snippets and their tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Snippet:
    """A python block. ``title`` is its section's heading, ``module`` the client that it uses."""

    title: str
    module: str
    code: str

    def text(self, bootstrap: str, topic: str) -> str:
        """The code for another cluster, topic, group and transactional id."""
        code = self.code.replace("localhost:9092", bootstrap)
        code = re.sub(r'"billing(-\w)?"', rf'"{topic}\1"', code)
        return code.replace('"flights"', f'"{topic}"')


@dataclass(frozen=True)
class Page:
    """``name`` is the page's file without ``migrate-from-`` and ``.md``."""

    name: str
    module: str

    @property
    def files(self) -> tuple[str, ...]:
        """Code beside code, and the tables of names."""
        return f"how-to/migrate-from-{self.name}.md", f"reference/from-{self.name}.md"

    @cached_property
    def text(self) -> str:
        return "".join((_DOCS / file).read_text("utf-8") for file in self.files)

    @cached_property
    def all_snippets(self) -> list[str]:
        """Also those before the first heading."""
        return _BLOCK.findall(self.text)

    @cached_property
    def sections(self) -> dict[str, str]:
        """Text by heading, without the part before the first heading."""
        parts = re.split(r"^##+ (.+)\n", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    @cached_property
    def snippets(self) -> list[Snippet]:
        return [
            Snippet(title, "kafkaclient" if _uses("kafkaclient", code) else self.module, code)
            for title, text in self.sections.items()
            for code in _BLOCK.findall(text)
        ]

    @cached_property
    def pairs(self) -> list[tuple[Snippet, Snippet]]:
        """The other client's code, and the same with kafkaclient below it."""
        following = zip(self.snippets, self.snippets[1:], strict=False)
        return [(a, b) for a, b in following if a.module != "kafkaclient"]

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


class PlainPage(Page):
    """A page that is no migration page: ``name`` is its path in docs without ``.md``."""

    @property
    def files(self) -> tuple[str, ...]:
        return (f"{self.name}.md",)


def _uses(module: str, code: str) -> bool:
    return re.search(rf"^from {module}\b", code, re.MULTILINE) is not None


def names(cell: str) -> list[str]:
    """What a cell has between backticks."""
    return _CODE.findall(cell)


PAGES = (
    Page("aiokafka", "aiokafka"),
    Page("confluent-kafka", "confluent_kafka"),
    Page("kafka-python", "kafka"),
)
