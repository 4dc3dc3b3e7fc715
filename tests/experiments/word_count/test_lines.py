"""The input, and the plan of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from experiments.word_count.lines import lines
from experiments.word_count.plan import FAUST, KAFKA_STREAMS, OURS, QUIX, Plan
from kafkaclient.errors import ConfigError


def test_as_many_words_as_planned_in_lines_of_the_planned_length() -> None:
    found = list(lines(Plan(words=25_004, words_per_line=10)))
    assert sum(map(len, found)) == 25_004
    assert [len(line) for line in found] == [10] * 2500 + [4]


def test_the_seed_decides_and_some_words_are_frequent() -> None:
    found = list(lines(Plan(words=10_000)))
    assert found == list(lines(Plan(words=10_000))) != list(lines(Plan(words=10_000, seed=2)))
    counts = Counter(word for line in found for word in line)
    [(most, number), (_, second)] = counts.most_common(2)
    assert (most, number > 1.5 * second) == ("word0", True)


def test_clients_in_the_order_of_a_round() -> None:
    assert Plan().clients == (OURS,)
    python = Path(__file__)
    plan = Plan(peers=(QUIX, KAFKA_STREAMS), quix_python=python)
    assert plan.clients == (OURS, QUIX, KAFKA_STREAMS)
    assert str(python) not in str(plan.as_json())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"words": 0}, "--words must be more than 0"),
        ({"runs": 0}, "--runs must be more than 0"),
        (
            {"peers": (QUIX,), "quix_python": Path("/nowhere")},
            "--quix-python: there is no /nowhere, which quixstreams needs; `make peers`",
        ),
        ({"peers": (FAUST,), "faust_python": Path("/nowhere")}, "--faust-python: there is no"),
    ],
)
def test_plans_that_make_no_sense(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Plan(**options)  # type: ignore[arg-type]
