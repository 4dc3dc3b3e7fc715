"""``kafkaclient perf-test`` beside Kafka's own tool, on real brokers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from integration.shell import Ended, kafkaclient
from kafkaclient import telemetry
from kafkaclient.admin import Admin
from kafkaclient.types import TopicPartition

COMMAND = [sys.executable, "-c", "from kafkaclient.cli import main; main()", "perf-test"]
LOAD = ("--num-records", "3000", "--throughput", "3000", "--record-size", "200")
# For what a second's load shows only if its first record is not late.
LONGER = ("--num-records", "9000", "--throughput", "3000", "--record-size", "200")

pytestmark = pytest.mark.timeout(180)


def perf_test(cluster, topic: str, *words: str) -> Ended:
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    return asyncio.run(kafkaclient("perf-test", *where, *words))


def on_a_terminal(cluster, topic: str, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, and what a terminal at standard error was sent."""
    screen, terminal = pty.openpty()
    shown: list[bytes] = []

    def watch() -> None:
        with suppress(OSError):  # how the end of a terminal shows
            while chunk := os.read(screen, 65536):
                shown.append(chunk)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    process = subprocess.run(
        [*COMMAND, "--bootstrap-server", cluster.bootstrap, "--topic", topic, *words],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(terminal)
    watcher.join(10)
    os.close(screen)
    return process.returncode, process.stdout, b"".join(shown).decode()


def shape(line: str) -> str:
    """A line with its numbers as patterns: as many decimals as they have."""

    def number(match: re.Match[str]) -> str:
        return rf"\d+\.\d{{{len(match[2])}}}" if match[2] else r"\d+"

    # "50th" and the like are words, not numbers.
    parts = re.split(r"(\b(?:50th|95th|99th|99\.9th)\b)", line)
    return "".join(
        re.escape(part) if part.endswith("th") else re.sub(r"(\d+)(?:\\\.(\d+))?", number, escaped)
        for part in parts
        for escaped in [re.escape(part)]
    )


@pytest.mark.local_cluster
def test_the_lines_are_those_of_kafkas_tool(kafka_cluster, topic, create_topic) -> None:
    asyncio.run(create_topic(topic))
    words = (*LONGER, "--reporting-interval", "250", "--warmup-records", "1000")
    java = asyncio.run(
        kafka_cluster.run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic, *words),
            *("--command-property", "linger.ms=5", "acks=all"),
        )
    )
    assert java.returncode == 0, java.stderr
    theirs = [line for line in java.stdout.splitlines() if "records sent" in line]
    windows, finals = set(map(shape, theirs[:-2])), list(map(shape, theirs[-2:]))
    assert len(windows) == 1

    ours = perf_test(kafka_cluster, topic, *words, "--command-property", "linger.ms=5", "acks=all")
    assert ours.exit_code == 0, ours.stderr
    *lines, whole, steady = ours.stdout.splitlines()
    assert re.fullmatch(finals[0], whole)
    assert re.fullmatch(finals[1], steady)
    assert lines
    for line in lines:
        assert re.fullmatch(windows.copy().pop(), line)
    assert whole.startswith("9000 records sent, ")
    assert steady.startswith("8000 steady state records sent, ")


@pytest.mark.parametrize("producer", ["kafkaclient", "aiokafka", "confluent"])
def test_every_client_takes_the_same_load(
    kafka_cluster, topic, producer, tmp_path, create_topic, read_topic
) -> None:
    asyncio.run(create_topic(topic, partitions=6))
    path = tmp_path / "run.json"
    result = perf_test(kafka_cluster, topic, *LOAD, "--producer", producer, "--json", str(path))
    assert result.exit_code == 0, result.stderr
    *_, final = result.stdout.splitlines()  # after a line for every five seconds
    assert final.startswith("3000 records sent, ")
    record = json.loads(path.read_text())
    assert record["client"] == producer
    assert (record["rate"], record["linger_ms"]) == (3000, 5)
    assert (record["records"], record["errors"], record["lost"]) == (3000, 0, None)
    assert 0 < record["p50_ms"] <= record["p99_ms"] <= record["p999_ms"] <= record["max_ms"]
    assert sum(record["bytes_per_broker"]) >= 3000 * 200
    assert sum(record["requests_per_broker"]) > 0
    for text in ("p99.9", "Brokers", "Partitions"):
        assert text in result.stderr
    consumed = asyncio.run(read_topic(topic))
    assert len(consumed) == 3000
    assert {len(record.value) for record in consumed} == {200}


