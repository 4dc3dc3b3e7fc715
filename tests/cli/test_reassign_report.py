"""How moves look on a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kafkaclient.admin import BrokerProgress, Lifted, PartitionProgress, Progress
from kafkaclient.admin.reassign.plan import Move
from kafkaclient.cli import reassign_report as report
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import OngoingReassignment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOVE = Move(frozenset({0}), frozenset({1}))


def progress(done: int, *, stuck: str | None = None, partitions: int = 2) -> Progress:
    parts = tuple(
        PartitionProgress(TopicPartition("t", n), MOVE, 5 * (n >= done), 50, 100, n < done, stuck)
        for n in range(partitions)
    )
    return Progress(parts, (BrokerProgress(1, 5, 50, 1234.0, 2000),), 62.0)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=60, highlight=False)
    monkeypatch.setattr(report, "stderr_console", lambda: console)
    return out


async def looks(*each: Progress) -> AsyncIterator[Progress]:
    for look in each:
        yield look


async def test_bars(screen: io.StringIO) -> None:
    last = await report.follow(looks(progress(0, stuck="broker 1 is down"), progress(2)))
    assert last is not None
    assert last.finished
    shown = screen.getvalue()
    for words in ("0 of 2 partitions", "1:02 left", "t-1", "50 B of 100 B", "broker 1 is down"):
        assert words in shown
    assert "1,234 B/s" in shown
    assert "2,000 B/s" in shown
    assert shown.rstrip().endswith("2 of 2 partitions, 100 B of 200 B, 1,234 B/s, lag 0 records")


async def test_more_partitions_than_a_screen_has_room_for(screen: io.StringIO) -> None:
    await report.follow(looks(progress(0, partitions=100)))
    assert "and 80 more partitions" in screen.getvalue()


async def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(report, "stderr_console", lambda: Console(file=out, width=200))
    stuck = progress(0, stuck="broker 1 is down")
    await report.follow(looks(stuck, stuck, stuck, progress(2)))
    lines = out.getvalue().splitlines()
    assert lines.count("t-0 is stuck: broker 1 is down") == 1
    assert [line[:17] for line in lines if "partitions" in line] == [
        "0 of 2 partitions",
        "2 of 2 partitions",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0:00"), (75, "1:15"), (30_000, "8 h 20 min")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert report.duration(seconds) == shown


@pytest.mark.parametrize(
    ("lifted", "told"),
    [
        (Lifted(needed_brokers=(3, 4)), "throttles of brokers 3,4 stay"),
        (Lifted(needed_topics=("t",)), "throttles of topics t stay"),
        (Lifted(needed_topics=("t",), needed_brokers=(3,)), "topics t and brokers 3 stay"),
        (Lifted(), ""),
    ],
)
def test_throttles_that_stay(capsys: pytest.CaptureFixture[str], lifted: Lifted, told: str) -> None:
    report.print_lifted(lifted)
    shown = capsys.readouterr().err
    assert told in shown
    assert bool(shown) == bool(told)


def test_moves_under_way_in_the_words_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    """testCurReassignmentsToString."""
    report.print_ongoing({})
    assert capsys.readouterr().out == "No partition reassignments found.\n"
    moves = [
        OngoingReassignment(TopicPartition("foo", 1), (1, 2, 3), (4, 5), (1, 2)),
        OngoingReassignment(TopicPartition("foo", 0), (0, 1, 2), (4,), ()),
        OngoingReassignment(TopicPartition("bar", 0), (2, 3, 0), (), (0,)),
    ]
    report.print_ongoing({move.partition: move for move in moves})
    assert capsys.readouterr().out.splitlines() == [
        "Current partition reassignments:",
        "bar-0: replicas: 2,3,0. removing: 0.",
        "foo-0: replicas: 0,1,2. adding: 4.",
        "foo-1: replicas: 1,2,3. adding: 4,5. removing: 1,2.",
    ]
