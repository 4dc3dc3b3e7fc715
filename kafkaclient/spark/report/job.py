"""The job: from folders of telemetry to tables on the disk and the figures made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkaclient.spark.report import queries
from kafkaclient.spark.report.runs import PATTERN
from kafkaclient.telemetry import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkaclient.spark.report.runs import Run

__all__ = ["STEPS", "Judgement", "Tables", "aggregate"]

_TYPES = {"int32": "INT", "int64": "BIGINT", "double": "DOUBLE"}
_BINS = 200

STEPS = (
    "latencies",
    "percentiles",
    "seconds",
    "skew",
    "decisions",
    "verdicts",
)
"""What :func:`aggregate` says that it does, in this order."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """When a decision counts as regretted."""

    window_s: float = 0.1
    """Batches that were sent within the same window of so many seconds are compared."""
    times: float = 2.0
    """The batch took so many times what the best other broker's batches took on average..."""
    least_s: float = 0.001
    """...and so many seconds more."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What was collected; each table a list of rows as ``{column: value}``, ``run`` by number."""

    totals: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    latency: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    skew: list[dict[str, Any]]
    series: list[dict[str, Any]]
    decisions: list[dict[str, Any]]


def aggregate(
    spark: Any,
    runs: Sequence[Run],
    folder: Path,
    judgement: Judgement | None = None,
    tell: Callable[[str], None] = lambda step: None,
) -> Tables:
    """Aggregate the runs; the larger tables stay in ``folder`` as Parquet.

    Nothing is kept in memory but what is collected, which does not grow with the number of
    batches. Every executor must see the folders under the same paths. ``tell`` hears of each of
    :data:`STEPS` when it begins.
    """
    judgement = judgement or Judgement()
    _batches(spark, runs).createOrReplaceTempView("batches")
    _producers(spark, runs).createOrReplaceTempView("producers")
    spark.sql(queries.FACTS).createOrReplaceTempView("facts")

    def stored(name: str, query: str, **args: Any) -> None:
        path = _url(folder / f"{name}.parquet")
        spark.sql(query, args=args or None).write.mode("overwrite").parquet(path)
        spark.read.parquet(path).createOrReplaceTempView(name)

    def rows(query: str, **args: Any) -> list[dict[str, Any]]:
        return [row.asDict() for row in spark.sql(query, args=args or None).collect()]

    tell("latencies")
    stored("histogram", queries.HISTOGRAM)
    tell("percentiles")
    latency = [_named(row) for row in rows(queries.LATENCY)]
    curves = rows(queries.CURVES)
    tell("seconds")
    stored("seconds", queries.SECONDS)
    tell("skew")
    totals, errors = rows(queries.TOTALS), rows(queries.ERRORS)
    stored("skew", queries.SKEW)
    skew, series = rows(queries.SKEWED), rows(queries.SERIES, bins=_BINS)
    tell("decisions")
    stored("cells", queries.CELLS, window_s=judgement.window_s)
    tell("verdicts")
    decisions = rows(queries.DECISIONS, times=judgement.times, least_s=judgement.least_s)
    return Tables(totals, errors, latency, curves, skew, series, decisions)


def _batches(spark: Any, runs: Sequence[Run]) -> Any:
    schema = ", ".join(
        f"`{field.name}` {_TYPES.get(str(field.type), 'STRING')}" for field in SCHEMA
    )
    reader = spark.read.schema(schema).option("pathGlobFilter", PATTERN)
    files = reader.parquet(*(_url(run.folder) for run in runs))
    return files.selectExpr("*", "_metadata.file_name AS file")


def _url(path: Path) -> str:
    """Of this machine's file system, whatever Spark's default is; Hadoop's URLs escape nothing."""
    return f"file://{path.absolute()}"


def _producers(spark: Any, runs: Sequence[Run]) -> Any:
    return spark.createDataFrame(
        [
            (number, part.file, part.offset_s)
            for number, run in enumerate(runs)
            for part in run.parts
        ],
        "run INT, file STRING, offset_s DOUBLE",
    )


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """A row of latencies with a column for each quantile, which the longest bounds."""
    quantiles = row.pop("quantiles_ms")
    longest = row.pop("max_ms")
    named = {
        f"p{100 * share:g}_ms".replace(".", ""): min(value, longest)
        for share, value in zip(queries.QUANTILES, quantiles, strict=True)
    }
    return {**row, "part": queries.PARTS[row["part"]], **named, "max_ms": longest}
