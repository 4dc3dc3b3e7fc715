from __future__ import annotations

import pytest

from benchmarks.figures.figure import DOCS, Digest, Figure, aligned, rows_table, written
from benchmarks.figures.tables import DIGESTS, FIGURES

PAGES = sorted({part.page for part in (*FIGURES, *DIGESTS)})


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_the_results(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    on_page = [figure for figure in FIGURES if figure.page == page]
    digests = [digest for digest in DIGESTS if digest.page == page]
    assert written(text, on_page, digests) == text, "make figures writes it"


def test_each_block_has_its_mark_and_each_mark_its_block() -> None:
    figure = FIGURES[1]
    other = Figure("consume", "", 1, (), {"other": lambda _found: ""})
    marks = "<!-- measured: other -->\nold\n<!-- end of measured -->\n"
    with pytest.raises(ValueError, match="nothing writes the block other"):
        written(marks, [figure])
    with pytest.raises(ValueError, match="the page has no mark for consume"):
        written("", [figure])
    text = written(f"before\n{marks}after\n", [other])
    assert text.startswith("before\n<!-- measured: other -->\n\n\nMeasured on 20")
    assert text.endswith("<!-- end of measured -->\nafter\n")
    assert "old" not in text


def test_a_block_without_results_stays_as_it_is() -> None:
    figure = Figure("never-measured", "", 1, (), {"other": lambda _found: ""})
    digest = Digest("digest", "", ("never-measured",), lambda _found: "")
    text = "".join(
        f"<!-- measured: {name} -->\nold\n<!-- end of measured -->\n"
        for name in ("other", "digest")
    )
    assert written(text, [figure], [digest]) == text
    with pytest.raises(ValueError, match="the page has no mark for digest, other"):
        written("", [figure], [digest])


def test_a_digest_tells_when_all_its_results_were_measured() -> None:
    marks = "<!-- measured: digest -->\n<!-- end of measured -->\n"
    of = ("sync", "serializers")
    digest = Digest("digest", "figures/sync.md", of, lambda *_: "table\n", told=True)
    text = written(marks, [], [digest])
    assert "\n\ntable\n\nMeasured on 20" in text
    links = (f"[results](../../benchmarks/results/{name}.json)" for name in of)
    assert f"({', '.join(links)}, load average before: " in text


def test_columns_of_numbers_are_aligned() -> None:
    assert (
        aligned(("who", "how many"), [("a", 1)])
        == "| who | how many |\n| --- | ---: |\n| a | 1 |\n"
    )


def test_a_table_of_rows_has_a_cell_for_each_format_or_function() -> None:
    table = rows_table(
        {
            "who": "{who}",
            "ms": "{ms:.1f}",
            "p99": "{late[p99]:.0f}",
            "MB": lambda row: row["b"] / 1e6,
        }
    )
    rows = [
        {"who": "a", "ms": 1.25, "late": {"p99": 9}, "b": 2_000_000},
        {"who": "b", "ms": None, "late": None, "b": 0},
    ]
    assert table(rows).splitlines()[2:] == ["| a | 1.2 | 9 | 2.0 |", "| b |  |  | 0.0 |"]
