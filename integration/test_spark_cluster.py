"""The data source on a standalone Spark cluster: a master and two workers, from PySpark."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from benchmarks.telemetry_facts import Shape, write_run
from examples.standalone_spark import executors, standalone_spark
from integration.transaction_stories import read
from kafkaclient import Producer
from kafkaclient.admin import Admin, TxnState
from kafkaclient.spark import spark_session
from kafkaclient.spark.report.counting import counts, judge_decisions
from kafkaclient.spark.report.facts import read_file
from kafkaclient.spark.report.job import Judgement, aggregate
from kafkaclient.spark.report.queries import find_runs
from kafkaclient.testing import ClusterSecurity, LocalCluster, SecureListener

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS = int(os.environ.get("KAFKACLIENT_KILLS", "3"))

pytestmark = [
    pytest.mark.full,
    pytest.mark.local_cluster,
    pytest.mark.timeout(400 + 60 * KILLS),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ROOT = Path(__file__).parents[1]
PARTITIONS = 6  # as transaction_stories reads
USER, SECRET = "spark", "spark-secret"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two executors, so that tasks, planning and the query are in processes of their own."""
    with standalone_spark(tmp_path_factory.mktemp("spark"), memory="512m") as master:
        session = spark_session(
            "test_spark_cluster",
            master,
            {
                "spark.executor.memory": "512m",
                "spark.sql.shuffle.partitions": "2",
                "spark.task.maxFailures": "4",
                # Copies of tasks that are late, but of no task that is slow because the machine is.
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.multiplier": "1.1",
                "spark.speculation.minTaskRuntime": "20s",
                "spark.executorEnv.PYTHONPATH": str(ROOT),
            },
        )
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    listener = SecureListener("SASL_SSL", "SASL_SSL")
    security = ClusterSecurity(users={USER: SECRET, "admin": "admin"}, listeners=(listener,))
    cluster = LocalCluster(1, security=security)
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def test_tls_and_sasl_by_options(spark, secured, topic) -> None:
    options = {
        "kafka.bootstrap.servers": secured.secured_bootstrap("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        f'required username="{USER}" password="{SECRET}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": (secured.certificates / "ca.pem").read_text(),
    }
    frame = spark.range(1000).selectExpr("cast(id as string) key", "cast(id as string) value")
    frame.write.format("kafkaclient").mode("append").options(**options, topic=topic).save()
    back = spark.read.format("kafkaclient").options(**options, subscribe=topic, minPartitions="4")
    found = back.load().selectExpr("cast(value as string) v")
    assert sorted(int(row.v) for row in found.collect()) == list(range(1000))
    wrong = {
        **options,
        "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace(
            SECRET, "not-the-secret"
        ),
    }
    with pytest.raises(Exception, match=r"credentials") as refused:
        spark.read.format("kafkaclient").options(**wrong, subscribe=topic).load().count()
    assert "not-the-secret" not in str(refused.value)


async def test_a_task_that_is_run_again_writes_its_rows_again(
    spark, kafka_cluster, topic, create_topic, read_topic
) -> None:
    """At least once: nothing is missing, and what is there twice is that task's."""
    from pyspark import TaskContext  # noqa: PLC0415 - with Spark only

    await create_topic(topic, 2)

    def fail_once(batches: Any) -> Any:
        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            time.sleep(2)  # its rows are on their way
            os._exit(1)

    frame = spark.range(0, 3000, numPartitions=3).selectExpr("cast(id as string) value")
    frame = frame.mapInArrow(fail_once, frame.schema)
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "topic": topic}
    frame.write.format("kafkaclient").mode("append").options(**options).save()
    values = [int(record.value) for record in await read_topic(topic)]
    assert set(values) == set(range(3000))
    twice = {value for value in values if values.count(value) > 1}
    assert twice <= set(range(1000, 2000))


