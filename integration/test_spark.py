"""``format("kafkaclient")`` on real Spark and real brokers, against aiokafka."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

import kafkaclient.spark
from benchmarks.telemetry_facts import Shape, write_run
from integration.spark_support import BEGAN, fill
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import ConfigError
from kafkaclient.spark import count_bytes, progress, register
from kafkaclient.spark.report import queries
from kafkaclient.spark.report.follow import following
from kafkaclient.spark.report.job import aggregate
from kafkaclient.spark.report.queries import find_runs
from tests.code_blocks import runs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.timeout(300),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def rows_of(frame: Any, *columns: str) -> list[tuple]:
    return sorted(
        tuple(bytes(v) if isinstance(v, bytearray) else v for v in row)
        for row in frame.select(*columns).collect()
    )


@runs("docs/how-to/spark.md", having="flights.csv")
async def test_the_program_of_the_page(
    spark, spark_options, topic, create_topic, read_topic, tmp_path, monkeypatch, block
):
    await create_topic(topic, 2)
    (tmp_path / "flights.csv").write_text("carrier,delay\nUA,12\nAA,3\n")
    monkeypatch.setattr(kafkaclient.spark, "spark_session", lambda *_: spark)
    replaced = {
        "localhost:9092": spark_options["kafka.bootstrap.servers"],
        "flights.csv": str(tmp_path / "flights.csv"),
        '="flights"': f'="{topic}"',
    }
    names = block.run(replaced=replaced)
    assert names["flights"].isStreaming
    found = sorted((record.key, json.loads(record.value)) for record in await read_topic(topic))
    expected = [(b"AA", "3"), (b"UA", "12")]
    assert found == [(key, {"carrier": key.decode(), "delay": delay}) for key, delay in expected]


@pytest.mark.full
@runs("docs/concepts/stream-processors.md", having="readStream")
async def test_words_in_windows(
    spark, spark_options, topic, create_topic, kafka_cluster, monkeypatch, block
):
    await create_topic(topic, 2)
    async with AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap) as producer:
        for line in (b"to be or", b"not to be"):
            await producer.send_and_wait(topic, line)
    monkeypatch.setattr(kafkaclient.spark, "spark_session", lambda *_: spark)
    names = block.run(
        replaced={
            "localhost:9092": kafka_cluster.bootstrap,
            '"lines"': f'"{topic}"',
            # To be seen from here.
            '"update"': '"complete"',
            'format("console")': 'format("memory").queryName("windows")',
        }
    )
    try:
        names["query"].processAllAvailable()
        found = spark.sql("select word, sum(count) from windows group by word").collect()
    finally:
        names["query"].stop()
    assert {row[0]: row[1] for row in found} == {"to": 2, "be": 2, "or": 1, "not": 1}


@pytest.mark.full
async def test_rows_of_fifty_megabytes(spark, spark_options, topic, create_topic):
    """Above the usual limits of topics, producers and fetches. Read with a reader's own limits."""
    await create_topic(topic, 2, config={"max.message.bytes": "60000000"})
    sizes = {"a": 50_000_000, "b": 10, "c": 50_000_000}
    frame = spark.createDataFrame(list(sizes.items()), "key string, size int").selectExpr(
        "key", "cast(repeat(key, size) as binary) value"
    )
    writer = frame.coalesce(1).write.format("kafkaclient").mode("append")
    larger = {"kafka.max.request.size": "60000000", "kafka.buffer.memory": "120000000"}
    writer.options(**spark_options, **larger, topic=topic).save()
    reader = spark.read.format("kafkaclient").options(**spark_options, subscribe=topic)
    found = reader.load().selectExpr("cast(key as string) k", "length(value) n", "md5(value) sum")
    expected = [
        (key, size, hashlib.md5(key.encode() * size, usedforsecurity=False).hexdigest())
        for key, size in sizes.items()
    ]
    assert rows_of(found, "k", "n", "sum") == expected


