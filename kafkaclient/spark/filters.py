"""Filters of a batch read that leave out offset ranges: on topic, partition, offset, timestamp.

Spark hands filters to a Python source from 4.1 on, and only with the setting
``spark.sql.python.filterPushdown.enabled``. Spark applies the filters again to each row, so a range
may keep records that do not match.
"""

from __future__ import annotations

import operator
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.spark.offsets import ReadRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MAX_OFFSET = 2**63 - 1
# Spark runs this module, instead of its usual planning, if the setting is on.
_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda found, wanted: found in wanted,
}
# The first offset that matches, and the one after the last.
_BOUNDS: dict[str, Callable[[Any], tuple[int, int]]] = {
    "EqualTo": lambda wanted: (wanted, wanted + 1),
    "GreaterThan": lambda wanted: (wanted + 1, _MAX_OFFSET),
    "GreaterThanOrEqual": lambda wanted: (wanted, _MAX_OFFSET),
    "LessThan": lambda wanted: (0, wanted),
    "LessThanOrEqual": lambda wanted: (0, wanted + 1),
    "In": lambda wanted: (min(wanted), max(wanted) + 1),
}
_TYPES: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
# No upper limits: a record behind one that is too new may have an earlier timestamp.
_LOWER_LIMITS = ("EqualTo", "GreaterThan", "GreaterThanOrEqual")


class Condition(NamedTuple):
    """A filter that every row must satisfy."""

    column: str
    kind: str
    """The name of PySpark's class."""
    wanted: Any


def conditions(filters: Iterable[Any]) -> tuple[Condition, ...]:
    """Those of PySpark's filters that can leave out offset ranges."""
    found = []
    for each in filters:
        kind = type(each).__name__
        column = ".".join(getattr(each, "attribute", ()))
        if column not in _TYPES or kind not in _COMPARISONS:
            continue
        if column == "timestamp" and kind not in _LOWER_LIMITS:
            continue
        values = [value for value in each.value if value is not None] if kind == "In" else None
        if all(isinstance(v, _TYPES[column]) for v in ([each.value] if values is None else values)):
            found.append(Condition(column, kind, each.value if values is None else values))
    return tuple(found)


def narrowed(given: ReadRange, required: Iterable[Condition]) -> ReadRange:
    """The part of a range that can match, without regard to timestamps. It may be empty."""
    start, end = given.start, given.end
    for column, kind, value in required:
        if kind == "In" and not value:
            end = start
        elif column == "offset":
            first, after = _BOUNDS[kind](value)
            start, end = max(start, first), min(end, after)
        elif column in ("topic", "partition") and not _COMPARISONS[kind](
            getattr(given, column), value
        ):
            end = start
    return ReadRange(given.topic, given.partition, start, max(start, end))


def since_ms(required: Iterable[Condition]) -> int | None:
    """The timestamp before which no record matches, in milliseconds. None: there is no limit."""
    times = [
        int(value.timestamp() * 1000) for column, _, value in required if column == "timestamp"
    ]
    return max(times, default=-1) if max(times, default=-1) >= 0 else None


def spark_pushes_filters() -> bool:
    """Whether this process plans a read with filters. Spark refuses a reader that accepts filters
    in any other process."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN in sys.modules or (main is not None and main.name == _PUSHDOWN)