async def test_of_a_task_and_its_speculative_copy_no_row_is_missing(
    spark, kafka_cluster, topic, create_topic, read_topic, tmp_path
) -> None:
    """At least once: the copy writes all of the task's rows, whatever the first attempt has written
    until it is killed."""
    from pyspark import TaskContext  # noqa: PLC0415 - with Spark only

    await create_topic(topic, 2)
    ended = tmp_path / "ended"

    def stand_still(batches: Any) -> Any:
        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 1:
            if context.attemptNumber() == 0:
                time.sleep(150)
            ended.write_text(str(context.attemptNumber()))

    frame = spark.range(0, 2000, numPartitions=2).selectExpr("cast(id as string) value")
    frame = frame.mapInArrow(stand_still, frame.schema)
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "topic": topic}
    frame.write.format("kafkaclient").mode("append").options(**options).save()
    assert ended.read_text() == "1"
    values = [int(record.value) for record in await read_topic(topic)]
    assert set(values) == set(range(2000))
    assert {value for value in values if values.count(value) > 1} <= set(range(1000, 2000))


def _next_batch(query: Any) -> None:
    """When the query has done one more."""
    begun, deadline = query.lastProgress, time.monotonic() + 200
    while query.isActive and time.monotonic() < deadline:
        if query.lastProgress != begun:
            return
        time.sleep(0.1)
    raise AssertionError(f"no batch is done any more: {query.exception()}")


async def test_executors_are_killed_and_every_row_is_there_once(
    spark, kafka_cluster, topic, create_topic, tmp_path
) -> None:
    source, sink = f"{topic}-in", f"{topic}-out"
    await create_topic(source, PARTITIONS)
    await create_topic(sink, PARTITIONS)
    rows = 3000 * (KILLS + 1)
    async with Producer(kafka_cluster.bootstrap) as producer:
        for n in range(rows):
            await producer.send(source, b"%d" % n)
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    reader = spark.readStream.format("kafkaclient").options(**options, subscribe=source)
    frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=500).load()
    writer = frame.select("value").writeStream.format("kafkaclient").options(**options, topic=sink)
    writer = writer.options(exactlyOnce="true", transactionalIdPrefix="cluster")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    rng = Random(11)
    try:
        for _ in range(KILLS):
            _next_batch(query)
            time.sleep(rng.uniform(0, 2))  # noqa: ASYNC251 - nothing else is going on
            assert query.isActive
            rng.choice(executors(spark)).kill()
        assert query.awaitTermination(300 + 20 * KILLS), "the query does not end"
    finally:
        query.stop()
    assert await read(kafka_cluster.bootstrap, sink) == sorted(b"%d" % n for n in range(rows))
    async with Admin(kafka_cluster.bootstrap) as admin:
        assert await admin.list_transactions("cluster-", states=[TxnState.ONGOING]) == []


def test_a_report_of_telemetry(spark, tmp_path) -> None:
    """The same figures as one process makes of the same files."""
    for number, name in enumerate(("even", "failing")):
        shape = Shape(60_000, batches_per_s=500.0, failed=0.1 * number, rows_per_file=1000)
        write_run(tmp_path / name, shape, number)
    runs = find_runs([str(tmp_path)])
    tables = aggregate(spark, runs, tmp_path / "tables")
    assert [row["batches"] for row in tables.totals] == [60_000, 60_000]
    facts = [
        batches
        for number, run in enumerate(runs)
        for file in run.files
        for batches, _ in read_file(run.root, file.path, number)
    ]
    batches = counts(facts, Judgement().window_s)
    alone = {
        (row["run"], row["broker"]): row
        for run in (0, 1)
        for row in judge_decisions(
            batches["cells"].filter(pc.field("run") == run),
            Judgement().times,
            Judgement().least_s,
        ).to_pylist()
        if row["is_chosen"]
    }
    for run in (0, 1):
        expected = sum(row["regretted"] for key, row in alone.items() if key[0] == run)
        judged_batches = sum(row["batches"] for key, row in alone.items() if key[0] == run)
        (whole,) = (
            row
            for row in tables.decisions
            if (row["run"], row["broker"], row["bound_by"]) == (run, None, None)
        )
        assert whole["batches"] == judged_batches
        assert whole["regretted"] == pytest.approx(expected / judged_batches)