async def test_written_by_spark_read_by_aiokafka(
    spark, spark_options, topic, create_topic, read_topic
):
    """To the topics and partitions that the rows say; found without being registered."""
    await create_topic(topic, 2)
    await create_topic(f"{topic}-b", 2)
    frame = spark.range(0, 400, numPartitions=3).selectExpr(
        "if(id % 3 = 0, null, concat('k', id)) key",
        "if(id % 50 = 0, null, cast(concat('v', id) as binary)) value",
        f"if(id % 4 = 0, '{topic}-b', '{topic}') topic",
        "if(id % 5 = 0, 1, null) partition",
        "if(id % 7 = 0, array(named_struct('key', 'n', 'value', cast(id as string))), null) h",
        "id as offset",  # not written, as with the JVM's connector
    )
    headers = "transform(h, e -> named_struct('key', e.key, 'value', cast(e.value as binary)))"
    frame = frame.withColumn("headers", _expression(headers)).drop("h")
    frame.write.format("kafkaclient").mode("append").options(**spark_options).save()
    found = {}
    for name in (topic, f"{topic}-b"):
        for record in await read_topic(name):
            found.setdefault((name, record.key, record.value), []).append(record)
    expected = [
        (
            f"{topic}-b" if n % 4 == 0 else topic,
            None if n % 3 == 0 else b"k%d" % n,
            None if n % 50 == 0 else b"v%d" % n,
        )
        for n in range(400)
    ]
    assert sorted(found, key=repr) == sorted(set(expected), key=repr)
    assert sum(map(len, found.values())) == 400
    for n in range(1, 400):
        if n % 50:
            (record,) = found[expected[n]]
            assert record.headers == ((("n", b"%d" % n),) if n % 7 == 0 else ())
            assert record.partition == 1 or n % 5


def _expression(text: str) -> Any:
    from pyspark.sql import functions  # noqa: PLC0415 - with Spark only

    return functions.expr(text)


async def test_written_by_aiokafka_read_by_spark(
    spark, spark_options, topic, create_topic, read_topic
):
    await create_topic(topic, 3)
    await fill(spark_options["kafka.bootstrap.servers"], topic, range(600))
    theirs = await read_topic(topic)
    reader = spark.read.format("kafkaclient").options(**spark_options)
    whole = reader.options(subscribe=topic, includeHeaders="true", minPartitions="5").load()
    assert whole.rdd.getNumPartitions() >= 5
    columns = ["partition", "offset", "unix_millis(timestamp)", "key", "value", "headers"]
    ours = [
        (p, o, t, k and bytes(k), bytes(v), tuple((n, bytes(c)) for n, c in h or ()))
        for p, o, t, k, v, h in whole.selectExpr(*columns).collect()
    ]
    assert sorted(ours, key=lambda r: r[:2]) == sorted(map(tuple, theirs), key=lambda r: r[:2])
    assert {tuple(row) for row in whole.select("topic", "timestampType").distinct().collect()} == {
        (topic, 0)
    }
    # Some of it: by offsets, and by time.
    reader = spark.read.format("kafkaclient").options(**spark_options)
    starts = json.dumps({topic: {"0": 190, "1": -2}})
    some = reader.options(
        assign=json.dumps({topic: [0, 1]}),
        startingOffsets=starts,
        endingOffsets=json.dumps({topic: {"0": -1, "1": 3}}),
    ).load()
    assert rows_of(some, "partition", "offset") == [
        *((0, n) for n in range(190, 200)),
        *((1, n) for n in range(3)),
    ]
    reader = spark.read.format("kafkaclient").options(
        **spark_options, subscribePattern=f"{topic[:-1]}."
    )
    late = reader.options(
        startingTimestamp=f"{BEGAN + 580}", endingTimestamp=f"{BEGAN + 590}"
    ).load()
    assert rows_of(late, "value") == sorted((b"%d" % n,) for n in range(580, 590))


