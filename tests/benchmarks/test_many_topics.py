"""The measurement of many topics, with a small one: what it counts, not how long it takes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import many_topics


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TOPICS": 3, "BROKERS": 4, "RATE": 10_000, "LINGER_MS": 100}.items():
        monkeypatch.setattr(many_topics, name, value)
    monkeypatch.setattr(many_topics, "WARM_S", 0.2)
    monkeypatch.setattr(many_topics.gc, "freeze", lambda: None)


@pytest.mark.parametrize("topics", [1, 3])
def test_the_rate_holds(small: Any, topics: int) -> None:
    result = many_topics.measure_load(topics, 0.5)
    assert result.records == pytest.approx(5000, rel=0.2)
    assert 0 < result.batches < result.records
    assert result.cpu_s > 0


def test_every_other_record_of_a_topic_has_a_key() -> None:
    for topics in (["a"], ["a", "b"], ["a", "b", "c"]):
        records = many_topics._records(topics)
        found = [next(records) for _ in range(8 * len(topics))]
        for topic in topics:
            keys = [key is None for name, key in found if name == topic]
            assert sorted(keys) == [False] * 4 + [True] * 4


def test_leaders_move(small: Any) -> None:
    alone, moved = many_topics.measure_move()
    assert alone > 0
    assert moved > 0
