from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.cli.perf_report import metrics_lines
from kafkaclient.cli.perf_test import repeat_flags
from kafkaclient.metrics.snapshot import MetricsSnapshot
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    PerfTest = Callable[..., Result]

FINAL = re.compile(
    r"\d+( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d{2} MB/sec\), "
    r"\d+\.\d{2} ms avg latency, \d+\.\d{2} ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


def test_stdout_holds_the_final_line_and_nothing_else(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "10")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert FINAL.fullmatch(line)
    assert line.startswith("100 records sent, ")


def test_stderr_tells_percentiles_brokers_and_partitions(perf_test: PerfTest) -> None:
    stderr = perf_test("--record-size", "10").stderr
    for text in ("p99.9", "Brokers", "Partitions", "25.0%", "75.0%", "3,000"):
        assert text in stderr


def test_stderr_tells_what_partitions_were_chosen_by(perf_test: PerfTest) -> None:
    stderr = perf_test("--record-size", "10").stderr
    for text in (
        "window",
        "median ms",
        "exclusions",
        "12.50",
        "17",
        "batches",
        "1,234",
        "skew 1.50",
    ):
        assert text in stderr
    assert "?" in stderr, "what a client does not know of broker 0"


def test_where_telemetry_is_kept_is_no_part_of_the_setting(
    perf_test: PerfTest, instant: Any, tmp_path: Path
) -> None:
    path, facts = tmp_path / "run.json", tmp_path / "facts"
    words = ("--json", str(path), "--command-property", f"telemetry={facts}")
    perf_test("--record-size", "10", *words)
    assert instant.configs[0]["telemetry"] == str(facts)
    assert json.loads(path.read_text())["setting"] == "default"


def test_credentials_are_no_part_of_the_setting(
    perf_test: PerfTest, instant: Any, tmp_path: Path
) -> None:
    path, file = tmp_path / "run.json", tmp_path / "client.properties"
    file.write_text('sasl.jaas.config=a.PlainLoginModule required \\\n  password="hunter2";\n')
    words = ("--command-config", str(file), "--command-property", "sasl_password=hunter2", "acks=1")
    result = perf_test("--record-size", "10", "--json", str(path), *words)
    assert instant.configs[0]["sasl_password"] == "hunter2"
    assert instant.configs[0]["sasl.jaas.config"].endswith('password="hunter2";')
    assert json.loads(path.read_text())["setting"] == "acks=1"
    assert "hunter2" not in path.read_text() + result.stdout + result.stderr


def test_steady_state_adds_a_line(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "10", "--warmup-records", "40")
    lines = result.stdout.splitlines()
    assert [line.partition(" records")[0] for line in lines] == ["100", "60 steady state"]
    assert all(FINAL.fullmatch(line) for line in lines)


def test_windows_are_reported_at_the_interval(perf_test: PerfTest) -> None:
    result = perf_test(
        *("--record-size", "10", "--num-records", "200", "--throughput", "4000"),
        *("--reporting-interval", "10"),
    )
    *windows, final = result.stdout.splitlines()
    assert FINAL.fullmatch(final)
    assert windows
    assert all(line.endswith(" ms max latency.") for line in windows)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("--payload-monotonic",), [b"0", b"1", b"2"]),
        (("--payload-file", "FILE"), {b"a b", b"c"}),
        (("--payload-file", "FILE", "--payload-delimiter", " "), {b"a", b"b\nc\n"}),
        (("--payload-file", "BINARY", "--payload-delimiter", "\r\n"), {b"\xff", b"\n\r"}),
        (("--payload-monotonic", "--throughput", "inf"), [b"0", b"1", b"2"]),
    ],
)
def test_payloads(
    perf_test: PerfTest,
    instant: Any,
    tmp_path: Path,
    words: tuple[str, ...],
    values: list[bytes] | set[bytes],
) -> None:
    files = {"FILE": b"a b\nc\n", "BINARY": b"\xff\r\n\n\r\r\n"}
    for name, payloads in files.items():
        (tmp_path / name).write_bytes(payloads)
    result = perf_test(*(str(tmp_path / word) if word in files else word for word in words))
    assert result.exit_code == 0, result.stderr
    if isinstance(values, list):
        assert instant.values[:3] == values
    else:
        assert set(instant.values) == values


