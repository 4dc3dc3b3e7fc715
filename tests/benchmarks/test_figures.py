from __future__ import annotations

import pytest

from benchmarks.figures.figure import DOCS, Figure, aligned, written
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


def test_columns_of_numbers_are_aligned() -> None:
    assert (
        aligned(("who", "how many"), [("a", 1)])
        == "| who | how many |\n| --- | ---: |\n| a | 1 |\n"
    )
