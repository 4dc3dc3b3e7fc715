"""docs/figures/aiokafka-tests.md, and how `make aiokafka-tests` compares with the page."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from integration.aiokafka_tests.page import (
    PAGE,
    RESULTS,
    Count,
    Row,
    counts,
    disagreements,
    missing,
    rows,
)
from integration.aiokafka_tests.run import FILES, judge, main, read_report, split, whole_modules

if TYPE_CHECKING:
    from pathlib import Path

TEXT = PAGE.read_text("utf-8")


def test_the_page_has_every_test_once_with_a_known_result() -> None:
    found = rows(TEXT)
    assert len(found) == len({(row.module, row.test) for row in found}) == 46
    assert {row.result for row in found} <= set(RESULTS)


def test_the_page_counts_its_own_rows() -> None:
    told = counts(TEXT)
    assert len(told) == 7
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
    assert read_report(report) == (
        {key("test_good"): True, key("test_bad"): False, key("test_broken"): False},
        [],
    )


UNCOLLECTED = """<testsuites><testsuite>
<testcase classname="" name="tests.test_producer"><error message="collection failure">Traceback
E   ModuleNotFoundError: No module named 'docker'</error></testcase></testsuite></testsuites>"""


def test_a_module_that_cannot_be_collected_is_reported() -> None:
    assert read_report(UNCOLLECTED) == (
        {},
        [
            "tests.test_producer could not be collected: "
            "E   ModuleNotFoundError: No module named 'docker'"
        ],
    )


@pytest.mark.parametrize(
    ("modules", "wrong"),
    [
        (["test_producer"], ["test_producer.py::test_private did not run"]),
        (["test_sasl"], ["test_sasl.py: 1 tests passed; the page says: 2"]),
        ([], []),
        (["test_admin"], []),
    ],
)
def test_what_did_not_run_is_reported(modules: list[str], wrong: list[str]) -> None:
    passed = {key("test_good"): True, ("test_sasl", "a"): True, ("test_sasl", "b"): False}
    totals = {"test_producer": Count(2, 2, 1, 0), "test_sasl": Count(3, 3, 2, 0)}
    assert missing(EXPECTED, totals, passed, modules, drop_in=True) == wrong


@pytest.mark.parametrize(
    ("arguments", "files", "options", "whole"),
    [
        ("", list(FILES), [], ["test_producer", "test_transactional_producer", "test_pep492"]),
        ("-k send", list(FILES), ["-k", "send"], []),
        (
            "-x",
            list(FILES),
            ["-x"],
            ["test_producer", "test_transactional_producer", "test_pep492"],
        ),
        ("test_sasl.py --maxfail 3", ["test_sasl.py"], ["--maxfail", "3"], ["test_sasl"]),
        ("test_sasl.py::T::test_a", ["test_sasl.py::T::test_a"], [], []),
    ],
)
def test_the_commands_arguments(
    arguments: str, files: list[str], options: list[str], whole: list[str]
) -> None:
    assert split(arguments.split()) == (files, options)
    assert whole_modules(files, options) == whole


@pytest.mark.parametrize(
    ("status", "whole", "said"),
    [
        (0, [], ""),
        (1, [], ""),
        (2, [], "pytest did not run all tests, its exit status is 2"),
        (0, ["test_pep492"], "test_pep492.py::test_exception_in_aiter did not run"),
    ],
)
def test_the_exit_status(
    status: int,
    whole: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PRODUCER", raising=False)
    report = tmp_path / "report.xml"
    case = '<testcase classname="tests.test_pep492.T" name="test_aiter"/>'
    report.write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
    assert judge(report, status, whole) == (1 if said else 0)
    assert said in capsys.readouterr().out
    report.write_text(UNCOLLECTED)
    assert judge(report, 2, []) == 1
    assert "No module named 'docker'" in capsys.readouterr().out


def test_without_a_repository_it_says_that_it_skips(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("", []) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "skipped" in line
    assert "AIOKAFKA" in line


def test_a_repository_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no commit 672947a"):
        main(str(tmp_path), [])
