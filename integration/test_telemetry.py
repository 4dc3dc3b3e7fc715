"""Telemetry to a topic of real brokers, and to an S3 server.

The S3 server is moto's, in an environment of its own: ``build/moto``, which ``make integration``
makes.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow.fs import S3FileSystem

from kafkaclient import Producer
from kafkaclient.spark.report.facts import read_file
from kafkaclient.spark.report.queries import find_runs
from kafkaclient.telemetry import decode, files, read
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(180)

MOTO_PYTHON = Path(__file__).parents[1] / "build" / "moto" / "bin" / "python"
WITHIN_S = 60.0
SECRET = "a/secret+word"


class AbortedError(Exception):
    """Ends a transaction."""


async def test_a_topic_gets_the_batches_of_a_transactional_producer(
    kafka_cluster, topic, create_topic, read_topic
):
    facts = f"{topic}-facts"
    await create_topic(topic, 3)
    await create_topic(facts, 2)
    options = {"transactional_id": topic, "client_id": "me", "linger_ms": 1}
    async with Producer(kafka_cluster.bootstrap, telemetry=f"topic:{facts}", **options) as producer:

        async def send() -> None:
            for n in range(300):
                await producer.send(topic, b"%d" % n)
            await producer.flush()

        async with producer.transaction():
            await send()
        with suppress(AbortedError):
            async with producer.transaction():
                await send()
                raise AbortedError
        metrics = producer.metrics().producer
    committed = [record.value for record in await read_topic(topic, "read_committed")]
    assert len(committed) == 300
    found = await read_topic(facts, "read_committed")
    tables = [decode(record.value) for record in found]
    rows = [row for table in tables for row in table.to_pylist()]
    assert sum(row["records"] for row in rows) == 600
    assert {(row["topic"], row["error"], row["client_id"]) for row in rows} == {(topic, None, "me")}
    assert {record.key for record in found} == {b"me"}
    assert metrics["telemetry-batches-dropped-total"] == 0


class S3Server:
    """moto on 127.0.0.1, with a bucket. It forgets everything when it stops."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        where = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1%3A{self.port}"
        return f"s3://key:{SECRET.replace('/', '%2F').replace('+', '%2B')}@bucket/facts?{where}"

    async def start(self) -> None:
        self._start_process()
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    break
                except OSError:
                    await asyncio.sleep(0.1)
            writer.close()
        await asyncio.to_thread(self._create_bucket)

    def _start_process(self) -> None:
        command = [MOTO_PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet)

    def _create_bucket(self) -> None:
        S3FileSystem(
            access_key="key",
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        ).create_dir("bucket")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def s3() -> Iterator[S3Server]:
    if not MOTO_PYTHON.exists():
        pytest.skip("the S3 server is not installed: make build/moto/.installed")
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


async def until(reached: Any) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not reached():
            await asyncio.sleep(0.1)


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_an_s3_server_that_is_away_for_a_while(s3, caplog) -> None:
    fake = FakeCluster(1)
    fake.create_topic("t", 3)
    options = {"telemetry": s3.uri, "telemetry_file_ms": 200, "linger_ms": 0}
    sent = 0
    async with Producer(fake.bootstrap, dialer=fake, **options) as producer:

        def metric(name: str) -> float:
            return producer.metrics().producer[f"telemetry-batches-{name}"]

        async def send() -> None:
            nonlocal sent
            for _ in range(20):
                await producer.send_and_wait("t", b"value")
            sent += 20

        await s3.start()
        await send()
        await until(lambda: metric("recorded-total") == sent)
        assert sum((await asyncio.to_thread(read, s3.uri))["records"].to_pylist()) == 20
        s3.stop()
        await send()
        await until(lambda: "is not written to" in caplog.text)
        begun = asyncio.get_running_loop().time()
        await send()
        assert asyncio.get_running_loop().time() - begun < WITHIN_S / 2, "records go on"
        await s3.start()
        await until(lambda: metric("recorded-total") == sent)
        await send()
        assert metric("dropped-total") == 0
    found = await asyncio.to_thread(files, s3.uri)
    assert all(file.path.startswith("bucket/facts/date=") for file in found)
    table = await asyncio.to_thread(read, s3.uri)
    assert sum(table["records"].to_pylist()) == sent - 20, "the server forgot the first ones"
    assert "is written to s3://[hidden]@bucket/facts?[hidden] again; 0 rows" in caplog.text
    assert "secret" not in caplog.text
    assert "secret" not in repr(producer.config)


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_old_files_on_an_s3_server_are_deleted(s3) -> None:
    await s3.start()
    fake = FakeCluster(1)
    fake.create_topic("t", 3)
    now = datetime.now(UTC)
    two_days_ago = now - timedelta(days=2)

    def clients() -> list[str]:
        with suppress(FileNotFoundError):  # the old file was deleted before the new one was listed
            return read(s3.uri)["client_id"].to_pylist()
        return []

    for client, at in (("old", two_days_ago), ("new", now)):
        options = {"telemetry_retention_ms": 86_400_000, "telemetry_file_ms": 200}
        producer = Producer(
            fake.bootstrap,
            dialer=fake,
            wall_clock=at.timestamp,
            telemetry=s3.uri,
            client_id=client,
            **options,
        )
        async with producer:
            await producer.send_and_wait("t", b"value")
            if client == "new":
                async with asyncio.timeout(WITHIN_S):
                    while await asyncio.to_thread(clients) != ["new"]:
                        await asyncio.sleep(0.1)
    before = two_days_ago + timedelta(hours=1)
    assert await asyncio.to_thread(files, s3.uri, two_days_ago, before) == []


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_the_report_finds_runs_below_a_uri_with_a_query(s3) -> None:
    await s3.start()
    fake = FakeCluster(1)
    fake.create_topic("t", 3)
    for run in ("before", "after"):
        uri = s3.uri.replace("/facts?", f"/facts/{run}?")
        async with Producer(fake.bootstrap, dialer=fake, telemetry=uri) as producer:
            await producer.send_and_wait("t", b"value")
    runs = await asyncio.to_thread(find_runs, [s3.uri])
    assert [(run.name, run.folder) for run in runs] == [
        ("after", "s3://bucket/facts/after"),
        ("before", "s3://bucket/facts/before"),
    ]
    for run in runs:
        (file,) = run.files
        ((batches, _),) = await asyncio.to_thread(list, read_file(run.root, file.path, 0))
        assert batches["records"].to_pylist() == [1.0]
    gone = read_file(s3.uri, "bucket/facts/batches-gone.parquet", 0)
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(list, gone)
    s3.stop()
    with pytest.raises(OSError, match="cannot be read: ") as refused:
        await asyncio.to_thread(list, read_file(runs[0].root, runs[0].files[0].path, 0))
    assert "secret" not in str(refused.value)
