"""Clients of other languages on one cluster in memory: `pytest examples/test_any_client.py`.

kafkaclient writes; kcat (C) and Kafka's console consumer (Java) read. A client that this machine
does not have is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from kafkaclient import SyncProducer

if TYPE_CHECKING:
    from kafkaclient.testing import FakeCluster

VALUES = ["delayed", "boarding", "departed"]
KCAT = shutil.which("kcat")
CONSOLE_CONSUMER = shutil.which("kafka-console-consumer.sh")  # in the bin directory of Kafka


@pytest.fixture
def bootstrap(fake_kafka: FakeCluster) -> str:
    with SyncProducer(fake_kafka.bootstrap) as producer:
        for value in VALUES:
            producer.send("flights", value.encode())
    return fake_kafka.bootstrap


def output(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_reads(bootstrap: str) -> None:
    assert output(["kcat", "-b", bootstrap, "-C", "-t", "flights", "-e", "-q"]) == VALUES


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_is_a_member_of_a_group(bootstrap: str, fake_kafka: FakeCluster) -> None:
    options = ["-X", "auto.offset.reset=earliest", "-e", "-q"]
    assert output(["kcat", "-b", bootstrap, *options, "-G", "billing", "flights"]) == VALUES
    assert fake_kafka.committed_offset("billing", "flights", 0) == len(VALUES)


@pytest.mark.skipif(CONSOLE_CONSUMER is None, reason="Kafka's tools are not in the PATH")
def test_java_reads(bootstrap: str, fake_kafka: FakeCluster) -> None:
    command = [str(CONSOLE_CONSUMER), "--bootstrap-server", bootstrap, "--topic", "flights"]
    options = ["--from-beginning", "--max-messages", "3", "--group", "billing"]
    assert output([*command, *options]) == VALUES
    assert fake_kafka.committed_offset("billing", "flights", 0) == len(VALUES)
