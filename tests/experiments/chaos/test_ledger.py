from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.chaos.ledger import Ledger, Verdict
from experiments.chaos.outcomes import Outcome, OutcomeWriter, read_outcomes
from experiments.chaos.streams import Stream, stamp

if TYPE_CHECKING:
    from pathlib import Path

UNKEYED, KEYED, EXPLICIT = 0, 1, 2
STREAMS = [Stream(0, "unkeyed", 0), Stream(0, "keyed", 0), Stream(0, "explicit", 1)]
CLEAN = Verdict(
    sent=0,
    acked=0,
    failed=0,
    unresolved=0,
    lost=0,
    duplicated=0,
    reordered=0,
    misplaced=0,
    unexpected=0,
)


class Log:
    """A ledger over three streams of three records each, all acknowledged unless said otherwise."""

    def __init__(self, acked: tuple[int, ...] = (0, 1, 2), failed: tuple[int, ...] = ()) -> None:
        self.ledger = Ledger(STREAMS, [3, 3, 3])
        self.ledger.told(
            Outcome(stream, number, number in acked, 0.0, 0.1, -1, -1)
            for stream in range(3)
            for number in (*acked, *failed)
        )
        self.offset = 0

    def read(self, stream: int, *numbers: int, partition: int = 1, key: bytes | None = b"") -> Log:
        whose = STREAMS[stream]
        for number in numbers:
            value = stamp(0, stream, number, 0.0, 50)
            found = whose.key if key == b"" else key
            self.ledger.read(whose.kind, partition, self.offset, found, value)
            self.offset += 1
        return self

    def all_but(self, *streams: int) -> Log:
        for stream in {0, 1, 2} - set(streams):
            self.read(stream, 0, 1, 2)
        return self

    @property
    def verdict(self) -> Verdict:
        return self.ledger.verdict()


ALL = replace(CLEAN, sent=9, acked=9)


def test_everything_once_and_in_order_is_clean() -> None:
    verdict = Log().all_but().verdict
    assert verdict == ALL
    assert verdict.wrong == 0


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ((0, 2), {"lost": 1}),
        ((0, 1, 1, 2), {"duplicated": 1}),
        ((0, 1, 2, 0), {"duplicated": 1}),
        ((1, 0, 2), {"reordered": 1}),
        ((2, 0, 1), {"reordered": 2}),
        ((0, 1, 2, 3), {"unexpected": 1}),
        ((), {"lost": 3}),
    ],
)
@pytest.mark.parametrize("stream", [KEYED, EXPLICIT])
def test_what_is_wrong_in_a_stream_is_counted(
    stream: int, numbers: tuple[int, ...], wrong: dict[str, int]
) -> None:
    verdict = Log().all_but(stream).read(stream, *numbers).verdict
    assert verdict == replace(ALL, **wrong)
    assert verdict.wrong == sum(wrong.values())


def test_records_without_key_have_no_order() -> None:
    assert Log().all_but(UNKEYED).read(UNKEYED, 2, 1, 0).verdict == ALL


def test_what_failed_may_be_there_or_not_but_not_out_of_order() -> None:
    said = replace(ALL, acked=6, failed=3)
    assert Log((0, 2), failed=(1,)).all_but(KEYED).read(KEYED, 0, 2).verdict == said
    assert Log((0, 2), failed=(1,)).all_but(KEYED).read(KEYED, 0, 1, 2).verdict == said
    late = Log((0, 2), failed=(1,)).all_but(KEYED).read(KEYED, 0, 2, 1).verdict
    assert late == replace(said, reordered=1)


def test_what_has_no_outcome_is_unresolved() -> None:
    assert Log((0, 1)).all_but().verdict == replace(ALL, acked=6, unresolved=3)


def test_another_key_or_partition_or_text_is_unexpected() -> None:
    log = Log().all_but(KEYED, EXPLICIT)
    log.read(KEYED, 0, key=b"p9-k9").read(KEYED, 1, 2)
    log.read(EXPLICIT, 0, 1).read(EXPLICIT, 2, partition=0)
    log.ledger.read("keyed", 0, 0, None, b"not ours")
    assert log.verdict == replace(ALL, lost=2, unexpected=3)


def test_a_record_stands_where_its_acknowledgement_says() -> None:
    ledger = Ledger(STREAMS[:1], [3])
    told = [(0, 7), (1, 8), (2, -1)]  # the last: acknowledged without an offset
    ledger.told(Outcome(0, number, True, 0.0, 0.1, 1, offset) for number, offset in told)
    for number, offset in ((0, 7), (1, 9), (2, 10)):
        ledger.read("unkeyed", 1, offset, None, stamp(0, 0, number, 0.0, 50))
    assert ledger.verdict() == replace(CLEAN, sent=3, acked=3, misplaced=1)


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_losses_and_copies_are_counted_exactly(number: int, seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger(STREAMS[1:2], [number])
    acked = [rng.random() < 0.8 for _ in range(number)]
    ledger.told(Outcome(0, n, ok, 0.0, 0.1, -1, -1) for n, ok in enumerate(acked))
    lost = copies = 0
    for n in range(number):
        times = rng.choice((0, 1, 1, 2))
        lost += times == 0 and acked[n]
        copies += times == 2
        for _ in range(times):
            ledger.read("keyed", 0, 0, b"p0-k0", stamp(0, 0, n, 0.0, 50))
    verdict = ledger.verdict()
    assert (verdict.lost, verdict.duplicated, verdict.reordered) == (lost, copies, 0)


def test_outcomes_survive_their_file_but_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "outcomes"
    told = [Outcome(n % 7, n, n % 3 > 0, n / 2, n / 4, n % 5 - 1, n * 10**9) for n in range(40_000)]
    with OutcomeWriter(path) as writer:
        for outcome in told:
            writer.add(*outcome)
    assert list(read_outcomes(path)) == told
    path.write_bytes(path.read_bytes()[:-3])
    assert list(read_outcomes(path)) == told[:-1]