def test_options_come_from_file_then_words_then_bootstrap(
    perf_test: PerfTest, instant: Any, tmp_path: Path
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text(
        "acks=1\nlinger.ms=7\nbootstrap.servers=h:1\nkey.serializer=org.example.Serializer\n"
    )
    result = perf_test(
        *("--record-size", "10", "--command-config", str(file)),
        *("--command-property", "acks=all", "compression.type=lz4", "--print-metrics"),
    )
    assert result.exit_code == 0, result.stderr
    assert instant.configs == [
        {
            "client.id": "perf-producer-client",
            "acks": "all",
            "linger.ms": "7",
            "compression.type": "lz4",
            "bootstrap.servers": "127.0.0.1:9092",
        }
    ]


def test_the_deprecated_flags_do_the_same(
    perf_test: PerfTest, instant: Any, tmp_path: Path
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("acks=1\n")
    result = perf_test(
        *("no--bootstrap-server", "--record-size", "10", "--producer.config", str(file)),
        *("--producer-props", "bootstrap.servers=h:1", "client.id=me"),
    )
    assert result.exit_code == 0, result.stderr
    assert instant.configs == [{"client.id": "me", "acks": "1", "bootstrap.servers": "h:1"}]


def test_json_holds_every_run(perf_test: PerfTest, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = perf_test(
        *("--record-size", "10", "--json", str(path), "--repeat", "2", "--throughput", "5000"),
        *("--command-property", "linger.ms=2", "acks=1"),
    )
    assert len(result.stdout.splitlines()) == 2
    record = json.loads(path.read_text())
    assert [run["run"] for run in record["runs"]] == [1, 2]
    assert record["client"] == "instant"
    assert record["setting"] == "acks=1"
    assert (record["rate"], record["linger_ms"], record["records"]) == (5000, 2, 100)
    assert record["bytes_per_broker"] == [1000, 3000]
    assert record["requests_per_broker"] == [4, 6]
    assert record["lost"] is None


def test_a_full_disk_is_an_error_that_names_the_file(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "10", "--json", "/dev/full")
    assert result.exit_code == 1
    assert "error: /dev/full: No space left on device\n" in result.stderr


def test_metrics_are_printed_after_the_final_line_on_request(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "10", "--print-metrics")
    final, *metrics = result.stdout.splitlines()
    assert FINAL.fullmatch(final)
    assert metrics == [
        "",
        "Metric Name                          Value",
        "producer-metrics:record-send-total : 7.000",
        "producer-metrics:waiting-threads   : 0.000",
    ]


def test_metrics_are_sorted_and_aligned() -> None:
    metrics = MetricsSnapshot(
        {"x": 1},
        {-1: {"x": 2}, 2: {"x": 3}},
        {"t": {"x": 5}},
        {TopicPartition("t", 10): {"x": 4}},
        {},
        {},
    )
    assert metrics_lines(metrics).splitlines()[2:] == [
        "producer-metrics:x                : 1.000",
        "producer-node-metrics:node--1:x   : 2.000",
        "producer-node-metrics:node-2:x    : 3.000",
        "producer-partition-metrics:t-10:x : 4.000",
        "producer-topic-metrics:t:x        : 5.000",
    ]


@pytest.mark.parametrize(
    ("words", "name", "duration"),
    [
        (("--transactional-id", "a"), "a", "3000"),
        (("--command-property", "transactional.id=b"), "b", "3000"),
        (("--command-property", "transactional.id=b", "--transactional-id", "a"), "a", "3000"),
        (("--command-config", "FILE", "--transaction-duration-ms", "50"), "c", "50"),
        (("--transaction-duration-ms", "50"), r"performance-producer-[-0-9a-f]{36}", "50"),
    ],
)
def test_transactions_have_javas_flags_and_defaults(
    perf_test: PerfTest,
    instant: Any,
    tmp_path: Path,
    words: tuple[str, ...],
    name: str,
    duration: str,
) -> None:
    file, path = tmp_path / "client.properties", tmp_path / "run.json"
    file.write_text("transactional.id=c\n")
    given = [str(file) if word == "FILE" else word for word in words]
    result = perf_test("--record-size", "10", "--json", str(path), *given)
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(name, instant.configs[0]["transactional.id"])
    assert json.loads(path.read_text())["setting"] == f"transaction.duration.ms={duration}"
    assert instant.transactions == ["begin", "commit"]


def test_without_transactional_id_there_are_no_transactions(
    perf_test: PerfTest, instant: Any
) -> None:
    perf_test("--record-size", "10")
    assert "transactional.id" not in instant.configs[0]
    assert instant.transactions == []


def test_a_transaction_that_fails_ends_the_run(perf_test: PerfTest) -> None:
    words = ("--command-property", "client.id=failing", "--transactional-id", "a")
    result = perf_test("--record-size", "10", *words)
    assert result.exit_code == 1
    assert result.stderr.strip() == "error: a record has failed"


def test_failed_records_are_told_and_fail_the_command(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "10", "--command-property", "client.id=failing")
    assert result.exit_code == 1
    assert result.stdout.startswith("86 records sent")
    assert "14 failed: TimeoutError: too late" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one of --record-size, --payload-file and --payload-monotonic"),
        (("--record-size", "1", "--payload-monotonic"), "exactly one of"),
        (("--record-size", "1", "--throughput", "0"), "--throughput must be"),
        (("--record-size", "1", "--throughput", "-2"), "--throughput must be"),
        (("--record-size", "1", "--throughput", "nan"), "--throughput must be"),
        (("--record-size", "1", "--warmup-records", "-1"), "must not be negative"),
        (("--payload-file", __file__, "--payload-delimiter", ""), "must not be empty"),
        (("--record-size", "1", "--warmup-records", "100"), "--warmup-records 100 leaves none"),
        (("--record-size", "1", "--transaction-duration-ms", "0"), "greater than or equal to 1"),
        (("--record-size", "1", "--command-property", "acks"), "takes NAME=VALUE, not 'acks'"),
        (("--record-size", "1", "--command-config", "/none"), "cannot read the options"),
        (("--record-size", "1", "no--bootstrap-server"), "no brokers to connect to"),
        (("--record-size", "1", "--producer", "none"), "no client 'none'"),
        (
            ("--record-size", "1", "--command-property", "a=1", "--producer-props", "b=2"),
            "cannot be given together",
        ),
        (("--record-size", "0"), "greater than or equal to 1"),
        (("--record-size", "1", "--num-records", "0"), "greater than or equal to 1"),
        (("--payload-file", "/none"), "does not exist"),
    ],
)
def test_wrong_use_is_told_without_a_traceback(
    perf_test: PerfTest, words: tuple[str, ...], message: str
) -> None:
    result = perf_test(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_unreachable_brokers_are_told_in_a_line(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "1", "--bootstrap-server", "nowhere:1")
    assert result.exit_code == 1
    assert result.stderr.strip() == "error: none of nowhere:1 could be reached"


@pytest.mark.parametrize(
    ("words", "repeated"),
    [
        ("--command-property a=1 b=2 --topic t", "--command-property a=1 --command-property b=2"),
        ("--command-property=a=1 b=2 --topic t", "--command-property=a=1 --command-property b=2"),
        ("--command-property a=1 --topic t", "--command-property a=1"),
    ],
)
def test_a_flag_may_take_several_words(words: str, repeated: str) -> None:
    assert list(repeat_flags(words.split())) == [*repeated.split(), "--topic", "t"]


def test_many_producers_run_in_processes(perf_test: PerfTest) -> None:
    result = perf_test("--record-size", "10", "--producers", "2")
    assert result.exit_code == 2
    assert "producer 0: no client 'instant'" in result.stderr, "it is known in this process only"


@pytest.mark.parametrize("flag", ["--print-metrics", "--flame-graph=graph.html"])
def test_what_is_for_one_producer_is_refused_for_many(perf_test: PerfTest, flag: str) -> None:
    result = perf_test("--record-size", "10", "--producers", "2", flag)
    assert result.exit_code == 2
    assert f"{flag.partition('=')[0]} is for one producer" in result.stderr


@pytest.mark.parametrize(("name", "expected"), [("a.html", "<html"), ("a.json", "speedscope.app")])
def test_a_flame_graph(perf_test: PerfTest, tmp_path: Path, name: str, expected: str) -> None:
    pytest.importorskip("pyinstrument")
    path = tmp_path / "new" / name
    result = perf_test("--record-size", "10", "--throughput", "1000", "--flame-graph", str(path))
    assert result.exit_code == 0, result.stderr
    assert expected in path.read_text()
    assert "kafkaclient" in path.read_text()


def test_a_flame_graph_needs_pyinstrument(
    perf_test: PerfTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    result = perf_test("--record-size", "10", "--flame-graph", str(tmp_path / "a.html"))
    assert result.exit_code == 2
    assert "pip install 'kafkaclient[profile]'" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--print-metrics",), "--print-metrics is for one producer"),
        (("--producers", "3"), "local[2] runs 2 tasks at once"),
    ],
)
def test_what_spark_cannot_do_is_said_before_it_is_started(
    perf_test: PerfTest, words: tuple[str, ...], said: str
) -> None:
    result = perf_test("--record-size", "10", "--spark-master", "local[2]", *words)
    assert result.exit_code == 2
    assert said in result.stderr