@pytest.mark.full
async def test_a_stream_goes_on_from_its_checkpoint(
    spark, spark_options, topic, create_topic, read_topic, tmp_path
):
    bootstrap = spark_options["kafka.bootstrap.servers"]
    await create_topic(topic, 3)
    await create_topic(f"{topic}-out", 2)
    await fill(bootstrap, topic, range(300))

    def run() -> list[int]:
        frame = spark.readStream.format("kafkaclient").options(**spark_options)
        frame = frame.options(subscribe=topic, startingOffsets="earliest")
        frame = frame.option("maxOffsetsPerTrigger", 120).load()
        query = (
            frame.select("key", "value")
            .writeStream.format("kafkaclient")
            .options(**spark_options, topic=f"{topic}-out", checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    assert run() == [120, 120, 60]
    await fill(bootstrap, topic, range(300, 360))
    assert run() == [60]
    found = [record.value for record in await read_topic(f"{topic}-out")]
    assert sorted(found) == sorted(b"%d" % n for n in range(360))


async def test_counts_with_their_lag(
    spark, spark_options, topic, create_topic, read_topic, kafka_cluster, tmp_path
):
    """Output mode complete; a query's progress, for itself and for tools that show a group."""
    await create_topic(topic, 2)
    await create_topic(f"{topic}-out", 1)
    await fill(spark_options["kafka.bootstrap.servers"], topic, range(60), 2)
    frame = spark.readStream.format("kafkaclient").options(**spark_options, subscribe=topic)
    frame = frame.options(startingOffsets="earliest", maxOffsetsPerTrigger="40", columns="value")
    frame = count_bytes(frame.option("commitOffsetsToGroup", f"{topic}-lag").load())
    assert frame.columns == ["value"]
    counts = frame.selectExpr("length(value) size").groupBy("size").count()
    query = (
        counts.selectExpr("cast(size as string) key", "cast(count as string) value")
        .writeStream.format("kafkaclient")
        .outputMode("complete")
        .options(**spark_options, topic=f"{topic}-out", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    async with Admin(kafka_cluster.bootstrap) as admin:
        committed = await admin.committed_offsets(f"{topic}-lag")
        assert (await admin.describe_group(f"{topic}-lag")).state == "Empty"
    assert committed == {(topic, 0): 30, (topic, 1): 30}
    # Every row of the result, after each batch.
    found = [(record.key, int(record.value)) for record in await read_topic(f"{topic}-out")]
    assert sorted(found[2:]) == [(b"1", 10), (b"2", 50)]
    assert sum(count for _, count in found[:2]) == 40
    done = [found for found in map(progress, query.recentProgress) if found.sources[0].rows]
    assert [each.sources[0].rows for each in done] == [40, 20]
    assert [(each.sources[0].offsets, each.sources[0].behind) for each in done] == [
        (None, {(topic, 0): 10, (topic, 1): 10}),
        (20, {(topic, 0): 0, (topic, 1): 0}),
    ]
    assert sum(each.bytes for each in done) == 10 + 2 * 50


@pytest.mark.full
async def test_changed_counts(spark, spark_options, topic, create_topic, read_topic, tmp_path):
    """Output mode update: refused by Spark for a Python sink, so through foreachBatch."""
    await create_topic(topic, 1)
    await create_topic(f"{topic}-out", 1)
    await fill(spark_options["kafka.bootstrap.servers"], topic, range(20), 1)
    frame = spark.readStream.format("kafkaclient").options(**spark_options, subscribe=topic)
    frame = frame.options(startingOffsets="earliest", maxOffsetsPerTrigger="10").load()
    counts = frame.groupBy("value").count().selectExpr("value", "cast(count as string) key")
    writer = counts.writeStream.outputMode("update").trigger(availableNow=True)
    sink = {**spark_options, "topic": f"{topic}-out"}
    refused = writer.format("kafkaclient").options(**sink)
    with pytest.raises(Exception, match="does not support Update mode"):
        refused.start(checkpointLocation=str(tmp_path / "no")).awaitTermination(120)

    def write(batch: Any, _: int) -> None:
        batch.write.format("kafkaclient").mode("append").options(**sink).save()

    writer = counts.writeStream.outputMode("update").trigger(availableNow=True)
    query = writer.foreachBatch(write).option("checkpointLocation", str(tmp_path / "ok")).start()
    assert query.awaitTermination(200)
    found = [(record.value, record.key) for record in await read_topic(f"{topic}-out")]
    assert sorted(found) == sorted((b"%d" % n, b"1") for n in range(20))


@pytest.mark.full
async def test_filters_leave_out_ranges(spark, spark_options, topic, create_topic):
    await create_topic(topic, 3)
    await fill(spark_options["kafka.bootstrap.servers"], topic, range(300))
    reader = spark.read.format("kafkaclient").options(**spark_options, subscribe=topic)
    for where, tasks, rows in (
        ("partition = 1", 1, 100),
        ("partition in (0, 2) and offset >= 90", 2, 20),
        ("offset < 5 or partition = 1", 3, 110),  # cannot be divided
        (f"timestamp >= timestamp_millis({BEGAN + 299})", 1, 1),
        (f"topic = '{topic}-other'", 0, 0),
    ):
        for enabled in ("true", "false"):
            spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
            try:
                frame = reader.load().where(where)
                assert frame.count() == rows
                expected = max(1, tasks) if enabled == "true" else 3
                assert frame.rdd.getNumPartitions() == expected, (where, enabled)
            finally:
                spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.full
async def test_mistakes_are_told_before_any_task_runs(spark, spark_options, topic, create_topic):
    """And no secret is in what Spark tells of a query."""
    await create_topic(topic, 1)
    register(spark)  # does no harm to a session that has found the source by itself
    secrets = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="me" password="hush-hush";',
        "kafka.ssl.key.password": "hush-hush",
    }
    frame = spark.range(10).selectExpr("cast(id as string) value")

    def write(frame: Any, mode: str = "append", **extra: str) -> None:
        frame.write.format("kafkaclient").mode(mode).options(**spark_options, **extra).save()

    def read(**extra: str) -> None:
        spark.read.format("kafkaclient").options(**spark_options, **extra).load().collect()

    for act, said in (
        (lambda: write(frame.selectExpr("1 value"), topic=topic), "column value is of type INT"),
        (lambda: write(frame), "give the option or the column topic"),
        (lambda: write(frame, "overwrite", topic=topic), "cannot be overwritten"),
        (lambda: write(frame, topic=topic, tropic="x"), "did you mean topic"),
        (lambda: write(frame, **{"kafka.acks": "x", **secrets}, topic=topic), "acks"),
        (lambda: read(subscribe=topic, startingOfsets="x"), "did you mean startingOffsets"),
        (lambda: read(subscribe=f"{topic}-none"), f"{topic}-none"),
        (
            lambda: read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 7}})),
            f"startingOffsets has offset 7 for {topic}-0, which has 0 to 0",
        ),
        (
            lambda: read(subscribe=topic, startingOffsets=json.dumps({topic: {"1": 0}})),
            f"must name every partition; {topic}-0 is missing",
        ),
    ):
        with pytest.raises(Exception, match=r".") as refused:
            act()
        assert said in str(refused.value)
        assert "hush" not in str(refused.value)
    hidden = (
        spark.read.format("kafkaclient").options(**spark_options, **secrets, subscribe=topic).load()
    )
    plan = hidden._jdf.queryExecution()
    assert "hush" not in plan.logical().toString() + plan.analyzed().toString()
    assert "hush" not in plan.logical().treeString() + plan.analyzed().toJSON()


