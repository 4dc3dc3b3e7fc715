"""The SQL queries over the tasks' counts, and the runs that they find."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from kafkaclient import telemetry
from kafkaclient.config.options import TelemetryTarget
from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.reading import entries, files_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from kafkaclient.telemetry import TelemetryFile


# --- Finds runs: the folders of telemetry below given paths or URIs -------------------------------


@dataclass(frozen=True, slots=True)
class TelemetryRun:
    """A folder of telemetry: it has ``date=`` folders."""

    name: str
    folder: str
    """A local path or a URI, without a user, a password and a query."""
    files: tuple[TelemetryFile, ...]
    root: str
    """The given path or URI, to open the file system. It may contain secrets."""

    @property
    def producers(self) -> int:
        return len({file.producer for file in self.files})


def find_runs(
    folders: Sequence[str], since: datetime | None = None, until: datetime | None = None
) -> list[TelemetryRun]:
    """One run for each folder, and each folder below, that contains telemetry; in the given order.

    Of ``date=`` and ``hour=`` folders only those from ``since`` to ``until`` are listed, and no
    file is opened. Raises ConfigError if a folder has no telemetry, or if two folders have a file
    of the same name, because those are copies of one run.
    """
    found: list[tuple[Any, str, str, str]] = []
    for root in folders:
        target = TelemetryTarget(root)
        file_system, path = telemetry.open_root(root)
        within = sorted(_folders_with_telemetry(file_system, path))
        if not within:
            raise ConfigError(
                f"no batches-*.parquet in or below {target}: give folders that producers wrote "
                "with the option telemetry"
            )
        known = [(other_system, other) for other_system, other, *_ in found]
        for below in within:
            if (file_system, below) not in known:
                shown = f"{target.scheme}://{below}" if target.scheme else below
                found.append((file_system, below, shown, root))
    names = _names([path for _, path, *_ in found])
    runs = [
        TelemetryRun(name, shown, tuple(files_in(file_system, path, since, until)), root)
        for name, (file_system, path, shown, root) in zip(names, found, strict=True)
    ]
    if not any(run.files for run in runs):
        where = " and ".join(str(TelemetryTarget(root)) for root in folders)
        raise ConfigError(f"no telemetry{period_text(since, until)} in {where}")
    names_of_files = Counter(_name(file) for run in runs for file in run.files)
    name, times = names_of_files.most_common(1)[0]
    if times > 1:
        where = " and in ".join(run.folder for run in runs if name in map(_name, run.files))
        raise ConfigError(f"{name} is in {where}: copies of one run")
    return [run for run in runs if run.files]


def period_text(since: datetime | None, until: datetime | None) -> str:
    """The given limits, as words that follow others; "" without limits."""
    return "".join(f" {word} {at}" for word, at in (("from", since), ("to", until)) if at)


def _name(file: TelemetryFile) -> str:
    return f"{file.producer}-{file.number}"


def _folders_with_telemetry(file_system: Any, path: str) -> Iterator[str]:
    """The folder and the folders below it that have telemetry. ``date=`` folders are not read."""
    found = entries(file_system, path)
    if any(entry.base_name.startswith("date=") for entry in found):
        yield path
    for entry in found:
        is_folder = entry.type == pafs.FileType.Directory
        if is_folder and not entry.base_name.startswith(("date=", ".")):
            yield from _folders_with_telemetry(file_system, entry.path)


def _names(paths: Sequence[str]) -> list[str]:
    """The shortest trailing parts of the paths that are unique."""
    split = [path.rstrip("/").split("/") for path in paths]
    names = [each[-1] for each in split]
    length = 1
    while len(set(names)) < len(names) and length < max(map(len, split)):
        length += 1
        names = ["/".join(each[-length:]) for each in split]
    return names


# --- The SQL queries over the tasks' counts -------------------------------------------------------

PARTS = ("deciding", "waiting", "answering", "whole")
"""Parts of a batch's latency: until its partition is decided, sent, acknowledged; the whole."""

WHOLE = PARTS.index("whole")

KINDS = ("histogram", "seconds", "decisions", "exclusions")
"""The kinds of counts. Each is a folder of the table of counts, and a view in the queries."""

BUCKETS = 32
"""Of a histogram of latencies, per power of two seconds."""

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)

LATENCY = f"""
SELECT run, part, topic, broker, partition,
       CAST(round(sum(batches)) AS BIGINT) AS batches,
       1e3D * sum(total_s) / sum(batches) AS avg_ms,
       percentile(1e3D * pow(2, (bucket + 0.5D) / {BUCKETS}), array{QUANTILES},
                  CAST(round(1e6D * batches) AS BIGINT)) AS quantiles_ms,
       1e3D * max(longest_s) AS max_ms
FROM histogram
GROUP BY GROUPING SETS ((run, part), (run, part, topic), (run, part, broker),
                        (run, part, topic, partition))
ORDER BY run, part, topic NULLS FIRST, broker NULLS FIRST, partition NULLS FIRST
"""  # noqa: S608 - constants only
"""Frequencies are whole numbers for Spark, and a batch of a sample counts as, say, 3.33 batches:
so they are in millionths."""

CURVES = f"""
SELECT run, bucket, CAST(round(sum(batches)) AS BIGINT) AS batches FROM histogram
WHERE part = {WHOLE}
GROUP BY run, bucket ORDER BY run, bucket
"""  # noqa: S608 - constants only

