from __future__ import annotations

import pytest

from benchmarks.perf_peers import AiokafkaClient, aiokafka_options
from kafkaclient.errors import ConfigError

BOOTSTRAP = {"bootstrap.servers": "127.0.0.1:9092"}


def test_guarantees_and_linger_are_level_with_ours_unless_given() -> None:
    client = AiokafkaClient(BOOTSTRAP, "t")
    assert client.name == "aiokafka"
    assert aiokafka_options({**BOOTSTRAP, "acks": "1", "compression.type": "none"}) == {
        "acks": 1,
        "enable_idempotence": True,
        "linger_ms": 5,
        "bootstrap_servers": "127.0.0.1:9092",
        "compression_type": None,
    }
    assert aiokafka_options({"acks": "all"})["acks"] == "all"
    assert aiokafka_options({"enable.idempotence": "false"})["enable_idempotence"] is False


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("adaptive.partitioning.enable", "true", "aiokafka has no such option"),
        ("linger.ms", "5.5", "not a whole number"),
        ("acks", "some", "not a whole number"),
    ],
)
def test_what_the_peer_cannot_do_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AiokafkaClient({**BOOTSTRAP, name: value}, "t")


async def test_before_the_start_nothing_is_known() -> None:
    client = AiokafkaClient(BOOTSTRAP, "t")
    assert client.traffic() is None
    await client.stop()
