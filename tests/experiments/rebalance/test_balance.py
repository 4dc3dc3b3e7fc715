"""When a group is balanced."""

from __future__ import annotations

from experiments.counting.status import Status
from experiments.rebalance.balance import Balance


def status(first: int, last: int, **copies: int | None) -> Status:
    return Status(running=[f"0_{n}" for n in range(first, last)], copies=dict(copies))


def test_balanced_since_every_task_runs_once_and_no_copy_is_left() -> None:
    balance = Balance(tasks=6, acceptable_lag=10)
    balance.look({"a": status(0, 6), "b": status(0, 0, c=None)}, 1.0)
    balance.look({"a": status(0, 6), "b": status(0, 0, c=11, d=5)}, 2.0)
    assert (balance.warmed_at, balance.balanced_at, balance.most_copies) == (2.0, None, 2)
    balance.look({"a": status(0, 6), "b": status(0, 0, c=3)}, 3.0)
    assert (balance.warmed_at, balance.balanced_at) == (2.0, None)
    balance.look({"a": status(0, 3), "b": status(3, 6)}, 4.0)
    balance.look({"a": status(0, 3), "b": status(3, 6)}, 5.0)
    assert (balance.warmed_at, balance.balanced_at) == (2.0, 4.0)


def test_not_balanced() -> None:
    for statuses in (
        {"a": status(0, 3), "b": status(3, 5)},  # one task does not run
        {"a": status(0, 3), "b": status(2, 6)},  # one runs twice
        {"a": status(0, 1), "b": status(1, 6)},  # one instance has most of them
    ):
        balance = Balance(tasks=6, acceptable_lag=10)
        balance.look(statuses, 1.0)
        assert balance.balanced_at is None


def test_balance_is_lost_again() -> None:
    balance = Balance(tasks=2, acceptable_lag=10)
    balance.look({"a": status(0, 1), "b": status(1, 2)}, 1.0)
    balance.look({"a": status(0, 1), "b": status(0, 0)}, 2.0)
    assert balance.balanced_at is None
    balance.look({"a": status(0, 1), "b": status(1, 2)}, 3.0)
    assert balance.balanced_at == 3.0