@pytest.mark.parametrize(
    "producer",
    [
        "kafkaclient",
        pytest.param("aiokafka", marks=pytest.mark.full),
        pytest.param("confluent", marks=pytest.mark.full),
    ],
)
def test_in_transactions(
    kafka_cluster, topic, producer, tmp_path, create_topic, read_topic
) -> None:
    """Every record is committed, in more than one transaction."""
    asyncio.run(create_topic(topic, partitions=3))
    path, name = tmp_path / "run.json", f"perf-{topic}"
    words = ("--transactional-id", name, "--transaction-duration-ms", "200", "--json", str(path))
    result = perf_test(kafka_cluster, topic, *LOAD, "--producer", producer, *words)
    assert result.exit_code == 0, result.stderr
    assert json.loads(path.read_text())["records"] == 3000
    until = time.monotonic() + 60  # the last markers may be written after the answer to the commit
    while len(committed := asyncio.run(read_topic(topic, "read_committed"))) < 3000:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert {len(record.value) for record in committed} == {200}
    assert len(committed) == 3000
    ends, counts = defaultdict(int), Counter(record.partition for record in committed)
    for record in committed:
        ends[record.partition] = max(ends[record.partition], record.offset + 1)
    assert any(ends[p] > counts[p] for p in counts), "no marker between records"


def test_telemetry_is_kept_of_a_run(kafka_cluster, topic, tmp_path, create_topic) -> None:
    asyncio.run(create_topic(topic, partitions=6))
    facts = tmp_path / "facts"
    result = perf_test(
        kafka_cluster, topic, *LONGER, "--command-property", f"telemetry={facts}", "acks=all"
    )
    assert result.exit_code == 0, result.stderr
    assert re.search(r"skew \d\.\d\d", result.stderr)
    rows = telemetry.read(facts).to_pylist()
    assert sum(row["records"] for row in rows) == 9000
    assert {row["partition"] for row in rows} <= set(range(6))
    assert all(row["broker"] >= 0 and row["error"] is None for row in rows)
    for row in rows:
        assert 0 <= row["created_s"] <= row["bound_s"] <= row["sent_s"] < row["acknowledged_s"]
    span = max(row["acknowledged_s"] for row in rows) - min(row["created_s"] for row in rows)
    assert 0.7 < span < 60, "of three seconds"


def test_many_producers_in_processes(
    kafka_cluster, topic, tmp_path, create_topic, read_topic
) -> None:
    asyncio.run(create_topic(topic, partitions=6))
    path = tmp_path / "run.json"
    words = ("--producers", "2", "--warmup-records", "1000", "--json", str(path))
    result = perf_test(kafka_cluster, topic, *LOAD, *words)
    assert result.exit_code == 0, result.stderr
    whole, steady = result.stdout.splitlines()
    assert whole.startswith("3000 records sent, ")
    assert steady.startswith("2000 steady state records sent, ")
    record = json.loads(path.read_text())
    assert (record["records"], record["rate"], record["errors"]) == (3000, 3000, 0)
    each = record["producers"]
    assert [one["records"] for one in each] == [1500, 1500]
    assert {one["rate"] for one in each} == {1500}
    assert record["max_ms"] == max(one["max_ms"] for one in each)
    assert len(asyncio.run(read_topic(topic))) == 3000


