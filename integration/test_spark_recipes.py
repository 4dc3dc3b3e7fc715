"""The recipes of docs/how-to/spark-recipes.md, in order, on real Spark and real brokers."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow.dataset
import pytest
from aiokafka import AIOKafkaProducer

import kafkaclient.spark
from kafkaclient.spark import spark_session
from tests.code_blocks import runs

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(400),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@runs("docs/how-to/spark-recipes.md", name="blocks", together=True)
async def test_the_recipes(
    kafka_cluster, topic, create_topic, read_topic, tmp_path, monkeypatch, blocks
) -> None:
    topics = ("flights", "united", "counts", "tenths")
    for name in topics:
        await create_topic(f"{topic}-{name}", 2)
    values = [b"%d" % n for n in range(90)]
    async with AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap) as producer:
        for n, value in enumerate(values):
            await producer.send_and_wait(f"{topic}-flights", value, (b"UA", b"AA")[n % 3 == 0])
    replaced = {
        "localhost:9092": kafka_cluster.bootstrap,
        "/var/lib": str(tmp_path),
        **{f'="{name}"': f'="{topic}-{name}"' for name in topics},
        '("flights", "counts")': f'("{topic}-flights", "{topic}-counts")',
    }
    spark = spark_session("recipes", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    try:
        monkeypatch.setattr(kafkaclient.spark, "spark_session", lambda *_: spark)
        shared, available_now, for_each, union, committed, within_watermark, latest, tenths = blocks
        names = shared.run(replaced=replaced)
        for block in (available_now, for_each):
            names = block.run(names, replaced=replaced)
        for file in ("0", ".0.crc"):  # as after a crash: the next run repeats the batch
            (tmp_path / "counts" / "commits" / file).unlink()
        names = for_each.run(names, replaced=replaced)
        table = pyarrow.dataset.dataset(tmp_path / "flights", format="parquet").to_table()
        assert sorted(map(bytes, table["value"].to_pylist())) == sorted(values)
        assert len(await read_topic(f"{topic}-counts")) == 4
        names = union.run(names, replaced=replaced)
        united = pyarrow.dataset.dataset(tmp_path / "all", format="parquet").to_table()
        found_in = Counter(united["topic"].to_pylist())
        assert found_in == {f"{topic}-flights": 90, f"{topic}-counts": 4}
        names = committed.run(names, replaced=replaced)
        assert sorted(bytes(row.value) for row in _seen(spark, names["united"])) == sorted(values)
        names = within_watermark.run(names, replaced=replaced)
        names |= latest.run(names, replaced=replaced)
        for rows in (_seen(spark, names["once"]), names["latest"].collect()):
            found = {bytes(row.key): json.loads(row.value)["count"] for row in rows}
            assert (len(rows), found) == (2, {b"0 AA": 30, b"0 UA": 60})
        tenths.run(names, replaced=replaced)
        written = {r.key: r.value for r in await read_topic(f"{topic}-tenths")}
        assert written == {b"AA": b"30 flights", b"UA": b"60 flights"}
    finally:
        spark.stop()


def _seen(spark: Any, stream: Any) -> list[Any]:
    """The rows that a stream has now."""
    query = stream.writeStream.format("memory").queryName("seen").start()
    try:
        query.processAllAvailable()
        return spark.sql("select * from seen").collect()
    finally:
        query.stop()
