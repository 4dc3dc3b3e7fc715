"""Which rows are missing, repeated, out of order, or were never sent."""

from __future__ import annotations

from typing import NamedTuple

from experiments.spark_chaos.outcome import Outcome


class Record(NamedTuple):
    partition: int
    key: bytes
    value: bytes


def outcome(*numbers: int, sent: int, partition: int = 0) -> Outcome:
    found = Outcome()
    found.add([Record(partition, b"k", b"%d" % number) for number in numbers])
    found.end({b"k": sent})
    return found


def figures(found: Outcome) -> tuple[int, int, int, int]:
    return (found.missing, found.repeated, found.reordered, found.unexpected)


def test_every_row_once() -> None:
    found = outcome(0, 1, 2, sent=3)
    assert figures(found) == (0, 0, 0, 0)
    assert (found.rows, found.examples) == (3, [])


def test_a_task_that_ran_again() -> None:
    """Its rows are there twice, and each came first in its place."""
    assert figures(outcome(0, 1, 0, 1, 2, 3, sent=4)) == (0, 2, 0, 0)


def test_a_missing_row() -> None:
    found = outcome(0, 2, sent=4)
    assert figures(found) == (2, 0, 0, 0)
    assert found.examples == ["2 rows of b'k' are missing, from 1 on"]


def test_a_row_out_of_order() -> None:
    found = outcome(0, 2, 1, sent=3)
    assert figures(found) == (0, 0, 1, 0)
    assert found.examples == ["row 1 of b'k' is behind row 2"]


def test_a_row_that_was_not_sent() -> None:
    assert figures(outcome(0, 1, sent=1)) == (0, 0, 0, 1)


def test_order_is_that_of_a_partition() -> None:
    """The key has moved to another partition, which is read first."""
    found = Outcome()
    found.add([Record(1, b"k", b"2"), Record(1, b"k", b"3")])
    found.add([Record(0, b"k", b"0"), Record(0, b"k", b"1")])
    found.end({b"k": 4})
    assert figures(found) == (0, 0, 0, 0)