async def until_sent(cluster, partition: TopicPartition) -> None:
    async with Admin(cluster.bootstrap) as admin, asyncio.timeout(60):
        while not (await admin.end_offsets([partition]))[partition]:
            await asyncio.sleep(0.1)


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in listed]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    "number",
    [
        *(pytest.param(one, marks=pytest.mark.full) for one in (signal.SIGTERM, signal.SIGINT)),
        signal.SIGKILL,
    ],
)
def test_producers_in_processes_end_with_their_parent(
    kafka_cluster, topic, create_topic, number
) -> None:
    asyncio.run(create_topic(topic, partitions=1))
    words = ("--num-records", "180000", "--throughput", "1000", "--record-size", "10")
    words += ("--producers", "2")
    process = subprocess.Popen(
        [*COMMAND, "--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while len(producers := children(process.pid)) < 3:  # two, and what watches their semaphores
        assert time.monotonic() < until
        time.sleep(0.1)
    asyncio.run(until_sent(kafka_cluster, TopicPartition(topic, 0)))
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)  # the pipes end when the producers have ended
    if number != signal.SIGKILL:
        status, word = {signal.SIGTERM: (143, "terminated"), signal.SIGINT: (130, "interrupted")}[
            number
        ]
        assert (process.returncode, stdout) == (status, "")
        assert stderr.split()[-1] == word
        assert "Traceback" not in stderr
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in producers):
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize(("rate", "records"), [("2", "3"), ("-1", "100000")])
def test_the_lines_say_what_the_json_says(kafka_cluster, topic, tmp_path, rate, records) -> None:
    """From a record or two a second to the client's limit."""
    path = tmp_path / "run.json"
    words = ("--num-records", records, "--throughput", rate, "--record-size", "100")
    result = perf_test(kafka_cluster, topic, *words, "--json", str(path))
    assert result.exit_code == 0, result.stderr
    record = json.loads(path.read_text())
    assert result.stdout.splitlines()[-1] == (
        f"{records} records sent, {record['records_per_s']:f} records/sec "
        f"({record['mb_per_s']:.2f} MB/sec), {record['avg_ms']:.2f} ms avg latency, "
        f"{record['max_ms']:.2f} ms max latency, {int(record['p50_ms'])} ms 50th, "
        f"{int(record['p95_ms'])} ms 95th, {int(record['p99_ms'])} ms 99th, "
        f"{int(record['p999_ms'])} ms 99.9th."
    )
    assert (record["records"], record["errors"]) == (int(records), 0)
    mb = record["records"] * 100 / record["seconds"] / 1024 / 1024
    assert record["mb_per_s"] == pytest.approx(mb, rel=1e-3, abs=1e-5)
    assert 0 < record["p50_ms"] <= record["p999_ms"] <= record["max_ms"]
    if rate != "-1":
        assert record["records_per_s"] < 2.05 * float(rate), "three records take a second at 2/s"


@pytest.mark.full
@pytest.mark.timeout(240)
def test_many_producers_in_spark_tasks(
    kafka_cluster, topic, tmp_path, create_topic, read_topic
) -> None:
    asyncio.run(create_topic(topic, partitions=6))
    path, facts = tmp_path / "run.json", tmp_path / "facts"
    code, lines, shown = on_a_terminal(
        *(kafka_cluster, topic, "--num-records", "9000", "--throughput", "3000"),
        *("--record-size", "200", "--json", str(path), "--warmup-records", "1000"),
        *("--command-property", f"telemetry={facts}", "client.id=fleet"),
        *("--spark-master", "local[2]", "--producers", "2"),
    )
    assert code == 0, shown
    whole, steady = lines.splitlines()
    arrived = [
        int(count.replace(",", ""))
        for count in re.findall(r"([\d,]+) of 9,000 arrived, [\d,]+/s", shown)
    ]
    assert arrived == sorted(arrived)
    assert any(0 < count < 9000 for count in arrived), "it is told while it runs"
    assert re.fullmatch(
        r"9000 records sent, \d+\.\d{6} records/sec \(\d+\.\d{2} MB/sec\), "
        r"\d+\.\d{2} ms avg latency, \d+\.\d{2} ms max latency, "
        r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.",
        whole,
    )
    assert steady.startswith("8000 steady state records sent, ")
    assert "Partitions" in shown
    record = json.loads(path.read_text())
    assert (record["records"], record["rate"], record["errors"]) == (9000, 3000, 0)
    each = record["producers"]
    assert [one["records"] for one in each] == [4500, 4500]
    assert {one["rate"] for one in each} == {1500}
    assert record["max_ms"] == max(one["max_ms"] for one in each)
    consumed = asyncio.run(read_topic(topic))
    assert len(consumed) == 9000
    rows = telemetry.read(facts).to_pylist()
    clients = {row["client_id"] for row in rows}
    assert clients == {"fleet-0", "fleet-1"}

    def times(client: str, at: str) -> list[float]:
        return [row["started"].timestamp() + row[at] for row in rows if row["client_id"] == client]

    last_begins = max(min(times(client, "created_s")) for client in clients)
    first_ends = min(max(times(client, "acknowledged_s")) for client in clients)
    assert last_begins < first_ends, "they start together"
