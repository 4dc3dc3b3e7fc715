"""A pipeline on Spark: flights to Kafka, delays by day out of it, to Parquet, a topic and a page.

    kafkaclient cluster up
    python examples/flights_pipeline.py 127.0.0.1:PORT --out build/flights

Three steps, each of which can be run by itself (``--only publish``):

publish  the 336,776 flights that left New York in 2013, keyed by carrier, to the topic ``flights``
process  a stream over that topic: flights and their mean delay by day, carrier and airport, in
         event time. A day is done when the watermark has passed it; then it goes to ``OUT/delays``
         as Parquet, and to the topic ``delays`` as JSON
report   ``OUT/report.html``, and a comparison with the same figures from a batch read

``process`` may be killed and started again at any time: it goes on from its checkpoint. Each of its
batches has a directory of its own, which is overwritten when the batch is done again, so that the
table has each day once. In the topic ``delays`` a day may come twice then, with the same key and
the same figures.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from flights import flights
from pyspark.sql import functions as f

from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError, TopicExistsError
from kafkaclient.pages.page import write_page
from kafkaclient.spark import spark_session

SCHEMA = "time_hour TIMESTAMP, carrier STRING, origin STRING, dep_delay DOUBLE"
LATENESS = "30 days"
"""Partitions are read in proportion to their records, so their times run apart by some days."""
END = b'{"time_hour": "2014-12-31 00:00:00", "carrier": "-", "origin": "-"}'
"""Published last: it moves the watermark past the last flight. Its own day is never done."""
BUSIEST = b"UA"
"""END goes behind this carrier's flights. A partition with few of them, or none, would be read to
its end in the first batches, and all that came later would be too late."""


async def make_topics(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        for name, config in (("flights", {}), ("delays", {"cleanup.policy": "compact"})):
            try:
                await admin.create_topic(name, 6, 1, configs=config)
            except TopicExistsError:
                print(f"topic {name} is there: using it as it is")


def publish(spark: Any, options: dict[str, str], limit: int | None) -> None:
    rows = [*flights(limit, keyed=True), (BUSIEST, END)]
    table = pa.table({"key": [key for key, _ in rows], "value": [value for _, value in rows]})
    frame = spark.createDataFrame(table).coalesce(1)  # in order of time
    frame.write.format("kafkaclient").mode("append").options(**options, topic="flights").save()
    print(f"published {len(rows) - 1:,} flights")


def delays(records: Any) -> Any:
    """By day, carrier and airport; of a stream as of a batch."""
    flight = f.from_json(f.col("value").cast("string"), SCHEMA)
    parsed = records.select(flight.alias("flight")).select("flight.*")
    days = parsed.withWatermark("time_hour", LATENESS).groupBy(
        f.window("time_hour", "1 day"), "carrier", "origin"
    )
    return days.agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("delay")).select(
        f.col("window.start").alias("day"), "carrier", "origin", "flights", "delay"
    )


def process(spark: Any, options: dict[str, str], out: Path, per_trigger: int) -> None:
    def keep(days: Any, number: int) -> None:
        days.persist()  # it is written twice
        days.write.mode("overwrite").parquet(str(out / "delays" / f"batch={number}"))
        days.select(
            f.concat_ws(" ", f.to_date("day").cast("string"), "carrier", "origin").alias("key"),
            f.to_json(f.struct("day", "carrier", "origin", "flights", "delay")).alias("value"),
        ).write.format("kafkaclient").mode("append").options(**options, topic="delays").save()
        days.unpersist()
        print(f"batch {number} is done")

    stream = spark.readStream.format("kafkaclient").options(
        **options,
        subscribe="flights",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(per_trigger),
    )
    query = (
        delays(stream.load())
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(out / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def report(spark: Any, options: dict[str, str], out: Path) -> bool:
    """Whether the table has the same days as a batch read of the topic."""
    order = ["day", "carrier", "origin"]
    table = spark.read.parquet(str(out / "delays")).select(*order, "flights", "delay")
    batch = spark.read.format("kafkaclient").options(**options, subscribe="flights").load()
    expected = delays(batch).where("carrier != '-'")
    missing, extra = expected.exceptAll(table).count(), table.exceptAll(expected).count()
    figures = {}
    for column in ("carrier", "origin"):
        weighted = f.sum(f.col("delay") * f.col("flights")) / f.sum("flights")
        daily = table.where("delay IS NOT NULL").groupBy(column, "day")
        means: dict[str, list[tuple[str, float]]] = {}
        for word, day, mean in daily.agg(weighted).orderBy(column, "day").collect():
            means.setdefault(word, []).append((str(day.date()), round(mean, 2)))
        figures[f"by-{column}"] = {
            "data": [
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": word,
                    "x": [day for day, _ in values],
                    "y": [mean for _, mean in values],
                }
                for word, values in means.items()
            ],
            "layout": {"yaxis": {"title": {"text": "mean delay of departures, minutes"}}},
        }
    total, windows = table.agg(f.sum("flights"), f.count("*")).first()
    body = (
        f"<p>{total:,} flights in {windows:,} windows. Against a batch read of the same topic: "
        f"{missing} windows missing, {extra} too many.</p>"
        '<h2>By carrier</h2><div id="by-carrier"></div>'
        '<h2>By airport</h2><div id="by-origin"></div>'
    )
    write_page(
        out / "report.html",
        title="Delays out of New York, 2013",
        body=body,
        figures=figures,
        machine=f"Spark {spark.version}",
    )
    print(f"{missing} windows missing, {extra} too many; see {out / 'report.html'}")
    return missing == extra == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--flights", type=int, help="how many; default: all")
    parser.add_argument("--per-trigger", type=int, default=60_000)
    parser.add_argument("--only", choices=("publish", "process", "report"))
    given = parser.parse_args()
    out = given.out.resolve()
    options = {"kafka.bootstrap.servers": given.bootstrap}
    steps = (given.only,) if given.only else ("publish", "process", "report")
    config = {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    spark = spark_session("flights", given.master, config)
    try:
        if "publish" in steps:
            asyncio.run(make_topics(given.bootstrap))
            publish(spark, options, given.flights)
        if "process" in steps:
            process(spark, options, out, given.per_trigger)
        return 0 if "report" not in steps or report(spark, options, out) else 1
    except KafkaError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
