"""Processors, names of tasks and topics, and invalid options."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.streams import StreamsApp, TaskId
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.topology import Processor, Topology
from kafkaclient.types import TopicPartition


async def nothing(record: object, store: object, emit: object) -> None:
    """Nothing is processed here."""


def test_tasks_and_topics() -> None:
    topology = Topology("app")
    topology.add(Processor(topic="a", store="x", process=nothing))
    topology.add(Processor(topic="b", store="y", process=nothing))
    assert topology.tasks({"a": 2, "b": 1}) == [TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)]
    assert topology.source(TaskId(1, 0)) == TopicPartition("b", 0)
    assert topology.changelog(TaskId(0, 1)) == TopicPartition("app-x-changelog", 1)


@pytest.mark.parametrize(
    ("topic", "store", "message"),
    [("a", "y", "'a' is read by two"), ("b", "x", "'x' is used by two")],
)
def test_topics_and_stores_have_one_processor(topic: str, store: str, message: str) -> None:
    app = StreamsApp("localhost:1", application_id="app", state_dir="/nowhere")
    app.processor("a", store="x")(nothing)
    with pytest.raises(ConfigError, match=message):
        app.processor(topic, store=store)(nothing)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processing_guarantee": "exactly_once"}, r"processing\.guarantee is 'exactly_once'"),
        ({"application_id": ""}, r"application\.id is empty"),
        ({"heartbeat_interval_ms": 10_000}, r"heartbeat\.interval\.ms is 10000"),
        ({"commit_interval_ms": -1}, r"commit\.interval\.ms is -1"),
        ({"max_warmup_replicas": 0}, r"max\.warmup\.replicas is 0"),
        ({"windows": True}, "windows"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StreamsApp("localhost:1", **{"application_id": "app", "state_dir": "/nowhere", **options})


def test_each_application_has_its_own_directory() -> None:
    config = StreamsConfig(bootstrap_servers="localhost:1", application_id="app", state_dir="/var")
    assert config.directory == Path("/var/app")
    assert not config.exactly_once


async def test_an_application_without_processor_cannot_run() -> None:
    app = StreamsApp("localhost:1", application_id="app", state_dir="/nowhere")
    with pytest.raises(ConfigError, match="no processor"):
        await app.run()
    assert app.tasks() == []
