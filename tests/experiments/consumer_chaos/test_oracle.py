"""What counts as an error."""

from __future__ import annotations

from typing import Any

from experiments.consumer_chaos.commit_log import Commit
from experiments.consumer_chaos.load import Log
from experiments.consumer_chaos.member_log import read_stints
from experiments.consumer_chaos.oracle import Verdict, judge

LOG = Log("t", 0, 0)
ACKED = {offset: 100 + offset for offset in range(6)}


def record(at: float, offset: int, *, taken: float = 0, surely: int = 1, life: int = 0) -> str:
    return f"record {at} t 0 {taken or at - 0.1} {surely} {life} {offset} {100 + offset}"


FIRST = ["assigned 1 t 0", *(record(2 + n, n) for n in range(3))]
REST = [record(12 + n, n) for n in range(3, 6)]


def found(
    first: list[str],
    second: list[str],
    *commits: tuple[float, int],
    acked: dict[Log, dict[int, int]] | None = None,
) -> dict[str, Any]:
    """The fields of the verdict that are not 0."""
    acked = acked or {LOG: ACKED}
    lives = {"t": max(log.life for log in acked)}
    stints = read_stints("a", first) + read_stints("b", second)
    verdict = judge(acked, lives, stints, [Commit(at, "t", 0, offset) for at, offset in commits])
    told = [name for name in Verdict.__dataclass_fields__ if name != "examples"]
    assert bool(verdict.errors) is bool(verdict.examples)
    return {name: value for name in told if (value := getattr(verdict, name))}


CLEAN = {"processed": 6, "stints": 2}


def test_every_record_once() -> None:
    assert found([*FIRST, "revoked 6 t 0"], ["assigned 7 t 0", *REST], (5.5, 3)) == CLEAN


def test_a_record_that_nobody_processed() -> None:
    assert found([*FIRST, "revoked 6 t 0"], ["assigned 7 t 0", *REST[:-1]], (5.5, 3)) == {
        "processed": 5,
        "stints": 2,
        "lost": 1,
    }


def test_a_member_begins_behind_a_record() -> None:
    assert found([*FIRST, "revoked 6 t 0"], ["assigned 7 t 0", *REST[1:], record(20, 3)]) == {
        **CLEAN,
        "skipped": 1,
        "reordered": 1,
    }


def test_a_member_steps_over_a_record() -> None:
    wrong = [FIRST[0], record(2, 0), record(3, 2), record(4, 1)]
    assert found([*wrong, "revoked 6 t 0"], ["assigned 7 t 0", *REST]) == {
        **CLEAN,
        "skipped": 1,
        "reordered": 1,
    }


def test_another_record_than_at_this_offset() -> None:
    other = {LOG: {**ACKED, 5: 7}}
    second = ["assigned 7 t 0", *REST]
    assert found([*FIRST, "revoked 6 t 0"], second, acked=other) == {**CLEAN, "unexpected": 1}


def test_a_commit_before_the_record_is_finished() -> None:
    first, second = [*FIRST, "revoked 6 t 0"], ["assigned 7 t 0", *REST]
    assert found(first, second, (3.5, 3)) == {**CLEAN, "early_commits": 1}


def test_records_behind_the_last_commit_are_repeated() -> None:
    second = ["assigned 7 t 0", record(8, 2), *REST]
    again = {"processed": 7, "stints": 2, "repeating_stints": 1}
    assert found(FIRST, second, (4.5, 2)) == {**again, "repeated": 1}
    assert found(FIRST, second, (5.5, 3)) == {**again, "repeated_though_committed": 1}


def test_two_members_have_a_partition() -> None:
    """A record that the first has in hand when the second begins is no error."""
    second = ["assigned 7 t 0", *REST]
    assert found([*FIRST, record(7.2, 3, taken=6.5)], second)["repeated"] == 1
    late = record(9, 3)
    assert found([*FIRST, late, "lost 10 t 0"], second)["shared"] == 1
    zombie = record(9, 3, surely=0)
    both = found([*FIRST, zombie, "lost 10 t 0"], second)
    assert (both["zombie"], both.get("shared")) == (1, None)


def test_a_topic_that_is_created_again() -> None:
    """The new topic begins at 0; unread records of the old one are gone."""
    new = [record(20 + n, n, life=1) for n in range(6)]
    second = ["assigned 7 t 0", *REST[:2], *new]
    lives = {LOG: ACKED, LOG._replace(life=1): ACKED}
    assert found(FIRST, second, (5.5, 3), (17.5, 5), acked=lives) == {
        "processed": 11,
        "stints": 2,
        "deleted_unread": 1,
    }
    skips = [*second[:3], *new[2:]]
    assert found(FIRST, skips, acked=lives)["skipped"] == 2


def test_a_member_reads_a_topic_that_was_created_again_while_it_was_out_of_its_session() -> None:
    """It got the partition before the commit, of the old topic: no next owner repeats it."""
    new = ["assigned 19 t 0", *(record(20 + n, n, life=1) for n in range(6))]
    acked = {LOG: ACKED, LOG._replace(life=1): ACKED}

    def again(surely: int) -> dict[str, Any]:
        late = [record(30 + n, n, life=1, surely=surely) for n in range(6)]
        return found([*FIRST, *late, "lost 40 t 0"], new, (27, 6), acked=acked)

    zombie, sure = again(0), again(1)
    assert (zombie["repeated"], zombie.get("repeated_though_committed")) == (6, None)
    assert (sure.get("repeated"), sure["repeated_though_committed"]) == (None, 6)
