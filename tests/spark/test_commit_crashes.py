"""Exactly once after any crash: batches are committed in a model of Spark and Kafka."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafkaclient.errors import CheckpointMismatchError
from tests.spark.commit_model import Kafka, Query, run_query

DEATHS = [
    f"{what} {when}" for what in ("crash", "worker") for when in ("before", "during", "after")
]
WAITS = ["20", "100", "880", "2000"]
happenings = st.sampled_from([*DEATHS, *WAITS, "arrive", "expire 0", "expire 1", "expire 3"])
scripts = st.dictionaries(st.integers(1, 80), happenings, max_size=8)
splits = st.lists(st.integers(1, 4), min_size=1, max_size=30)
sizes = st.lists(st.sampled_from([(3, 3), (2, 4), (4, 2), (5, 5)]), min_size=1, max_size=10)
restored = st.dictionaries(st.integers(1, 12), st.integers(0, 2), max_size=2)


@settings(max_examples=200)
@given(script=scripts, splits=splits, sizes=sizes, readable=st.booleans())
def test_every_row_once_or_the_query_says_why_not(
    script: dict[int, str], splits: list[int], sizes: list[tuple[int, int]], readable: bool
) -> None:
    """With crashes, delays and time-outs at any step, and repeated batches with other tasks."""
    kafka = Kafka()
    kafka.script = script
    query = Query(kafka, readable)
    lasting = {what for what in script.values() if what.startswith("expire") or what in WAITS}
    failure = asyncio.run(run_query(query, 4, splits, sizes))
    assert all(times == 1 for times in kafka.visible().values()), "repeated"
    if failure is None:
        assert kafka.visible() == query.everything()
        assert kafka.written[-1].batch == 3
    else:
        assert lasting
        assert "their rows are missing" in str(failure)
    event(f"fails: {failure is not None}")


@settings(max_examples=100)
@given(
    write_s=st.integers(0, 200),
    end_s=st.integers(0, 40),
    ages=st.lists(st.integers(700, 899), max_size=4),
    splits=splits,
)
def test_a_driver_that_is_slow_commits_no_part_of_a_batch(
    write_s: int, end_s: int, ages: list[int], splits: list[int]
) -> None:
    """For any age of the transactions and any duration of writing the decision: a batch that is too
    late is repeated completely. Commits have 45 s."""
    kafka = Kafka()
    kafka.write_s, kafka.end_s = write_s, end_s
    query = Query(kafka, readable=True)
    assert asyncio.run(run_query(query, 3, splits, ages=ages)) is None
    assert kafka.visible() == query.everything()


@settings(max_examples=100)
@given(script=scripts, splits=splits, sizes=sizes, restored=restored, readable=st.booleans())
def test_a_restored_checkpoint_loses_and_repeats_nothing_silently(
    script: dict[int, str],
    splits: list[int],
    sizes: list[tuple[int, int]],
    restored: dict[int, int],
    readable: bool,
) -> None:
    """A batch that is planned again, with other rows, replaces the decided batch only if no decided
    transaction was committed. Otherwise the query fails."""
    kafka = Kafka()
    kafka.script = script
    query = Query(kafka, readable)
    failure = asyncio.run(run_query(query, 4, splits, sizes, restored))
    assert all(times == 1 for times in kafka.visible().values()), "repeated"
    if failure is None:
        assert kafka.visible() == query.everything()
    elif isinstance(failure, CheckpointMismatchError):
        assert restored
        assert "Restore the newest checkpoint" in str(failure)
    event(f"ends with: {type(failure).__name__}")


@pytest.mark.parametrize("when", DEATHS)
@pytest.mark.parametrize("step", range(1, 18))
async def test_one_crash_loses_and_repeats_nothing(when: str, step: int) -> None:
    kafka = Kafka()
    kafka.script = {step: when}
    query = Query(kafka, readable=False)
    assert await run_query(query, 2, [3, 2, 1]) is None
    assert kafka.visible() == query.everything()
    assert not kafka.open(), "something is left open"
