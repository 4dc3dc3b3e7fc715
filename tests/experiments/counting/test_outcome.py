"""What is made of the records that came out."""

from __future__ import annotations

from experiments.counting.outcome import Counted, Gap, Outcome, Window
from kafkaclient.wire.murmur2 import partition_for_key

# A key for each of two tasks.
A, B = (next(b"%d" % n for n in range(99) if partition_for_key(b"%d" % n, 2) == p) for p in (0, 1))
START, JOIN = Window("start", 100.0, 110.0), Window("join-2", 110.0, 120.0)


def outcome(*records: tuple[bytes, int, float], sent: dict[bytes, int]) -> Outcome:
    made = Outcome(2, [START, JOIN])
    made.add(Counted(*record) for record in records)
    made.end(sent)
    return made


def test_gaps_of_each_task_in_each_step() -> None:
    found = outcome((A, 1, 101.0), (A, 2, 108.0), (A, 3, 112.0), (B, 1, 104.0), sent={A: 3, B: 1})
    assert found.gaps(START) == [7.0, 6.0]
    assert found.gaps(JOIN) == [8.0, 10.0]
    assert not any(found.wrong.values())


def test_a_task_that_goes_on_over_the_border() -> None:
    found = outcome((A, 1, 109.9), (A, 2, 110.1), sent={A: 2})
    assert abs(found.gaps(START)[0] - 9.9) < 1e-6
    assert abs(found.gaps(JOIN)[0] - 9.9) < 1e-6


def test_what_is_counted_twice_or_left_out_is_held_against_its_step() -> None:
    twice = outcome((A, 1, 101.0), (A, 1, 102.0), (A, 2, 111.0), sent={A: 2})
    assert dict(twice.wrong) == {"start": 1}
    assert twice.examples == [f"start: task 0_0: {A!r}: 1 after 1 at 102.000"]
    left_out = outcome((A, 1, 101.0), (A, 3, 111.0), sent={A: 3})
    assert left_out.wrong["join-2"] == 1


def test_at_least_once_a_count_may_be_repeated_or_ahead_but_not_left_out() -> None:
    def wrong(*numbers: int, sent: int) -> int:
        made = Outcome(2, [START], may_repeat=True)
        made.add(Counted(A, number, 101.0) for number in numbers)
        made.end({A: sent})
        return made.wrong["start"]

    assert not wrong(1, 2, 1, 2, 3, sent=3)
    assert not wrong(1, 2, 3, sent=2)
    assert wrong(1, 3, sent=3)
    assert wrong(1, 2, sent=3)
    assert wrong(1, 2, 3, 2, sent=3), "the last one is too low"


def test_what_is_missing_at_the_end() -> None:
    assert outcome((A, 1, 101.0), sent={A: 2}).wrong == {"join-2": 1}
    assert outcome(sent={A: 1}).wrong == {"join-2": 1}
    assert outcome((A, 1, 101.0), (B, 1, 101.0), sent={A: 1}).wrong == {"join-2": 1}


def test_long_gaps_with_their_times() -> None:
    found = outcome((A, 1, 101.0), (A, 2, 108.0), (B, 1, 104.0), sent={A: 2, B: 1})
    assert found.all_gaps(START, 6.0) == [Gap(0, 101.0, 108.0), Gap(1, 104.0, 110.0)]
    assert found.records == 3
