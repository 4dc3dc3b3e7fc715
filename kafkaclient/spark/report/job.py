"""The Spark job: from folders of telemetry to Parquet tables and the report's figures."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit
from pyspark.sql.pandas.types import from_arrow_schema

from kafkaclient.errors import ConfigError
from kafkaclient.spark.jobs import SparkJobError
from kafkaclient.spark.report import choices, queries
from kafkaclient.spark.report.counting import COUNTS, PACKED_COUNTS, add_up, count_files
from kafkaclient.spark.report.facts import EVER, Period

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kafkaclient.spark.report.queries import TelemetryRun

_TASK_BYTES = 16 * 1024 * 1024  # of files, at least, if there are more
_MAX_TASKS = 256  # each ships one histogram, so that these do not grow with the number of batches
_MAX_BLOCKS = 1000  # of a run, for the bootstrap
_BINS = 200

SETTINGS = {"spark.sql.shuffle.partitions": "8"}
"""For the session. Few partitions are enough, because counts are shuffled, not batches."""

STEPS = ("batches", "latencies", "seconds", "skew", "decisions", "savings")
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


DEFAULT_JUDGEMENT = Judgement()


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
    exclusions: list[dict[str, Any]]
    savings: list[dict[str, Any]]
    """Per run the fields of :class:`~kafkaclient.spark.report.choices.Saving`."""
    deleted_files: int = 0
    """Files that were deleted after they were listed: their batches are not counted."""


def aggregate(
    spark: Any,
    runs: Sequence[TelemetryRun],
    folder: Path,
    judgement: Judgement = DEFAULT_JUDGEMENT,
    period: Period = EVER,
    on_step: Callable[[str], None] = lambda step: None,
) -> Tables:
    """Aggregate the runs. The larger tables stay in ``folder`` as Parquet.

    Only batches with an outcome in the period are counted. Only the result is held in memory, and
    its size does not depend on the number of batches. Every executor must see the runs' folders
    under the same paths or URIs. ``on_step`` is called at the start of each of :data:`STEPS`.

    Raises ConfigError for a file that is not telemetry, or if the workers do not share ``folder``;
    SparkJobError for a file that cannot be read.
    """

    def stored(name: str, table: Any, *kinds: str) -> Any:
        # A URL, because Spark's default may be another file system. Hadoop's URLs have no escapes.
        path = f"file://{(folder / f'{name}.parquet').absolute()}"
        # Without the option a session's "dynamic" would keep the kinds of an earlier report.
        writer = table.write.mode("overwrite").option("partitionOverwriteMode", "static")
        writer.partitionBy(*kinds).parquet(path)
        # Brackets and the like in a folder's name are no pattern (Java: DataSource.GLOB_PATHS_KEY).
        return spark.read.schema(table.schema).option("__globPaths__", "false").parquet(path)

    def rows(query: str, **args: Any) -> list[dict[str, Any]]:
        return [row.asDict() for row in spark.sql(query, args=args or None).collect()]

    on_step("batches")
    counted = _count_batches(spark, runs, judgement, period)
    written = Observation()
    counts = stored("counts", counted.observe(written, count(lit(1)).alias("rows")), "kind")
    found = {row["kind"]: row["count"] for row in counts.groupBy("kind").count().collect()}
    if sum(found.values()) != written.get["rows"]:
        raise ConfigError(
            f"{folder} has {sum(found.values())} of the {written.get['rows']} rows that Spark's "
            "workers wrote there: --out must be a folder that all machines share"
        )
    for kind, error in (("unreadable", ConfigError), ("failed", SparkJobError)):
        if kind in found:
            raise error(counts.where(counts.kind == kind).first()["error"])
    deleted = counts.where(counts.kind == "deleted").collect() if "deleted" in found else []
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
    excluded = rows(queries.EXCLUSIONS)
    on_step("savings")
    _blocks(spark, rows(queries.PLACES)).createOrReplaceTempView("blocks")
    blocks = pa.Table.from_pylist(rows(queries.BLOCKS, most=_MAX_BLOCKS), choices.BLOCKS)
    savings = [
        {"run": number, **asdict(saved)}
        for number in range(len(runs))
        if (saved := choices.saving(blocks.filter(pc.equal(blocks["run"], number)))) is not None
    ]
    return Tables(
        *(totals, errors, latency, curves, skew, series, decisions, excluded, savings),
        deleted_files=round(sum(row["batches"] for row in deleted)),
    )


def _blocks(spark: Any, places: Sequence[dict[str, Any]]) -> Any:
    """The sums of what was saved, in blocks of seconds. An hour of a topic is one call."""
    partitions: dict[tuple[int, str], dict[int, int]] = {}
    for place in places:
        of_topic = partitions.setdefault((place["run"], place["topic"]), {})
        of_topic[place["broker"]] = place["partitions"]

    def blocks(key: tuple[Any, ...], windows: pa.Table) -> pa.Table:
        run, topic, _hour = (value.as_py() for value in key)
        return choices.blocks(run, windows, partitions[run, topic])

    with no_pandas_warning():
        hours = spark.sql(queries.CHOICES).groupBy("run", "topic", "hour")
        return hours.applyInArrow(blocks, from_arrow_schema(choices.BLOCKS))


def _count_batches(
    spark: Any, runs: Sequence[TelemetryRun], judgement: Judgement, period: Period
) -> Any:
    """The sums of the tasks' counts. A task's files are from about the same time, so most of their
    common groups are added up before the shuffle."""
    shares = task_files(runs)
    window_s, times, least_s = judgement.window_s, judgement.times, judgement.least_s

    def counted(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = (f for batch in numbers for number in batch["id"] for f in shares[number.as_py()])
        return count_files(files, window_s, period)

    with no_pandas_warning():
        shipped = spark.range(0, len(shares), 1, len(shares)).mapInArrow(
            counted, from_arrow_schema(PACKED_COUNTS)
        )
        return shipped.groupBy("kind", "run", "slice").applyInArrow(
            lambda key, alike: add_up(key, alike, times, least_s), from_arrow_schema(COUNTS)
        )


def task_files(runs: Sequence[TelemetryRun]) -> list[list[tuple[int, str, str]]]:
    """The files of each task: (number of the run, its root, path), in the order of time."""
    files = [
        (number, run.root, part)
        for number, run in enumerate(runs)
        for part in sorted(run.files, key=lambda part: (part.hour, part.number, part.path))
    ]
    enough = max(_TASK_BYTES, sum(part.size for *_, part in files) / _MAX_TASKS)
    shares: list[list[tuple[int, str, str]]] = []
    size = enough
    for number, folder, part in files:
        if size >= enough:
            shares.append([])
            size = 0
        shares[-1].append((number, folder, part.path))
        size += part.size
    return shares


@contextmanager
def no_pandas_warning() -> Iterator[None]:
    """PySpark imports the unused pandas, and warns if pandas is newer than itself."""
    with catch_warnings():
        simplefilter("ignore", FutureWarning)
        yield


def _with_quantile_columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of latencies with one column per quantile, capped at the maximum."""
    quantiles, longest = row.pop("quantiles_ms"), row.pop("max_ms")
    named = {
        f"p{100 * share:g}_ms".replace(".", ""): min(value, longest)
        for share, value in zip(queries.QUANTILES, quantiles, strict=True)
    }
    return {**row, "part": queries.PARTS[row["part"]], **named, "max_ms": longest}
