"""What the data source refuses before Spark's own code fails."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from kafkaclient.errors import ConfigError
from kafkaclient.spark import data_source
from kafkaclient.spark.data_source import KafkaDataSource

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}


@pytest.fixture
def lack(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def lack(name: str) -> None:
        find = data_source.find_spec
        monkeypatch.setattr(
            data_source, "find_spec", lambda each: None if each == name else find(each)
        )

    return lack


def test_streams_need_spark_4_2(lack: Callable[[str], None]) -> None:
    lack("pyspark.sql.streaming.datasource")
    source = KafkaDataSource(OPTIONS)
    assert source.schema().names[0] == "key"
    refused = re.escape("streams need Spark 4.2 or newer, and this is Spark ")
    with pytest.raises(ConfigError, match=refused):
        source.streamReader(source.schema())
    with pytest.raises(ConfigError, match=refused):
        source.streamWriter(StructType(), overwrite=False)


def test_a_worker_without_pyarrow(lack: Callable[[str], None]) -> None:
    lack("pyarrow")
    with pytest.raises(
        ConfigError, match=r"python\S* has no pyarrow: run pip install 'kafkaclient"
    ):
        KafkaDataSource(OPTIONS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest", "commitOffsetsToGroup": ""}, "commitOffsetsToGroup=''"),
        ({"startingOffsets": "latest", "minPartitions": "x"}, "minPartitions='x'"),
        ({"endingOffsets": "latest", "minPartitions": "x"}, "minPartitions='x'"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest for all partitions, which"),
    ],
)
def test_load_tells_the_mistake_of_the_read_that_is_meant(
    given: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=f"^option {said} is not accepted"):
        KafkaDataSource(OPTIONS | given).schema()
    assert not caplog.records


def test_batch_reads_warn_of_options_of_streaming_reads(caplog: pytest.LogCaptureFixture) -> None:
    source = KafkaDataSource(OPTIONS | {"maxOffsetsPerTrigger": "5"})
    schema = source.schema()
    source.streamReader(schema)
    assert not caplog.records
    source.reader(schema)
    assert caplog.messages == ["option maxOffsetsPerTrigger is ignored: it is for streaming reads"]


def test_options_without_effect_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark creates writers twice per micro-batch, and a reader in several processes."""
    ignored = {"groupIdPrefix": "g", "kafka.group.id": "g"}
    source = KafkaDataSource(OPTIONS | ignored)
    schema = source.schema()
    source.reader(schema)
    source.streamReader(schema)
    sink = KafkaDataSource({"kafka.bootstrap.servers": "x:1", "topic": "t"} | ignored)
    sink.streamWriter(StructType().add("value", "string"), overwrite=False)
    assert len(caplog.messages) == len(ignored)
    for name, message in zip(ignored, caplog.messages, strict=True):
        assert message.startswith(f"option {name} has no effect")
