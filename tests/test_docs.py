"""What the documentation names must exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import kafkaclient
from docsite import file_map, keywords
from docsite.pages import WRITTEN

_ROOT = Path(__file__).parent.parent
_PACKAGE = Path(kafkaclient.__file__).parent  # of this tree, or of an installed wheel
_NAMED = re.compile(r"`([a-z_0-9/]+)\.py:([A-Za-z_][\w.]*)`")
_PATHS = re.compile(
    r"`((?:kafkaclient|experiments|tests|integration|examples|docs|benchmarks)/[\w./-]+)`"
)

_WRITTEN = {_ROOT / "docs" / path for path in WRITTEN}

_TESTS = re.compile(r"`((?:tests|integration)/[\w/]+\.py)::(test_\w+)`")


def _pages() -> list[Path]:
    return [*sorted(_ROOT.glob("*.md")), *sorted((_ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", _pages(), ids=lambda p: p.name)
def test_every_symbol_named_exists(page: Path) -> None:
    for module, symbol in _NAMED.findall(page.read_text()):
        found = importlib.import_module("kafkaclient." + module.replace("/", "."))
        for part in symbol.split("."):
            assert hasattr(found, part), f"{page.name} names {module}.py:{symbol}"
            found = getattr(found, part)


@pytest.mark.parametrize("page", _pages(), ids=lambda p: p.name)
def test_every_path_named_exists(page: Path) -> None:
    text = page.read_text()
    for path in _PATHS.findall(text):
        assert (_ROOT / path).exists(), f"{page.name} names {path}"
    for link in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text):
        target = page.parent / link
        assert target.exists() or target.resolve() in _WRITTEN, f"{page.name} links to {link}"


def test_the_types_of_keywords_are_current() -> None:
    pytest.importorskip("ruff", reason="it formats the module")
    assert keywords.MODULE.read_text("utf-8") == keywords.text(), "make keywords writes it"


def test_the_file_map_is_current() -> None:
    assert file_map.PAGE.read_text("utf-8") == file_map.text(), "make file-map writes it"


def test_errors_of_the_spark_source_are_quoted_exactly() -> None:
    page = (_ROOT / "docs" / "reference" / "spark.md").read_text()
    table = page.partition("\n## What do the errors mean?\n")[2]
    quoted = re.findall(r"^\| `([^`]* [^`]*)` \|", table, re.MULTILINE)
    assert len(quoted) >= 8
    said = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        for module in (_PACKAGE / "spark").glob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if (parts := node.values if isinstance(node, ast.JoinedStr) else [node])
    ]
    for quote in quoted:
        template = re.sub(r"flights(-\d+)?|\d+|startingOffsets", "{}", quote)
        assert any(text.startswith(template) for text in said), quote


def test_every_test_named_exists() -> None:
    named = [name for page in _pages() for name in _TESTS.findall(page.read_text())]
    assert len(named) > 100
    for path, test in named:
        assert f"def {test}(" in (_ROOT / path).read_text(), f"{path} has no {test}"
