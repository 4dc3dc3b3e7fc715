"""The tables of docs/figures/aiokafka-tests.md: what is expected of each of aiokafka's tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["PAGE", "RESULTS", "Count", "Row", "counts", "disagreements", "missing", "rows"]

PAGE = Path(__file__).parents[2] / "docs" / "figures" / "aiokafka-tests.md"

RESULTS = {"passes": True, "passes with the facade": True, "not applicable": False}
"""The results that a row can have -> whether the test passes."""

_HEADING = re.compile(r"### `(?:tests/)?(test_\w+)\.py`")
_PASS = "Pass: "
_TEST = re.compile(r"`(test_\w+)`")
_ROW = re.compile(r"\| `(test_\w+)` \| ([a-z ]+) \|(.*)\|")
_COUNT = re.compile(r"\| `(test_\w+)\.py` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|")


class Row(NamedTuple):
    """One of aiokafka's tests."""

    module: str
    test: str
    result: str
    """A key of :data:`RESULTS`."""
    notes: str


class Count(NamedTuple):
    """One file of aiokafka's tests: how many tests it has, and how many of them pass."""

    tests: int
    theirs: int
    """With aiokafka's producer."""
    ours: int
    """With the drop-in."""
    facade: int
    """With the drop-in, and only with the facade."""


def rows(text: str) -> list[Row]:
    """The results in the page's text, in order: the lists of tests that pass, and the tables."""
    found, module = [], ""
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            module = heading[1]
        elif line.startswith(_PASS):
            found += [Row(module, test, "passes", "") for test in _TEST.findall(line)]
        elif row := _ROW.match(line):
            found.append(Row(module, row[1], row[2], row[3].strip()))
    return found


def counts(text: str) -> dict[str, Count]:
    """The files of the page's tables of counts."""
    return {row[0]: Count(*map(int, row[1:])) for row in _COUNT.findall(text)}


def disagreements(
    expected: list[Row], passed: dict[tuple[str, str], bool], *, drop_in: bool
) -> list[str]:
    """One line for each test whose outcome is not the outcome in the page.

    ``passed``: (module, test) -> whether the test passed, of the tests that ran. aiokafka's own
    producer (``drop_in`` False) must pass every test.
    """
    found = []
    by_test = {(row.module, row.test): row for row in expected}
    for (module, test), good in passed.items():
        row = by_test.get((module, test))
        if drop_in and row is None:
            if not good:
                found.append(f"{module}.py::{test} failed, and the page has no row for it")
            continue
        due = RESULTS[row.result] if drop_in and row is not None else True
        if good != due:
            said = row.result if drop_in and row is not None else "passes"
            found.append(
                f"{module}.py::{test} {'passed' if good else 'failed'}; the page says: {said}"
            )
    return found


def missing(
    expected: list[Row],
    totals: dict[str, Count],
    passed: dict[tuple[str, str], bool],
    modules: list[str],
    *,
    drop_in: bool,
) -> list[str]:
    """One line for each test of the page that did not run, of the ``modules`` that ran whole. For a
    module without rows the number of passed tests is compared."""
    found = [
        f"{row.module}.py::{row.test} did not run"
        for row in expected
        if row.module in modules and (row.module, row.test) not in passed
    ]
    for module in modules:
        if module in totals and all(row.module != module for row in expected):
            due = totals[module].ours if drop_in else totals[module].theirs
            good = sum(good for (of, _), good in passed.items() if of == module)
            if good != due:
                found.append(f"{module}.py: {good} tests passed; the page says: {due}")
    return found
