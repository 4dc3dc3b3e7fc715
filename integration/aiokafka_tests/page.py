"""The tables of docs/aiokafka-tests.md: what is expected of each of aiokafka's tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["PAGE", "RESULTS", "Row", "disagreements", "rows"]

PAGE = Path(__file__).parents[2] / "docs" / "aiokafka-tests.md"

RESULTS = {"passes": True, "passes with the facade": True, "not applicable": False}
"""The results that a row can have -> whether the test passes."""

_HEADING = re.compile(r"### `(?:tests/)?(test_\w+)\.py`")
_ROW = re.compile(r"\| `(test_\w+)` \| ([a-z ]+) \|(.*)\|")


class Row(NamedTuple):
    """One of aiokafka's tests."""

    module: str
    test: str
    result: str
    """A key of :data:`RESULTS`."""
    notes: str


def rows(text: str) -> list[Row]:
    """The rows of all tables of results in the page's text, in order."""
    found, module = [], ""
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            module = heading[1]
        elif row := _ROW.match(line):
            found.append(Row(module, row[1], row[2], row[3].strip()))
    return found


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
