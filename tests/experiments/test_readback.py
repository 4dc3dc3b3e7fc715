from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.readback import Ledger, ReadBack

SENT = [(b"a", b"0"), (b"b", b"1"), (b"a", b"2"), (b"b", b"3")]


def compared(log: list[tuple[int, bytes | None, bytes]], ordered_by: str = "key") -> ReadBack:
    ledger = Ledger(SENT, ordered_by, 2)  # type: ignore[arg-type]
    for partition, key, value in log:
        ledger.read(partition, key, value)
    return ledger.result(1.0)


def counts(found: ReadBack) -> tuple[int, int, int, int]:
    return (found.lost, found.duplicated, found.reordered, found.unexpected)


def test_everything_once_and_in_order_is_exact() -> None:
    found = compared([(0, b"a", b"0"), (1, b"b", b"1"), (1, b"b", b"3"), (0, b"a", b"2")])
    assert found.is_exact
    assert found.records == 4
    assert found.records_per_partition == (2, 2)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([(0, b"a", b"0"), (1, b"b", b"1"), (1, b"b", b"3")], (1, 0, 0, 0)),
        ([(0, b"a", b"0"), (0, b"a", b"0"), (0, b"a", b"2")], (2, 1, 0, 0)),
        ([(0, b"a", b"2"), (0, b"a", b"0"), (1, b"b", b"1"), (1, b"b", b"3")], (0, 0, 1, 0)),
        ([(0, b"a", b"0"), (0, b"a", b"2"), (0, b"a", b"0")], (2, 1, 0, 0)),
        ([(0, b"a", b"never sent")], (4, 0, 0, 1)),
        ([(0, b"b", b"0")], (4, 0, 0, 1)),
        ([], (4, 0, 0, 0)),
    ],
)
def test_what_is_wrong_is_counted(
    log: list[tuple[int, bytes | None, bytes]], expected: tuple[int, int, int, int]
) -> None:
    found = compared(log)
    assert counts(found) == expected
    assert not found.is_exact


def test_order_is_checked_per_key_or_per_partition() -> None:
    log: list[tuple[int, bytes | None, bytes]] = [
        (0, b"b", b"1"),
        (0, b"a", b"0"),
        (0, b"a", b"2"),
        (0, b"b", b"3"),
    ]
    assert compared(log, "key").reordered == 0
    assert compared(log, "partition").reordered == 1


def test_values_must_differ() -> None:
    with pytest.raises(ValueError, match="different"):
        Ledger([(None, b"x"), (None, b"x")], "partition", 1)


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_losses_and_copies_are_counted_exactly(number: int, seed: int) -> None:
    rng = random.Random(seed)
    sent = [(None, b"%d" % n) for n in range(number)]
    ledger = Ledger(sent, "partition", 1)
    lost = copies = 0
    for _key, value in sent:
        times = rng.choice((0, 1, 1, 2))
        lost += times == 0
        copies += times == 2
        for _ in range(times):
            ledger.read(0, None, value)
    assert counts(ledger.result(0.0)) == (lost, copies, 0, 0)