@pytest.mark.full
async def test_a_task_that_fails_says_which_row(spark, spark_options, topic, create_topic):
    await create_topic(topic, 1)
    frame = spark.range(0, 100, numPartitions=1)
    bad = frame.selectExpr("cast(id as string) value", "if(id = 42, 9, 0) partition")
    with pytest.raises(Exception, match=r"row 42 of partition 0") as failed:
        bad.write.format("kafkaclient").mode("append").options(**spark_options, topic=topic).save()
    assert f"topic {topic!r}" in str(failed.value)
    assert ".;" not in str(failed.value)


@pytest.mark.full
async def test_telemetry_is_followed_while_it_is_written(
    spark, spark_options, topic, create_topic, tmp_path
):
    """A producer writes telemetry to a topic. The figures are those of its batches, soon."""
    facts = f"{topic}-facts"
    await create_topic(topic, 3)
    await create_topic(facts, 1)
    views: list[dict[str, Any]] = []
    client = {"bootstrap.servers": spark_options["kafka.bootstrap.servers"]}

    def sent() -> dict[str, Any]:
        return next((v for v in views if v["all"] and v["all"]["records"] == 300), {})

    async with Producer(client["bootstrap.servers"]) as other:
        await other.send_and_wait(facts, b"not telemetry")
    with following(spark, facts, client, time.time() - 60, tmp_path, views.append):
        async with Producer(client["bootstrap.servers"], telemetry=f"topic:{facts}") as producer:
            for number in range(300):
                producer.send_nowait(topic, b"value", key=b"%d" % number)
            await producer.flush()
            deadline = time.monotonic() + 60
            while not sent() and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
    view = sent()
    assert sum(row["records"] for row in view["partitions"]) == 300
    assert {row["topic"] for row in view["partitions"]} == {topic}
    assert all(row["append"] == row["batches"] for row in view["partitions"]), "keys"
    assert sum(view["skipped"].values()) == 1
    assert view["all"]["p50_ms"] <= view["all"]["p99_ms"]
    assert sum(row["share"] for row in view["brokers"]) == pytest.approx(1)
    text = (tmp_path / "live.js").read_text()
    assert json.loads(text.removeprefix("show(").removesuffix(");\n"))["all"]["records"] == 300