TOTALS = """
SELECT run, CAST(round(sum(batches)) AS BIGINT) AS batches,
       CAST(round(coalesce(sum(records) FILTER (WHERE error IS NULL), 0)) AS BIGINT) AS records,
       CAST(round(coalesce(sum(bytes) FILTER (WHERE error IS NULL), 0)) AS BIGINT) AS bytes,
       CAST(round(coalesce(sum(records) FILTER (WHERE error IS NOT NULL), 0)) AS BIGINT)
         AS failed_records,
       CAST(round(sum(retried)) AS BIGINT) AS retried_batches,
       max(last_s) - min(first_s) AS seconds
FROM seconds GROUP BY run ORDER BY run
"""

ERRORS = """
SELECT run, error, CAST(round(sum(batches)) AS BIGINT) AS batches,
       CAST(round(sum(records)) AS BIGINT) AS records
FROM seconds WHERE error IS NOT NULL GROUP BY run, error ORDER BY run, records DESC, error
"""

SKEW = """
WITH sent AS (
  SELECT run, second, topic, partition, broker, bytes, records FROM seconds WHERE broker >= 0
), places AS (
  SELECT run, topic, count(DISTINCT partition) AS partitions FROM sent GROUP BY run, topic
), nodes AS (
  SELECT run, count(DISTINCT broker) AS brokers FROM sent GROUP BY run
), by_partition AS (
  SELECT run, second, topic, sum(records) AS records, sum(bytes) AS bytes, max(bytes) AS most
  FROM (SELECT run, second, topic, partition, sum(bytes) AS bytes, sum(records) AS records
        FROM sent GROUP BY run, second, topic, partition)
  GROUP BY run, second, topic
), by_broker AS (
  SELECT run, second, sum(records) AS records, sum(bytes) AS bytes, max(bytes) AS most
  FROM (SELECT run, second, broker, sum(bytes) AS bytes, sum(records) AS records
        FROM sent GROUP BY run, second, broker)
  GROUP BY run, second
)
SELECT run, second, topic, records, bytes,
       most * partitions / bytes AS partition_skew, CAST(NULL AS DOUBLE) AS broker_skew
FROM by_partition JOIN places USING (run, topic) WHERE bytes > 0
UNION ALL
SELECT run, second, NULL, records, bytes, NULL, most * brokers / bytes
FROM by_broker JOIN nodes USING (run) WHERE bytes > 0
"""
"""Bytes of the largest partition or broker in a second, divided by the mean over all used: of
partitions a row for each second and topic, of brokers a row for each second."""

SKEWED = """
SELECT run, percentile_approx(partition_skew, 0.5) AS partition_skew_p50,
       percentile_approx(partition_skew, 0.99) AS partition_skew_p99,
       percentile_approx(broker_skew, 0.5) AS broker_skew_p50,
       percentile_approx(broker_skew, 0.99) AS broker_skew_p99
FROM skew GROUP BY run
"""

SERIES = """
SELECT s.run, broker, bin_s, CAST((second - begun) DIV bin_s AS INT) AS bin,
       sum(bytes) AS bytes, sum(records) AS records
FROM seconds s
     JOIN (SELECT run, min(second) AS begun,
                  CAST(ceil((max(second) - min(second) + 1) / :bins) AS BIGINT) AS bin_s
           FROM seconds GROUP BY run) l ON s.run = l.run
WHERE broker >= 0
GROUP BY s.run, broker, bin_s, bin ORDER BY s.run, broker, bin
"""
"""At most ``:bins`` bins of equal length, in whole seconds."""

DECISIONS = """
SELECT run, broker, bound_by, CAST(round(sum(batches)) AS BIGINT) AS batches,
       1e3D * sum(total_s) / sum(batches) AS took_ms,
       1e3D * sum(others_s) / sum(batches) AS others_ms,
       1e3D * sum(best_s) / sum(batches) AS best_ms,
       sum(regretted) / sum(batches) AS regretted
FROM decisions
GROUP BY GROUPING SETS ((run, is_chosen), (run, broker, is_chosen), (run, bound_by))
HAVING is_chosen IS NULL OR is_chosen
ORDER BY run, broker NULLS FIRST, bound_by NULLS FIRST
"""
"""Of a run and of each broker: the batches whose partition the producer chose. By kind of
decision: all batches."""

EXCLUSIONS = """
SELECT run, broker, error AS reason, CAST(sum(batches) AS BIGINT) AS times
FROM exclusions GROUP BY run, broker, error ORDER BY run, broker, error
"""

PLACES = """
SELECT run, topic, broker, count(DISTINCT partition) AS partitions
FROM seconds WHERE chosen > 0 GROUP BY run, topic, broker
"""

CHOICES = """
SELECT run, topic, second DIV 3600 AS hour, second, broker,
       sum(chosen) AS chosen, sum(chosen_s) AS chosen_s
FROM seconds WHERE chosen > 0 GROUP BY run, topic, second, broker
"""
"""The batches whose broker was chosen, per second."""

BLOCKS = """
SELECT b.run, (block - begun) DIV length AS block, sum(batches) AS batches,
       sum(actual_s) AS actual_s, sum(uniform_s) AS uniform_s, sum(assumed) AS assumed,
       sum(unjudged) AS unjudged
FROM blocks b
     JOIN (SELECT run, min(block) AS begun,
                  CAST(ceil((max(block) - min(block) + 1) / :most) AS BIGINT) AS length
           FROM blocks GROUP BY run) l ON b.run = l.run
GROUP BY b.run, (block - begun) DIV length ORDER BY 1, 2
"""
"""At most ``:most`` blocks of equal length for each run."""
