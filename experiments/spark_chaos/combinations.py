"""The settings of a run, and a few combinations in which every two settings meet."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import combinations, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SETTINGS", "Combination", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The settings of one run."""

    guarantee: str
    transactions: str
    spark: str
    session: str
    speculation: str
    adaptive: str

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == "exactly once"

    @property
    def transaction_version(self) -> int:
        """The level of the brokers' feature ``transaction.version``."""
        return int(self.transactions.removeprefix("v"))

    @property
    def words(self) -> tuple[str, ...]:
        """The settings for a table, in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        return (
            f"{self.guarantee}, transactions {self.transactions}, PySpark {self.spark}, "
            f"{self.session}, speculation {self.speculation}, AQE {self.adaptive}"
        )


SETTINGS = {
    "guarantee": ("exactly once", "at least once"),
    "transactions": ("v1", "v2"),
    "spark": ("4.2", "4.3"),
    "session": ("classic", "Connect"),
    "speculation": ("on", "off"),
    "adaptive": ("on", "off"),
}
"""The values of each field of a :class:`Combination`."""


def pairwise(settings: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Combinations in which each pair of values of two settings occurs: as few as a greedy choice
    finds. Equal arguments make equal combinations."""
    names = list(settings)
    rows = [dict(zip(names, row, strict=True)) for row in product(*settings.values())]
    missing = {pair for row in rows for pair in _pairs(row)}
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(missing & _pairs(row)))
        missing -= _pairs(best)
        chosen.append(best)
    return chosen


def _pairs(row: Mapping[str, str]) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for pair in combinations(row.items(), 2)}
