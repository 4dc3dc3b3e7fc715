"""Options of the reader: their defaults against Java's consumer."""

from __future__ import annotations

import pytest

from kafkaclient.config import ProducerConfig, ReaderConfig
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.errors import ConfigError

# What ConsumerConfig.configDef() of kafka-clients 4.4.0 says, as far as it is about fetching.
JAVA_DEFAULTS = {
    "allow.auto.create.topics": True,
    "check.crcs": True,
    "client.rack": "",
    "default.api.timeout.ms": 60_000,
    "fetch.max.bytes": 52_428_800,
    "fetch.max.wait.ms": 500,
    "fetch.min.bytes": 1,
    "isolation.level": "read_uncommitted",
    "max.partition.fetch.bytes": 1_048_576,
    "receive.buffer.bytes": 65_536,
}
DELIBERATE_DIFFERENCES = {
    "allow.auto.create.topics": False,  # reading must not make topics
    "receive.buffer.bytes": -1,  # the system makes it larger as it is needed
}
OWN = {
    name: option for name, option in ReaderConfig.OPTIONS.items() if option.section == "Fetching"
}


def test_defaults_are_javas_but_for_the_listed_differences() -> None:
    by_name = {
        name: option.default
        for option in OWN.values()
        for name in (option.kafka_name, *option.aliases)
    }
    assert by_name.pop("max.block.ms") == by_name["default.api.timeout.ms"]
    assert by_name == JAVA_DEFAULTS | DELIBERATE_DIFFERENCES


def test_the_others_are_the_producers() -> None:
    shared = ReaderConfig.OPTIONS.keys() - OWN.keys()
    assert {n: ReaderConfig.OPTIONS[n].default for n in shared} == {
        n: ProducerConfig.OPTIONS[n].default for n in shared
    }


def test_java_names_and_properties() -> None:
    config = ReaderConfig.build(
        {"bootstrap.servers": "a:1", "default.api.timeout.ms": "5", "check.crcs": "false"}
    )
    assert (config.max_block_ms, config.check_crcs, config.read_committed) == (5, False, False)
    assert "max_block_ms=5" in repr(config)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("max_poll_records", "give getmany(max_records=...)"),
        ("max.poll.records", "give getmany(max_records=...)"),
        ("consumer_timeout_ms", "give getmany(timeout_ms=...)"),
        ("rebalance_timeout_ms", "give max_poll_interval_ms"),
        ("enable.auto.offset.store", "take records from tracked()"),
        ("enable.partition.eof", "lag() is 0 at the end"),
        ("fetch.message.max.bytes", "give max.partition.fetch.bytes"),
        ("fetch.wait.max.ms", "give fetch.max.wait.ms"),
        ("queued.min.messages", "leave it out"),
    ],
)
def test_options_of_other_consumers_name_what_does_it_here(option: str, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ConsumerConfig.build("h:1", {option: "1"})
    assert f": {advice}" in str(refused.value)
    assert "did you mean" not in str(refused.value)
