"""The job: from folders of telemetry to tables on the disk and the figures made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from kafkaclient.spark.report import queries
from kafkaclient.spark.report.adding import COUNTS, add_up
from kafkaclient.spark.report.counting import SHIPPED, Counting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from kafkaclient.spark.report.runs import Run

__all__ = ["SETTINGS", "STEPS", "Judgement", "Tables", "aggregate"]

_TYPES = {
    "string": "STRING",
    "binary": "BINARY",
    "int32": "INT",
    "int64": "BIGINT",
    "double": "DOUBLE",
}
_FILES_PER_TASK = 32
_BINS = 200

SETTINGS = {"spark.sql.shuffle.partitions": "8"}
"""For the session: the batches are never shuffled, and what was counted is little."""

STEPS = ("batches", "latencies", "seconds", "skew", "decisions")
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

    def stored(name: str, table: Any, *kinds: str) -> Any:
        path = _url(folder / f"{name}.parquet")
        table.write.mode("overwrite").partitionBy(*kinds).parquet(path)
        return spark.read.schema(table.schema).parquet(path)

    def rows(query: str, **args: Any) -> list[dict[str, Any]]:
        return [row.asDict() for row in spark.sql(query, args=args or None).collect()]

    tell("batches")
    counts = stored("counts", _counted(spark, runs, judgement or Judgement()), "kind")
    for kind in queries.KINDS:
        counts.where(counts.kind == kind).createOrReplaceTempView(kind)
    tell("latencies")
    latency = [_named(row) for row in rows(queries.LATENCY)]
    curves = rows(queries.CURVES)
    tell("seconds")
    totals, errors = rows(queries.TOTALS), rows(queries.ERRORS)
    series = rows(queries.SERIES, bins=_BINS)
    tell("skew")
    stored("skew", spark.sql(queries.SKEW)).createOrReplaceTempView("skew")
    skew = rows(queries.SKEWED)
    tell("decisions")
    decisions = rows(queries.DECISIONS)
    return Tables(totals, errors, latency, curves, skew, series, decisions)


def _counted(spark: Any, runs: Sequence[Run], judgement: Judgement) -> Any:
    """The sums of what tasks count, each of files of about the same time: most of what they have in
    common is added up before it is shuffled."""
    files = [
        (number, str(run.folder.absolute() / part.file), part.offset_s)
        for number, run in enumerate(runs)
        for part in sorted(run.parts, key=lambda part: part.number)
    ]
    shares = [(files[at : at + _FILES_PER_TASK],) for at in range(0, len(files), _FILES_PER_TASK)]
    table = spark.createDataFrame(
        shares, "files ARRAY<STRUCT<run: INT, path: STRING, offset_s: DOUBLE>>"
    ).repartition(len(shares))
    with catch_warnings():
        # PySpark looks for pandas here, which nothing uses, and warns of one newer than itself.
        simplefilter("ignore", FutureWarning)
        shipped = table.mapInArrow(Counting(judgement.window_s), _columns(SHIPPED))
        times, least_s = judgement.times, judgement.least_s
        return shipped.groupBy("kind", "run", "slice").applyInArrow(
            lambda key, alike: add_up(key, alike, times, least_s), _columns(COUNTS)
        )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_TYPES[str(field.type)]}" for field in schema)


def _url(path: Path) -> str:
    """Of this machine's file system, whatever Spark's default is; Hadoop's URLs escape nothing."""
    return f"file://{path.absolute()}"


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """A row of latencies with a column for each quantile, which the longest bounds."""
    quantiles = row.pop("quantiles_ms")
    longest = row.pop("max_ms")
    named = {
        f"p{100 * share:g}_ms".replace(".", ""): min(value, longest)
        for share, value in zip(queries.QUANTILES, quantiles, strict=True)
    }
    return {**row, "part": queries.PARTS[row["part"]], **named, "max_ms": longest}
