"""The options of the data source: what is accepted, and what is said of the rest."""

from __future__ import annotations

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.spark.offsets import EARLIEST, LATEST, ByOffset, ByTime
from kafkaclient.spark.options import ReadOptions, WriteOptions
from kafkaclient.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def read(mode="batch", **options: str) -> ReadOptions:
    return ReadOptions.parse({**SERVERS, "subscribe": "t", **options}, mode)


def test_defaults_are_sparks() -> None:
    batch, streaming = read(), read("streaming")
    assert (batch.start, batch.end) == (ByOffset(EARLIEST), ByOffset(LATEST))
    assert streaming.start == ByOffset(LATEST)
    assert batch.subscription.topics == ("t",)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.min_partitions is batch.max_records is batch.max_offsets is None
    assert batch.max_delay_s == 900
    size = "max.partition.fetch.bytes"
    assert batch.client == {"bootstrap.servers": "localhost:9092", size: "8388608"}
    assert read(**{f"kafka.{size}": "5"}).client[size] == "5"


def test_names_are_not_case_sensitive() -> None:
    options = ReadOptions.parse(
        {"KAFKA.bootstrap.servers": "b:1", "SUBSCRIBE": " a, b,a", "MinPartitions": " 7 "}, "batch"
    )
    assert options.subscription.topics == ("a", "b")
    assert options.min_partitions == 7


def test_starting_offsets() -> None:
    assert read(startingOffsets="Earliest").start == ByOffset(EARLIEST)
    assert read(startingOffsets='{"t": {"0": 5}}').start == ByOffset({TopicPartition("t", 0): 5})
    assert read(startingTimestamp="100").start == ByTime(100, "error")
    both = read(
        startingOffsetsByTimestamp='{"t": {"0": 5}}',
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp="9",
    )
    assert both.start == ByTime({TopicPartition("t", 0): 5}, "latest")
    assert both.end == ByTime(9, "latest")


def test_which_partitions() -> None:
    one = ReadOptions.parse({**SERVERS, "assign": '{"t": [1, 0]}'}, "batch").subscription
    assert one.partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
    pattern = ReadOptions.parse({**SERVERS, "subscribePattern": "a.*"}, "batch").subscription
    assert pattern.pattern is not None
    assert pattern.pattern.fullmatch("abc")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"assign": '{"t": [0]}'}, "assign and subscribe are given"),
        ({"subscribe": " , "}, "option subscribe"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"bootstrap.servers": "x:1"}, "did you mean kafka.bootstrap.servers"),
        ({"topic": "t"}, "option topic is not for reading: give it .*, for writing"),
        ({"transactionalIdPrefix": "t"}, "option transactionalIdPrefix is not for reading"),
        ({"quite.something.else": "1"}, "unknown option quite.something.else"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest for all partitions, which"),
        ({"startingOffsets": "later"}, "option startingOffsets='later'"),
        ({"startingOffsets": '{"t": {"3": -1}}'}, "startingOffsets is latest for t-3"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest for all partitions, which"),
        ({"endingOffsets": '{"t": {"3": -2}}'}, "endingOffsets is earliest for t-3"),
        (
            {"startingOffsets": '{"t": {"3": 10}}', "endingOffsets": '{"t": {"3": 5}}'},
            "startingOffsets is 10 for t-3, which is after 5 of endingOffsets",
        ),
        (
            {"startingTimestamp": "10", "endingTimestamp": "5"},
            "startingTimestamp is 10 for all partitions, which is after 5 of endingTimestamp",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t": {"3": 10}}',
                "endingOffsetsByTimestamp": '{"t": {"3": 5}}',
            },
            "startingTimestamp is 10 for t-3, which is after 5",
        ),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp='9223372036854775808'"),
        ({"startingOffsets": '{"t": {"3": 9223372036854775808}}'}, "t-3 has 92.* instead of an"),
        ({"startingOffsetsByTimestamp": '{"t": {"3": -2}}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "no"}, "give error or latest"),
        ({"minPartitions": "0"}, "minPartitions='0'"),
        ({"failOnDataLoss": "yes"}, "give true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger=9"),
        ({"subscribePattern": "("}, "assign, subscribe, subscribePattern"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.fetch.min.byte": "1"}, "did you mean fetch.min.bytes"),
        ({"kafka.acks": "all"}, "option kafka.acks is not for reading: give it .*, for writing"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "not in Kafka"),
        ({"kafka.key.deserializer": "x"}, "cast the column"),
        ({"kafka.interceptor.classes": "x"}, "Java classes"),
    ],
)
def test_rejected_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(**options)


def test_an_invalid_pattern() -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        ReadOptions.parse({**SERVERS, "subscribePattern": "("}, "batch")


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="endingOffsets is for batch reads"):
        read("streaming", endingOffsets="latest")
    options = read("streaming", maxTriggerDelay="90s", minOffsetsPerTrigger="5")
    assert (options.max_delay_s, options.min_offsets) == (90, 5)


def test_what_has_no_effect_is_left_out() -> None:
    options = read(**{"groupIdPrefix": "g", "kafka.group.id": "g"}, checkpointLocation="/x")
    assert "group.id" not in options.client


def test_secrets_are_not_shown() -> None:
    options = read(
        **{"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
        **{"kafka.sasl.username": "me", "kafka.sasl.password": "hush"},
    )
    assert options.client["sasl.password"] == "hush"
    assert "hush" not in repr(options)
    with pytest.raises(ConfigError) as refused:
        read(**{"kafka.sasl.password": "hush", "kafka.sasl.jaas.config": "hush hush;"})
    assert "hush" not in str(refused.value)


def test_writing() -> None:
    options = WriteOptions.parse({**SERVERS, "topic": " t ", "kafka.linger.ms": "7"}, "batch")
    assert options.topic == "t"
    assert options.client["linger.ms"] == "7"
    assert WriteOptions.parse(SERVERS, "streaming").topic is None
    for extra, said in (
        ({"topic": " "}, "option topic=' ' is not accepted: give a topic's name"),
        ({"subscribe": "t"}, "option subscribe is not for writing"),
        ({"endingTimestamp": "1"}, "option endingTimestamp is not for writing"),
        ({"maxTriggerDelay": "1s"}, "option maxTriggerDelay is not for writing"),
        ({"kafka.value.serializer": "x"}, "STRING or BINARY"),
        ({"kafka.acks": "many"}, "options kafka.*, here without this prefix: acks"),
        ({"kafka.fetch.min.bytes": "1"}, "option kafka.fetch.min.bytes is not for writing"),
        ({"tropic": "t"}, "did you mean topic"),
    ):
        with pytest.raises(ConfigError, match=said):
            WriteOptions.parse({**SERVERS, **extra}, "batch")


def test_columns() -> None:
    assert read().columns is None
    assert read(columns="Offset, timestamptype").columns == {"offset", "timestampType"}
    for columns in ("headers,key", "key"):
        for include in ("true", "false"):
            options = read(columns=columns, includeHeaders=include)
            assert options.columns == set(columns.split(","))
            assert options.include_headers == ("headers" in columns)
    with pytest.raises(ConfigError, match=r"columns='offset,values' .* no column 'values'"):
        read(columns="offset,values")
