"""The page of all modules, from the first sentences of their docstrings: ``python -m
docsite.file_map`` writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "project" / "file-map.md"
_HEAD = """# File map

Every module with its one job, as its docstring says. `make file-map` writes this page.

A module with a `.pxd` beside it is compiled: a new attribute or method needs a line
there (`make build`).
"""


def text() -> str:
    """The page's text."""
    package = _ROOT / "kafkaclient"
    folders: dict[Path, list[str]] = {}
    for module in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        if module.name != "__init__.py":
            row = f"| `{module.with_suffix(_suffix(module)).name}` | {_job(module)} |"
            folders.setdefault(module.parent, []).append(row)
    parts = [_HEAD]
    for folder, rows in sorted(folders.items()):
        parts.append(f"\n## `{folder.relative_to(_ROOT)}/`\n\n| module | job |\n|---|---|\n")
        parts += [f"{row}\n" for row in rows]
    return "".join(parts)


def _suffix(module: Path) -> str:
    """A stub stands for the compiled source beside it."""
    return ".pyx" if module.suffix == ".pyi" else ".py"


def _job(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    sentence = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.sub(
        r":(?:class|func|meth|mod|attr|data):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", sentence
    )
    return sentence.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
