"""Filters of a batch read: which offset ranges are left."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as spark

from kafkaclient.spark.filters import conditions, narrowed, since_ms
from kafkaclient.spark.offsets import ReadRange
from kafkaclient.spark.planning import plan_batch

WHOLE = ReadRange("t", 1, 10, 50)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([spark.GreaterThan(("offset",), 20), spark.LessThanOrEqual(("offset",), 30)], (21, 31)),
        ([spark.GreaterThanOrEqual(("offset",), 5), spark.LessThan(("offset",), 70)], (10, 50)),
        ([spark.EqualTo(("offset",), 49)], (49, 50)),
        ([spark.EqualTo(("offset",), 50)], None),
        ([spark.LessThan(("offset",), 3)], None),
        ([spark.In(("offset",), (40, None, 20))], (20, 41)),
        ([spark.In(("offset",), ())], None),
        ([spark.EqualTo(("partition",), 1), spark.In(("topic",), ("s", "t"))], (10, 50)),
        ([spark.EqualTo(("partition",), 2)], None),
        ([spark.GreaterThan(("partition",), 1)], None),
        ([spark.EqualTo(("topic",), "s")], None),
        ([spark.EqualTo(("offset",), None), spark.IsNotNull(("offset",))], (10, 50)),
        ([spark.Not(spark.EqualTo(("partition",), 1))], (10, 50)),
        ([spark.EqualTo(("headers", "key"), "x"), spark.EqualTo(("value",), b"x")], (10, 50)),
    ],
)
def test_what_is_left_of_a_range(given: list[Any], left: tuple[int, int] | None) -> None:
    found = narrowed(WHOLE, conditions(given))
    assert ((found.start, found.end) if found.size else None) == left


def test_only_lower_limits_of_time_count() -> None:
    limits = [spark.GreaterThan(("timestamp",), at(2.0015)), spark.EqualTo(("timestamp",), at(1))]
    assert since_ms(conditions(limits)) == 2001
    assert since_ms(conditions([spark.LessThan(("timestamp",), at(1))])) is None
    assert since_ms(conditions([spark.GreaterThan(("timestamp",), at(-1))])) is None


async def test_planned_ranges(fake, options, fill) -> None:
    fill(0, 10)
    fill(1, 20)
    since = conditions([spark.GreaterThanOrEqual(("timestamp",), at(1.012))])
    assert await plan_batch(options(), fake, conditions=since) == [ReadRange("t", 1, 12, 20)]
    assert await plan_batch(
        options(startingOffsets='{"t": {"0": 3, "1": 15, "2": 0}}', minPartitions="2"),
        fake,
        conditions=since + conditions([spark.LessThan(("offset",), 19)]),
    ) == [ReadRange("t", 1, 15, 17), ReadRange("t", 1, 17, 19)]
    nothing = conditions([spark.EqualTo(("partition",), 7)])
    assert await plan_batch(options(), fake, conditions=nothing + since) == []
