"""The data source as Spark calls it, without a session."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.types import StringType, StructType

from kafkaclient.errors import ConfigError, KafkaError, MetadataTimeoutError
from kafkaclient.spark import register, session, source
from kafkaclient.spark.data_source import KafkaDataSource
from kafkaclient.spark.offsets import ReadRange
from kafkaclient.spark.options import read_schema
from kafkaclient.spark.source import read_range
from kafkaclient.testing.fake import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = StructType().add("value", StringType())


def made(**options: str) -> KafkaDataSource:
    return KafkaDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "b:1", **options}))


def test_spark_finds_it_by_name() -> None:
    found = import_module("pyspark_kafkaclient").DefaultSource
    assert issubclass(found, DataSource)
    assert found is KafkaDataSource
    assert found.name() == "kafkaclient"


def test_most_of_sparks_processes_import_little() -> None:
    """So does every session that uses any Python data source."""
    code = "import sys, pyspark_kafkaclient as p; p.DefaultSource; print(*sys.modules)"
    found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert "kafkaclient.spark.data_source" in found
    assert not {"pyarrow", "kafka", "kafkaclient.producer", "kafkaclient.reader"} & set(found)


def test_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.0 refuses a source that it has found by itself; ``register`` takes no notice."""
    registered: list[Any] = []
    checked: list[Any] = []

    class Session:
        class dataSource:
            @staticmethod
            def register(source: Any) -> None:
                registered.append(source)
                raise RuntimeError("[DATA_SOURCE_ALREADY_EXISTS] Data source already exists.")

    monkeypatch.setattr(session, "check_workers", checked.append)
    register(Session)
    assert registered == [KafkaDataSource]
    assert checked == [Session]


def test_the_columns_of_a_read() -> None:
    assert "headers" not in made(subscribe="t").schema().names
    assert made(subscribe="t", includeHeaders="True").schema().names[-1] == "headers"
    assert made(topic="t").schema() == read_schema(headers=False)  # also called before a write
    with pytest.raises(ConfigError, match="did you mean includeHeaders"):
        made(subscribe="t", includeHeader="true").schema()
    # Fine for a batch, or for a stream; which it is is not known yet.
    made(subscribe="t", endingOffsets="latest").schema()
    made(subscribe="t", startingOffsets="latest").schema()


def test_the_columns_are_fixed() -> None:
    given = made(subscribe="t")
    for reader in (given.reader, given.streamReader):
        pickle.dumps(reader(read_schema(headers=False)))
        with pytest.raises(ConfigError, match="give no schema"):
            reader(TEXT)


def test_writers() -> None:
    given = made(topic="t")
    for writer in (given.writer, given.streamWriter):
        pickle.dumps(writer(TEXT, False))
    assert given.streamWriter(TEXT, True)  # output mode complete
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        given.writer(TEXT, True)
    with pytest.raises(ConfigError, match="option or the column topic"):
        made().writer(TEXT, False)


def test_a_task_reads_its_range(cache: Any, fake, fill: Callable[..., None], options: Any) -> None:
    fill(1, 30)

    def offsets(start: int, end: int, **given: str) -> list[int]:
        read = read_range(options(**given), ReadRange("t", 1, start, end), cache)
        return [offset for batch in read for offset in batch.column("offset").to_pylist()]

    assert offsets(3, 30, includeHeaders="true") == list(range(3, 30))
    assert offsets(3, 3) == []
    assert list(read_range(options(), None)) == []
    # Deleted since it was planned.
    fake.delete_records("t", 1, 10)
    with pytest.raises(source.OffsetOutOfRangeError, match="from offset 3 to 12, but has 10 to 30"):
        offsets(3, 12)
    assert offsets(3, 12, failOnDataLoss="false") == [10, 11]
    assert offsets(3, 8, failOnDataLoss="false") == []
    with pytest.raises(source.OffsetOutOfRangeError, match="from offset 28 to 40, but ends at 30"):
        offsets(28, 40)
    assert offsets(28, 40, failOnDataLoss="false") == [28, 29]
    assert offsets(35, 40, failOnDataLoss="false") == []


def test_a_task_whose_topic_is_gone(
    cache: Any, fake, fill: Callable[..., None], options: Any
) -> None:
    few = {"kafka.max.partition.fetch.bytes": "1", "kafka.retry.backoff.ms": "1"}
    soon = {"kafka.max.block.ms": "50"}
    wanted = ReadRange("t", 1, 0, 30)

    def read_while_recreated(**given: str) -> int:
        read = read_range(options(**few, **given), wanted, cache)
        rows = next(read).num_rows
        fake.delete_topic("t")
        fake.create_topic("t", 3)
        fill(1, 30)
        return rows + sum(batch.num_rows for batch in read)

    fill(1, 30)
    with pytest.raises(source.OffsetOutOfRangeError, match="to 30, but was created again"):
        read_while_recreated()
    assert read_while_recreated(failOnDataLoss="false") < 30
    fake.delete_topic("t")
    with pytest.raises(source.OffsetOutOfRangeError, match="from offset 0 to 30, but does not ex"):
        list(read_range(options(**soon), wanted, cache))
    assert list(read_range(options(**soon, failOnDataLoss="false"), wanted, cache)) == []
    for broker in range(3):
        fake.stop_broker(broker)
    with pytest.raises(MetadataTimeoutError):  # not a reason to skip the records
        list(read_range(options(**soon, failOnDataLoss="false"), wanted, cache))


@pytest.mark.parametrize("refusals", [2, 1000])
def test_an_offset_that_a_new_leader_did_not_have_yet(
    cache: Any, fake, fill: Callable[..., None], options: Any, refusals: int
) -> None:
    """It is no loss: the broker has it by the time it is asked which offsets it has."""
    fill(1, 30)
    fake.fail_fetch("t", 1, ErrorCode.OFFSET_OUT_OF_RANGE, refusals)
    soon = {"kafka.retry.backoff.ms": "1", "kafka.max.block.ms": "300"}
    task = read_range(options(**soon), ReadRange("t", 1, 3, 30), cache)
    if refusals == 2:
        assert sum(batch.num_rows for batch in task) == 27
    else:
        with pytest.raises(KafkaError, match="offset 3 is not in the log"):
            list(task)


def test_a_task_that_stops_early(cache: Any, fake, fill: Callable[..., None], options: Any) -> None:
    """LIMIT: Spark takes no more batches while the next one is on its way."""
    fill(1, 30)
    few = options(**{"kafka.max.partition.fetch.bytes": "1"})
    fake.round_trip_s = 0.05
    read = read_range(few, ReadRange("t", 1, 0, 30), cache)
    assert next(read).num_rows >= 1
    read.close()
    assert not any(fake.connections(broker) for broker in range(3))
