"""Lags (``ClientState.computeTaskLags``), and task ids."""

from __future__ import annotations

import pytest

from kafkaclient.streams import TaskId
from kafkaclient.streams.clients import is_caught_up, task_lags
from kafkaclient.streams.tasks import LATEST_OFFSET, MAX_LAG, UNKNOWN_OFFSET_SUM

TASK = TaskId(0, 0)


@pytest.mark.parametrize(
    ("offsets", "lag"),
    [(-2, -2), (-3, -3), (0, 100), (40, 60), (100, 0), (150, 100)],
)
def test_a_lag_is_the_distance_to_the_end(offsets: int, lag: int) -> None:
    assert task_lags({TASK: 100}, {TASK: offsets}) == {TASK: lag}


def test_a_missing_copy_lacks_all_records_and_unknown_tasks_are_ignored() -> None:
    assert task_lags({TASK: 100}, {TaskId(7, 7): 5}) == {TASK: 100}


@pytest.mark.parametrize(
    ("lag", "acceptable", "expected"),
    [
        (0, 0, True),
        (1, 0, False),
        (100, 100, True),
        (101, 100, False),
        (LATEST_OFFSET, 0, True),
        (UNKNOWN_OFFSET_SUM, 10**6, False),
        (UNKNOWN_OFFSET_SUM, MAX_LAG, True),
        (MAX_LAG, MAX_LAG, True),
    ],
)
def test_which_lags_are_caught_up(lag: int, acceptable: int, *, expected: bool) -> None:
    assert is_caught_up(lag, acceptable) is expected


@pytest.mark.parametrize("text", ["0_1", "12_345", "orders__0_1", "a_b__0_1"])
def test_task_ids_are_formatted_as_they_are_parsed(text: str) -> None:
    assert str(TaskId.parse(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0_", "_1", "0_1_2", "a_1", "-1_0", "0_1 ", "\u0661_0"])
def test_invalid_task_ids(text: str) -> None:
    with pytest.raises(ValueError, match="is no task"):
        TaskId.parse(text)


def test_tasks_sort_by_number() -> None:
    assert sorted(map(TaskId.parse, ["1_0", "0_10", "0_9"])) == [
        (0, 9, ""),
        (0, 10, ""),
        (1, 0, ""),
    ]
