"""The Spark job: from folders of telemetry to Parquet tables and the report's figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from kafkaclient.spark.report import queries
from kafkaclient.spark.report.counting import COUNTS, PACKED_COUNTS, add_up, count_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkaclient.spark.report.runs import Run

_FILES_PER_TASK = 32
_BINS = 200

SETTINGS = {"spark.sql.shuffle.partitions": "8"}
"""For the session. Few partitions are enough, because counts are shuffled, not batches."""

STEPS = ("batches", "latencies", "seconds", "skew", "decisions")
"""The steps that :func:`aggregate` reports, in this order."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """When a decision counts as regretted: both ``times`` and ``least_s`` are exceeded."""

    window_s: float = 0.1
    """Batches sent within the same window of this many seconds are compared."""
    times: float = 2.0
    """The batch took more than this multiple of the mean of the best other broker's batches."""
    least_s: float = 0.001
    """The batch took more than this many seconds longer than that mean."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The report's tables: lists of rows ``{column: value}``. ``run`` is the run's number."""

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
    on_step: Callable[[str], None] = lambda step: None,
) -> Tables:
    """Aggregate the runs. The larger tables stay in ``folder`` as Parquet.

    Only the result is held in memory, and its size does not depend on the number of batches. Every
    executor must see the folders under the same paths. ``on_step`` is called at the start of each
    of :data:`STEPS`.
    """

    def stored(name: str, table: Any, *kinds: str) -> Any:
        # A URL, because Spark's default may be another file system. Hadoop's URLs have no escapes.
        path = f"file://{(folder / f'{name}.parquet').absolute()}"
        table.write.mode("overwrite").partitionBy(*kinds).parquet(path)
        return spark.read.schema(table.schema).parquet(path)

    def rows(query: str, **args: Any) -> list[dict[str, Any]]:
        return [row.asDict() for row in spark.sql(query, args=args or None).collect()]

    on_step("batches")
    counts = stored("counts", _count_batches(spark, runs, judgement or Judgement()), "kind")
    for kind in queries.KINDS:
        counts.where(counts.kind == kind).createOrReplaceTempView(kind)
    on_step("latencies")
    latency = [_with_quantile_columns(row) for row in rows(queries.LATENCY)]
    curves = rows(queries.CURVES)
    on_step("seconds")
    totals, errors = rows(queries.TOTALS), rows(queries.ERRORS)
    series = rows(queries.SERIES, bins=_BINS)
    on_step("skew")
    stored("skew", spark.sql(queries.SKEW)).createOrReplaceTempView("skew")
    skew = rows(queries.SKEWED)
    on_step("decisions")
    decisions = rows(queries.DECISIONS)
    return Tables(totals, errors, latency, curves, skew, series, decisions)


def _count_batches(spark: Any, runs: Sequence[Run], judgement: Judgement) -> Any:
    """The sums of the tasks' counts. A task's files are from about the same time, so most of their
    common groups are added up before the shuffle."""
    files = [
        (number, str(run.folder.absolute() / part.file), part.offset_s)
        for number, run in enumerate(runs)
        for part in sorted(run.parts, key=lambda part: part.number)
    ]
    shares = [(files[at : at + _FILES_PER_TASK],) for at in range(0, len(files), _FILES_PER_TASK)]
    table = spark.createDataFrame(
        shares, "files ARRAY<STRUCT<run: INT, path: STRING, offset_s: DOUBLE>>"
    ).repartition(len(shares))
    window_s, times, least_s = judgement.window_s, judgement.times, judgement.least_s
    with catch_warnings():
        # PySpark imports the unused pandas here, and warns if pandas is newer than itself.
        simplefilter("ignore", FutureWarning)
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        shipped = table.mapInArrow(
            lambda shares: count_files(shares, window_s), from_arrow_schema(PACKED_COUNTS)
        )
        return shipped.groupBy("kind", "run", "slice").applyInArrow(
            lambda key, alike: add_up(key, alike, times, least_s), from_arrow_schema(COUNTS)
        )


def _with_quantile_columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of latencies with one column per quantile, capped at the maximum."""
    quantiles, longest = row.pop("quantiles_ms"), row.pop("max_ms")
    named = {
        f"p{100 * share:g}_ms".replace(".", ""): min(value, longest)
        for share, value in zip(queries.QUANTILES, quantiles, strict=True)
    }
    return {**row, "part": queries.PARTS[row["part"]], **named, "max_ms": longest}
