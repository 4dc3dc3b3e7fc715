"""One Spark, kept warm, which does what lines of JSON on its stdin say and answers on its stdout.

The command is ``python worker.py FORMAT [SETTING=VALUE ...]``. The program imports nothing of this
project, so it also runs in an environment with another PySpark: Spark's own connector needs one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from collections.abc import Callable

CORES = 2
_POLL_S = 0.05
_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.12:{}"

Settings = dict[str, Any]
Frame = Any


def _session(connector: str, settings: list[str]) -> Any:
    builder = pyspark.sql.SparkSession.builder.appName("benchmark").master(f"local[{CORES}]")
    config = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(CORES),
    }
    if connector == "kafka":
        config["spark.jars.packages"] = _PACKAGE.format(pyspark.__version__)
    config |= dict(each.split("=", 1) for each in settings)
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _write(spark: Any, connector: str, given: Settings) -> dict[str, Any]:
    rows = spark.range(0, given["rows"], numPartitions=CORES)
    # Rows that differ, so that neither side gets away with one value; their making is measured too.
    frame = rows.selectExpr("cast(lpad(cast(id as string), 100, 'kafka') as binary) value")
    writer = frame.write.format(connector).mode("append")
    writer.options(**{**given["options"], "topic": given["topic"]}).save()
    return {"rows": given["rows"]}


def _make(spark: Any, _connector: str, given: Settings) -> dict[str, Any]:
    # What the rows cost without Kafka: the part of a write that is the same on both sides.
    rows = spark.range(0, given["rows"], numPartitions=CORES)
    frame = rows.selectExpr("cast(lpad(cast(id as string), 100, 'kafka') as binary) value")
    frame.write.format("noop").mode("overwrite").save()
    return {"rows": given["rows"]}


def _read(spark: Any, connector: str, given: Settings) -> dict[str, Any]:
    reader = spark.read.format(connector).options(**given["options"])
    frame = reader.option("subscribe", given["topic"]).load()
    rows, size = frame.selectExpr("count(*)", "sum(length(value))").first()
    return {"rows": rows, "bytes": size}


def _copy(spark: Any, connector: str, given: Settings) -> dict[str, Any]:
    """A stream from one topic to another for so many seconds; values say when they were made."""
    source = spark.readStream.format(connector).options(**given["options"])
    frame = source.options(subscribe=given["topic"], startingOffsets="earliest").load()
    stamped = "cast(unix_millis(timestamp) as string)"
    writer = frame.selectExpr(f"rpad({stamped}, 100, 'kafka') value").writeStream.format(connector)
    writer = writer.options(**given["options"], topic=given["to"])
    writer = writer.option("checkpointLocation", given["checkpoint"])
    writer = writer.trigger(processingTime=given["trigger"])
    began = time.perf_counter()
    query = writer.start()
    print(json.dumps({"started": True}), file=_answers, flush=True)
    while query.isActive and not query.recentProgress:
        time.sleep(_POLL_S)
    first = time.perf_counter() - began
    query.awaitTermination(given["seconds"])
    if query.isActive:
        query.stop()
    elif query.exception() is not None:
        raise query.exception()
    progress = [
        {
            "rows": one["numInputRows"],
            "ms": one["durationMs"].get("triggerExecution", 0),
            "steps_ms": one["durationMs"],
        }
        for one in (json.loads(p.json) if hasattr(p, "json") else p for p in query.recentProgress)
    ]
    return {"batches": progress, "first_batch_s": first}


_JOBS: dict[str, Callable[[Any, str, Settings], dict[str, Any]]] = {
    "make": _make,
    "write": _write,
    "read": _read,
    "copy": _copy,
}

# Spark and what it starts may print; answers have a descriptor of their own.
_answers = os.fdopen(os.dup(1), "w")


def main() -> None:
    """Until stdin ends."""
    os.dup2(2, 1)
    connector = sys.argv[1]
    spark = _session(connector, sys.argv[2:])
    print(json.dumps({"spark": spark.version}), file=_answers, flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        began = time.perf_counter()
        done = _JOBS[given["do"]](spark, connector, given)
        done["seconds"] = time.perf_counter() - began
        print(json.dumps(done), file=_answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
