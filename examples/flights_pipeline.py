"""A pipeline on Spark: flights from CSV to Kafka, delays by carrier back to Kafka, and a report.

    python examples/flights_pipeline.py build/flights

The program starts a Kafka broker and a standalone Spark cluster with two workers on 127.0.0.1, and
stops them at the end. It needs ``pip install 'kafkaclient[report,demo]'``. The steps are:

publish  A batch job reads the 336,776 flights that left New York City in 2013 from a CSV file, and
         writes them to the topic ``flights``. Each record's key is the carrier.
process  A streaming query reads that topic, and writes flights and delays by day and carrier to the
         topic ``delays``, exactly once. A day is written when the watermark has passed it. With
         ``--kill`` the program kills an executor in the middle.
check    The program compares the committed records of ``delays`` with pandas' figures for the file.
report   ``kafkaclient report`` shows how the producers of both jobs did: OUT/report/report.html.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from flights import csv_file
from pyspark.sql import functions as f
from standalone_spark import executors, standalone_spark

from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.spark import spark_session
from kafkaclient.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "time_hour TIMESTAMP, carrier STRING, flight INT, dep_delay INT"
FLIGHT = ["time_hour", "carrier", "flight"]  # identifies a flight
LATENESS = "30 days"
"""Partitions are read in proportion to their records, so their times are some days apart."""
END = '{"time_hour": "2014-12-31T00:00:00Z", "carrier": "-", "flight": 0}'
"""Written last: it moves the watermark past the last flight. Its own day is never done."""
BUSIEST = "UA"
"""END follows this carrier's flights. In a partition with few flights, END would be read early, and
the remaining flights of other partitions would be too late."""

Options = dict[str, str]


async def make_topics(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        for name in ("flights", "delays"):
            await admin.create_topic(name, 6, 1)


def publish(spark: Any, options: Options, csv: Path, telemetry: Path) -> None:
    # The file's months are not in order; in the topic, each carrier's flights are.
    flights = spark.read.csv(str(csv), header=True, nullValue="NA", inferSchema=True)
    flights = flights.coalesce(1).sortWithinPartitions("time_hour")
    rows = flights.select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
    end = spark.createDataFrame([(BUSIEST, END)], "key string, value string")
    for frame in (rows, end):
        writer = frame.write.format("kafkaclient").mode("append").options(**options)
        writer.options(topic="flights", **{"kafka.telemetry": str(telemetry)}).save()


def delays(records: Any) -> Any:
    """By day and carrier. A flight that a repeated task has written twice counts once."""
    flight = f.from_json(f.col("value").cast("string"), SCHEMA)
    flights = records.select(flight.alias("flight")).select("flight.*")
    once = flights.withWatermark("time_hour", LATENESS).dropDuplicatesWithinWatermark(FLIGHT)
    days = once.groupBy(f.window("time_hour", "1 day"), "carrier").agg(
        f.count("*").alias("flights"), f.avg("dep_delay").alias("delay")
    )
    day = f.date_format("window.start", "yyyy-MM-dd").alias("day")
    return days.select(day, "carrier", "flights", "delay")


def process(
    spark: Any, options: Options, out: Path, telemetry: Path, *, per_trigger: int, kill: bool
) -> None:
    stream = spark.readStream.format("kafkaclient").options(**options, subscribe="flights")
    stream = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(per_trigger))
    query = (
        delays(stream.load())
        .select(
            f.concat_ws(" ", "day", "carrier").alias("key"), f.to_json(f.struct("*")).alias("value")
        )
        .writeStream.format("kafkaclient")
        .options(**options, topic="delays", exactlyOnce="true", ledgerReplicationFactor="1")
        .option("kafka.telemetry", str(telemetry))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if kill:
        while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < 1:
            time.sleep(0.1)
        victim = executors(spark)[0]
        victim.kill()
        print(f"killed executor {victim.pid} after batch {query.lastProgress['batchId']}")
    query.awaitTermination()
    print(f"the streaming query is done: {query.lastProgress['batchId'] + 1} batches")


def check_delays(spark: Any, options: Options, csv: Path) -> None:
    """Raises AssertionError unless the topic has each day of each carrier once, as pandas has."""
    flights = pd.read_csv(csv, usecols=[*FLIGHT, "dep_delay"])
    groups = flights.groupby([flights.time_hour.str[:10].rename("day"), "carrier"]).dep_delay
    expected = groups.agg(flights="size", delay="mean").reset_index()
    reader = spark.read.format("kafkaclient").options(**options, subscribe="delays")
    reader = reader.option("kafka.isolation.level", "read_committed")
    values = [json.loads(row.value) for row in reader.load().select("value").collect()]
    found = pd.DataFrame(values, columns=[*expected.columns])
    found = found.sort_values(["day", "carrier"], ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-12)
    print(f"{len(found):,} days and carriers, {found.flights.sum():,} flights: as in pandas")


def report(master: str, out: Path, telemetry: Mapping[str, Path]) -> None:
    """Raises AssertionError if the report does not have pandas' sums over the same files."""
    command = Path(sysconfig.get_path("scripts")) / "kafkaclient"
    folders = [str(folder) for folder in telemetry.values()]
    arguments = ["report", *folders, "--master", master, "--out", str(out / "report")]
    subprocess.run([str(command), *arguments], check=True)
    runs = json.loads((out / "report" / "summary.json").read_text("utf-8"))["runs"]
    for (name, folder), run in zip(telemetry.items(), runs, strict=True):
        batches = pd.concat(map(pd.read_parquet, folder.rglob("*.parquet")))
        delivered = batches[batches.error.isna()]
        for what, figure in {
            "batches": len(batches),
            "records": delivered.records.sum(),
            "bytes": delivered.bytes.sum(),
            "failed_records": batches[batches.error.notna()].records.sum(),
        }.items():
            assert run[what] == figure, (name, what, run[what], figure)
        print(f"{name}: {run['records']:,} records in {run['batches']:,} batches")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="a directory that does not exist yet")
    parser.add_argument("--per-trigger", type=int, default=60_000, help="records of a batch")
    parser.add_argument("--kill", action="store_true", help="kill an executor in the middle")
    given = parser.parse_args()
    out = given.out.resolve()
    out.mkdir(parents=True)
    csv = out / "flights.csv"
    csv.write_bytes(csv_file())
    telemetry = {name: out / "telemetry" / name for name in ("publish", "process")}
    config = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    cluster = LocalCluster(1, directory=out / "kafka")
    try:
        asyncio.run(cluster.start())
        asyncio.run(make_topics(cluster.bootstrap))
        options = {"kafka.bootstrap.servers": cluster.bootstrap}
        with standalone_spark(out / "spark") as master:
            spark = spark_session("flights", master, config)
            try:
                publish(spark, options, csv, telemetry["publish"])
                small = {"per_trigger": given.per_trigger, "kill": given.kill}
                process(spark, options, out, telemetry["process"], **small)
                check_delays(spark, options, csv)
            finally:
                spark.stop()
            report(master, out, telemetry)
    except KafkaError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        asyncio.run(cluster.stop())
    return 0


if __name__ == "__main__":
    sys.exit(main())