@pytest.mark.full
def test_queries_of_the_report(spark) -> None:
    """A second counts once in the skew of brokers, whatever its number of topics. Batches whose
    partition was given are in no figure of a run's decisions."""
    sent = [(second, "a", broker, 10) for second in (1, 2, 3) for broker in (0, 1)]
    sent += [(1, "b", 0, 40), (1, "c", 0, 40)]
    seconds = [(0, second, topic, broker, broker, size, 1) for second, topic, broker, size in sent]
    columns = (
        "run INT, second LONG, topic STRING, partition INT, broker INT, bytes INT, records INT"
    )
    spark.createDataFrame(seconds, columns).createOrReplaceTempView("seconds")
    spark.sql(queries.SKEW).createOrReplaceTempView("skew")
    (skew,) = spark.sql(queries.SKEWED).collect()
    assert skew.broker_skew_p50 == 1.0
    assert skew.broker_skew_p99 == pytest.approx(90 * 2 / 100)
    assert (skew.partition_skew_p50, skew.partition_skew_p99) == (1.0, 1.0)

    judged = [
        (0, 0, "late", True, 4.0, 0.4, 0.4, 0.4, 1.0),
        (0, 1, "append", True, 4.0, 0.4, 0.4, 0.4, 0.0),
        (0, 1, "append", False, 8.0, 9.0, 9.0, 9.0, 8.0),
    ]
    columns = "run INT, broker INT, bound_by STRING, is_chosen BOOLEAN, batches DOUBLE"
    figures = (f"{name} DOUBLE" for name in ("total_s", "others_s", "best_s", "regretted"))
    spark.createDataFrame(judged, ", ".join((columns, *figures))).createOrReplaceTempView(
        "decisions"
    )
    found = {
        (row.broker, row.bound_by): (row.batches, row.regretted)
        for row in spark.sql(queries.DECISIONS).collect()
    }
    assert found == {
        (None, None): (8, 0.125),
        (0, None): (4, 0.25),
        (1, None): (4, 0.0),
        (None, "late"): (4, 0.25),
        (None, "append"): (12, pytest.approx(8 / 12)),
    }


class Unshared:
    """A session whose driver does not see all files that workers wrote."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        if name == "read":
            next(self._folder.rglob("kind=seconds/*.parquet")).unlink()
        return getattr(self._spark, name)


def test_a_report_needs_a_folder_that_workers_share(spark, tmp_path) -> None:
    write_run(tmp_path / "facts", Shape(2000), seed=1)
    runs = find_runs([str(tmp_path / "facts")])
    with pytest.raises(ConfigError, match="--out must be a folder that all machines share"):
        aggregate(Unshared(spark, tmp_path), runs, tmp_path / "tables")
