"""One broker's files, command line and signals; its JVM is a shell script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaclient.testing.broker import (
    BrokerProcess,
    BrokerState,
    meta_properties,
    render_properties,
)
from kafkaclient.testing.errors import LocalClusterError
from kafkaclient.testing.jvm import Jvm

SLEEPER = "exec sleep 60"
STUBBORN = "trap '' TERM; while :; do sleep 0.01; done"
TAKEN = "echo 'java.net.BindException: Address already in use'; exit 1"
BROKEN = "echo INFO all is well; echo ERROR no disk; exit 3"


@pytest.fixture
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> BrokerProcess:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{getattr(request, 'param', SLEEPER)}\n")
    java.chmod(0o755)
    broker = BrokerProcess(7, tmp_path / "broker-7", Jvm(java, (Path("a.jar"), Path("b.jar"))))
    broker.prepare({"node.id": "7"})
    return broker


async def ended(broker: BrokerProcess) -> None:
    assert broker._process is not None
    await broker._process.wait()


async def test_life(broker: BrokerProcess) -> None:
    assert broker.state is BrokerState.STOPPED
    await broker.start()
    assert broker.state is BrokerState.RUNNING
    await broker.pause()
    assert broker.state is BrokerState.PAUSED
    await broker.resume()
    assert broker.state is BrokerState.RUNNING
    await broker.kill()
    assert (broker.state, broker.pid, broker.exit_code) == (BrokerState.STOPPED, None, -9)
    await broker.kill()
    await broker.start()
    await broker.terminate()
    assert broker.exit_code == -15


async def test_a_paused_broker_can_be_ended(broker: BrokerProcess) -> None:
    await broker.start()
    await broker.pause()
    await broker.terminate()
    assert broker.state is BrokerState.STOPPED


@pytest.mark.parametrize("broker", [STUBBORN], indirect=True)
async def test_a_broker_that_does_not_listen_is_killed(broker: BrokerProcess) -> None:
    await broker.start()
    await broker.terminate(timeout_s=0.05)
    assert broker.state is BrokerState.STOPPED


async def test_what_makes_no_sense_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises(LocalClusterError, match="broker 7 is not running"):
        await broker.pause()
    await broker.start()
    with pytest.raises(LocalClusterError, match="broker 7 cannot start: it is already running"):
        await broker.start()
    await broker.kill()


@pytest.mark.parametrize("broker", [BROKEN], indirect=True)
async def test_a_failed_start_quotes_what_matters(broker: BrokerProcess) -> None:
    await broker.start()
    await ended(broker)
    message = str(broker.start_error())
    assert "broker 7 ended with code 3" in message
    assert "ERROR no disk" in message
    assert "all is well" not in message
    assert not broker.address_in_use()


@pytest.mark.parametrize("broker", [TAKEN], indirect=True)
async def test_a_taken_port_is_told_apart(broker: BrokerProcess) -> None:
    await broker.start()
    await ended(broker)
    assert broker.address_in_use()


async def test_files(broker: BrokerProcess, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"features")
    broker.format(checkpoint, "bootstrap.checkpoint", "the-cluster", "the-directory")
    assert broker.properties_file.read_text() == "node.id=7\n"
    assert (broker.log_dir / "bootstrap.checkpoint").read_bytes() == b"features"
    assert (broker.log_dir / "meta.properties").read_text() == meta_properties(
        7, "the-cluster", "the-directory"
    )


def test_properties_are_escaped_as_java_reads_them() -> None:
    text = render_properties(
        {"b": "C:\\x", "a": " led by a space", "c": "two\nlines", "d": "Übersee🚀"}
    )
    assert (
        text == "a=\\ led by a space\nb=C:\\\\x\nc=two\\u000alines\nd=\\u00dcbersee\\ud83d\\ude80\n"
    )


@pytest.mark.parametrize(
    ("major", "use", "record"),
    [(17, "SharedArchiveFile", "ArchiveClassesAtExit"), (25, "AOTCache", "AOTCacheOutput")],
)
def test_the_archive_is_used_when_it_is_there(
    tmp_path: Path, major: int, use: str, record: str
) -> None:
    archive = tmp_path / "classes.jsa"
    jvm = Jvm(Path("java"), (Path("a.jar"), Path("b.jar")), archive, major)
    command = jvm.command("kafka.Kafka", ["x"], heap_mb=384, properties={"k": "v"})
    assert f"-XX:{use}={archive}" not in command
    assert "-Xmx384m" in command
    assert "-Dk=v" in command
    assert command[-4:] == ["-cp", f"a.jar{os.pathsep}b.jar", "kafka.Kafka", "x"]
    archive.touch()
    assert f"-XX:{use}={archive}" in jvm.command("kafka.Kafka", [], heap_mb=384)
    recording = jvm.command("kafka.Kafka", [], heap_mb=384, record_to=tmp_path / "new.jsa")
    assert f"-XX:{record}={tmp_path / 'new.jsa'}" in recording
    assert f"-XX:{use}={archive}" not in recording


def test_brokers_of_a_test_are_not_compiled_for_throughput() -> None:
    quick, thorough = (Jvm(Path("java"), (), quick=quick) for quick in (True, False))
    assert "-XX:TieredStopAtLevel=1" in quick.command("kafka.Kafka", [], heap_mb=384)
    assert "-XX:TieredStopAtLevel=1" not in thorough.command("kafka.Kafka", [], heap_mb=384)
