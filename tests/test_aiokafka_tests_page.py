"""docs/aiokafka-tests.md, and the comparison that `make aiokafka-tests` makes with the page."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from integration.aiokafka_tests.page import PAGE, RESULTS, Row, disagreements, rows
from integration.aiokafka_tests.run import main, read_report

if TYPE_CHECKING:
    from pathlib import Path

TEXT = PAGE.read_text("utf-8")


def test_the_page_has_every_test_once_with_a_known_result() -> None:
    found = rows(TEXT)
    assert len(found) == len({(row.module, row.test) for row in found}) == 46
    assert {row.result for row in found} <= set(RESULTS)


def test_the_page_counts_its_own_rows() -> None:
    told = {
        name: tuple(map(int, counts.split(" | ")))
        for name, counts in re.findall(
            r"\| `(test_\w+)\.py` \| (\d+ \| \d+ \| \d+ \| \d+) \|", TEXT
        )
    }
    assert len(told) >= 3
    found = rows(TEXT)
    for module, (tests, theirs, ours, facade) in told.items():
        results = Counter(row.result for row in found if row.module == module)
        if results:  # the other files have no table of their own
            assert (tests, facade) == (results.total(), results["passes with the facade"])
            assert theirs == tests
            assert ours == sum(count for result, count in results.items() if RESULTS[result])


def test_a_test_that_is_not_applicable_has_a_test_of_ours() -> None:
    for row in rows(TEXT):
        named = re.search(r"`(tests|integration)/[\w/]+\.py::test_\w+`", row.notes)
        assert (named is not None) == (row.result == "not applicable"), row


EXPECTED = [
    Row("test_producer", "test_good", "passes", ""),
    Row("test_producer", "test_private", "not applicable", "patches"),
]


def key(test: str) -> tuple[str, str]:
    return "test_producer", test


@pytest.mark.parametrize(
    ("passed", "drop_in", "wrong"),
    [
        ({key("test_good"): True, key("test_private"): False}, True, []),
        ({key("test_good"): True}, True, []),
        ({key("test_good"): False}, True, ["test_good failed; the page says: passes"]),
        (
            {key("test_private"): True},
            True,
            ["test_private passed; the page says: not applicable"],
        ),
        ({key("test_new"): False}, True, ["test_new failed, and the page has no row for it"]),
        ({key("test_new"): True}, True, []),
        ({key("test_private"): False}, False, ["test_private failed; the page says: passes"]),
        ({key("test_private"): True}, False, []),
    ],
)
def test_outcomes_are_compared_with_the_page(
    passed: dict[tuple[str, str], bool], drop_in: bool, wrong: list[str]
) -> None:
    found = disagreements(EXPECTED, passed, drop_in=drop_in)
    assert found == [f"test_producer.py::{line}" for line in wrong]


def test_a_report_is_read() -> None:
    case = '<testcase classname="tests.test_producer.TestIt" name="{}">{}</testcase>'
    cases = [
        case.format("test_good", ""),
        case.format("test_bad", "<failure/>"),
        case.format("test_broken", ""),
        case.format("test_broken", "<error/>"),  # a test may have a second entry, for its teardown
        case.format("test_left_out", "<skipped/>"),
    ]
    report = f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
    assert read_report(report) == {
        key("test_good"): True,
        key("test_bad"): False,
        key("test_broken"): False,
    }


def test_without_a_repository_it_says_that_it_skips(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("", []) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "skipped" in line
    assert "AIOKAFKA" in line


def test_a_repository_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no commit 672947a"):
        main(str(tmp_path), [])
