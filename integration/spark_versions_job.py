"""What integration/test_spark_versions.py runs on each version of PySpark.

Writes and reads a topic in batches, then copies it with a stream. Prints what it has found, as one
line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kafkaclient.spark import register, spark_session

ROWS = 300


def write(spark: Any, options: dict[str, str], topic: str) -> None:
    rows = spark.range(0, ROWS, numPartitions=2).selectExpr(
        "if(id % 3 = 0, null, concat('k', id)) key",
        "concat('v', id) value",
        "cast(id % 2 as int) partition",
        "if(id % 7 = 0, array(named_struct('key', 'n', 'value', binary('x'))), null) headers",
    )
    rows.write.format("kafkaclient").mode("append").options(**options, topic=topic).save()


def read(spark: Any, options: dict[str, str], topic: str) -> list[list[Any]]:
    """All but the first ten of partition 0."""
    frame = spark.read.format("kafkaclient").options(**options, subscribe=topic)
    frame = frame.option("includeHeaders", "true").option("minPartitions", "4")
    frame = frame.option("startingOffsets", json.dumps({topic: {"0": 10, "1": -2}})).load()
    found = frame.selectExpr(
        "partition", "offset", "string(key)", "string(value)", "string(headers[0].value)"
    )
    return sorted([*row] for row in found.collect())


def copy(spark: Any, options: dict[str, str], topic: str, checkpoint: str) -> str:
    """The error of the stream, or nothing."""
    frame = spark.readStream.format("kafkaclient").options(
        **options, subscribe=topic, startingOffsets="earliest"
    )
    stream = frame.load().select("key", "value").writeStream.format("kafkaclient")
    stream = stream.options(**options, topic=f"{topic}-out", checkpointLocation=checkpoint)
    stream = stream.options(exactlyOnce="true", transactionalIdPrefix=topic)
    try:
        query = stream.trigger(availableNow=True).start()
        if not query.awaitTermination(120):
            return "the stream has not ended"
    except Exception as error:  # noqa: BLE001 - of several types, by version
        return str(error)
    return ""


def main(bootstrap: str, topic: str, master: str, checkpoint: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap}
    config = {} if master.startswith("sc:") else {"spark.driver.memory": "1g"}
    spark = spark_session("versions", master, config)
    register(spark)
    write(spark, options, topic)
    rows = read(spark, options, topic)
    failure = copy(spark, options, topic, checkpoint)
    print(json.dumps({"spark": spark.version, "rows": rows, "stream": failure}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
