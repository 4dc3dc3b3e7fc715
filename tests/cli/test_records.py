"""``kafkaclient produce`` and ``consume`` on the fake cluster."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import signal
import subprocess
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import kafkaclient.admin
import kafkaclient.reader
from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin
from kafkaclient.admin.places import Place
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.cli.app import app
from kafkaclient.cli.record_format import row_of_json, unescaped, written_as, written_as_json
from kafkaclient.cli.record_input import Split, delimited, length_prefixed
from kafkaclient.cluster import waits
from kafkaclient.errors import ConfigError, InvalidRecordError
from kafkaclient.producer import runtime
from kafkaclient.reader import Reader
from kafkaclient.reader.batch import FetchedRecord
from kafkaclient.testing.fake import DROP, FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.testing import Result

    Run = Callable[..., Result]


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 1)
    return cluster


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    clients: list[tuple[Any, str, Any]] = [
        (kafkaclient.admin, "Admin", Admin),
        (kafkaclient.reader, "Reader", Reader),
        (kafkaclient, "Consumer", Consumer),
        (kafkaclient, "Producer", Producer),
    ]
    for module, name, client in clients:
        monkeypatch.setattr(module, name, partial(client, dialer=fake, rng=Random(1)))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "-b", fake.bootstrap])

    return invoke


def test_arguments_go_out_and_come_back(run: Run, fake: FakeCluster) -> None:
    sent = run("produce", "t", "one", "two", "-k", "key", "-H", "a=1", "--timestamp", "@5")
    assert (sent.exit_code, sent.stderr) == (0, "2 records written to t\n")
    record = fake.log("t", 0)[0]
    assert (record.key, record.headers, record.timestamp) == (b"key", (("a", b"1"),), 5)
    read = run("consume", "t", "-e")
    assert (read.exit_code, read.stdout) == (0, "one\ntwo\n")
    assert read.stderr == "2 records of t\n"
    assert run("consume", "t", "-e", "-K", "=").stdout == "key=one\nkey=two\n"
    form = r"%t-%p:%o %T %K/%k %S/%s %h %%\x21\n"
    assert run("consume", "t", "-n", "1", "-f", form).stdout == "t-0:0 5 3/key 3/one a=1 %!\n"


def test_what_consume_prints_as_json_produce_reads(
    run: Run, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.create_topic("copy", 1)
    blob, text = tmp_path / "blob", tmp_path / "lines"
    blob.write_bytes(b"\x00\x00\x00\x02\xff\xfe\xff\xff\xff\xff\x00\x00\x00\x00")
    assert run("produce", "t", "--length-prefixed", "--file", str(blob)).exit_code == 0
    assert run("produce", "t", "x", "-k", "ü", "-H", "n=v", "--timestamp", "@7").exit_code == 0
    text.write_text(run("consume", "t", "-e", "--json").stdout)
    assert json.loads(text.read_text().splitlines()[0])["value_base64"] == "//4="
    assert run("produce", "copy", "--json", "-l", str(text)).exit_code == 0

    def content(topic: str) -> list[object]:
        return [(r.key, r.value, r.headers, r.timestamp) for r in fake.log(topic, 0)]

    assert content("copy") == content("t")
    assert [each.value for each in fake.log("t", 0)] == [b"\xff\xfe", None, b"", b"x"]


def test_a_record_that_cannot_be_read_ends_the_input(
    run: Run, fake: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    for text, options, reason in (
        ("a:1\nb:2\nxx\nc:3\n", ["-K", ":"], "record 3: no ':' behind a key"),
        ('{"value": 1}\n{"key": {"a": 2}}\n[]\n', ["--json"], "record 3: no JSON object"),
        ('{}\n{}\n{"valeu": 1}\n', ["--json"], "record 3: unknown valeu"),
        ('{}\n{}\n{"key_base64": "?"}\n', ["--json"], "record 3: key_base64 is not base64"),
        ('{}\n{}\n{"partition": "x"}\n', ["--json"], "record 3: partition 'x' is no number"),
        ("a\nb\n" + "x" * 2_000_000 + "\nc", [], "record 3: a record for topic 't' takes up to"),
        (
            '{"partition": 0}\n{}\n{"value": "%s"}\n{"partition": 0}' % ("x" * 2_000_000),
            ["--json"],
            "record 3: a record for topic",
        ),
    ):
        before = len(fake.log("t", 0))
        file.write_text(text)
        result = run("produce", "t", *options, "--file", str(file))
        assert result.exit_code == 1, result.output
        assert reason in result.stderr
        assert "2 records written to t" in result.stderr
        assert len(fake.log("t", 0)) == before + 2


def test_records_that_are_not_written_are_counted(run: Run, fake: FakeCluster) -> None:
    result = run("produce", "t", "x" * 3_000_000, "-X", "max.request.size=1000")
    assert result.exit_code == 1
    assert "max.request.size" in result.stderr
    assert run("produce", "t", "x", "-p", "7").exit_code == 1
    assert not fake.log("t", 0)


def test_a_tombstone(run: Run, fake: FakeCluster) -> None:
    assert run("produce", "t", "", "-k", "gone", "-Z").exit_code == 0
    assert [(r.key, r.value) for r in fake.log("t", 0)] == [(b"gone", None)]


def test_where_to_begin_and_to_end(run: Run) -> None:
    for number in range(10):
        run("produce", "t", str(number), "--timestamp", f"@{number * 1000}")
    for words, expected in (
        (["-o", "-3", "-e"], "789"),
        (["-o", "-30", "-n", "2"], "01"),
        (["-o", "4", "--until", "6"], "45"),
        (["-o", "@2500", "--until", "@5000"], "34"),
        (["-o", "latest", "-e"], ""),
        (["-o", "1970-01-01T00:00:08Z", "-e"], "89"),
        (["--filter", "value~[3-5]", "-n", "2", "-e"], "34"),
        (["--filter", "value=7", "-e"], "7"),
        (["--filter", "key=7", "-e"], ""),
    ):
        result = run("consume", "t", *words)
        assert result.exit_code == 0, result.output
        assert result.stdout.replace("\n", "") == expected, words


@pytest.mark.parametrize(
    ("words", "limit"),
    [([], None), (["--timeout", "3"], "3000"), (["-X", "max.block.ms=7000"], "7000")],
)
def test_the_time_limit_is_that_of_the_reader(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], limit: str | None
) -> None:
    given, reader = [], kafkaclient.reader.Reader

    def make(options: dict[str, str]) -> Reader:
        given.append(options.get("max.block.ms"))
        return reader(options)

    monkeypatch.setattr("kafkaclient.reader.Reader", make)
    assert run("consume", "t", "-e", *words).exit_code == 0
    assert given == [limit]


def test_a_group_goes_on_where_it_was(run: Run) -> None:
    run("produce", "t", *"abcde")
    assert run("consume", "t", "-g", "g", "-n", "2").stdout == "a\nb\n"
    assert run("consume", "t", "-g", "g", "-e").stdout == "c\nd\ne\n"
    assert run("consume", "t", "-g", "g", "-e").stdout == ""


@pytest.mark.parametrize("member", [[], ["-g", "g"]])
def test_a_partition_without_a_leader_holds_up_no_other(
    run: Run, fake: FakeCluster, member: list[str]
) -> None:
    fake.create_topic("s", assignments=[[0], [1], [0], [1]])
    for number in range(4):
        run("produce", "s", str(number), "-p", str(number))
    fake.stop_broker(1)
    words = ["consume", "s", *member, "--timeout", "0.5"]
    ended = run(*words, "-e")
    assert (ended.exit_code, sorted(ended.stdout.split())) == (1, ["0", "2"])
    told = "s-1,s-3: not read to the end: it has no leader that is up"
    assert ended.stderr == f"2 records of s\nerror: {told}\n"
    if not member:
        without_end = run(*words)
        assert (without_end.exit_code, without_end.stdout) == (1, ended.stdout)
        assert "it has no leader" in without_end.stderr
        assert run(*words, "-e", "-n", "1").exit_code == 0
    fake.start_broker(1)
    again = run(*words, "-e")
    assert (again.exit_code, len(again.stdout.split())) == (0, 2 if member else 4)


def test_a_leader_that_is_lost_while_a_group_reads(run: Run, fake: FakeCluster) -> None:
    """The other partitions are read to their ends, as without a group."""
    fake.create_topic("s", assignments=[[0], [1]])
    for number in range(2):
        run("produce", "s", str(number), "-p", str(number))

    def stop(_: object) -> object:
        asyncio.get_running_loop().call_later(0.5, fake.stop_broker, 1)  # the ends are known then
        return DROP

    fake.control(ApiKey.FETCH, stop, broker=1)
    ended = run("consume", "s", "-g", "g", "-e", "--timeout", "1")
    assert (ended.exit_code, ended.stdout) == (1, "0\n")
    assert ended.stderr.endswith(
        "1 record of s\nerror: s-1: not read to the end: nothing could be fetched at offset 0 for "
        "1 s (max.block.ms): it has no leader that is up\n"
    )
    fake.start_broker(1)
    assert run("consume", "s", "-g", "g", "-e").stdout == "1\n"


def test_partitions_of_json_may_be_ignored(run: Run, fake: FakeCluster, tmp_path: Path) -> None:
    """A topic is copied to one with fewer partitions."""
    fake.create_topic("s", 3)
    fake.create_topic("one", 1)
    for number in range(3):
        run("produce", "s", str(number), "-p", str(number))
    lines = str(tmp_path / "lines")
    assert run("consume", "s", "-e", "--json", "--out", lines).exit_code == 0
    refused = run("produce", "one", "--json", "-l", lines)
    assert refused.exit_code == 1
    assert re.search("topic one has no partition [12]; with -p -1 the keys choose", refused.stderr)
    before = len(fake.log("one", 0))
    copied = run("produce", "one", "--json", "-p", "-1", "-l", lines)
    assert (copied.exit_code, copied.stderr) == (0, "3 records written to one\n")
    assert len(fake.log("one", 0)) == before + 3
    assert run("produce", "one", "v", "-p", "-1").exit_code == 0
    assert run("produce", "one", "v", "-p", "-2").exit_code == 2


def test_an_evicted_member_has_not_read_to_the_end(
    run: Run, fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no partitions, all of which would be read: it joins again, and reads them."""
    fake.create_topic("s", assignments=[[0], [1]])
    for number in range(2):
        run("produce", "s", str(number), "-p", str(number))

    def evict(_: object) -> object:
        heartbeat = ApiKey.CONSUMER_GROUP_HEARTBEAT
        fake.control(heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)
        for _ in range(8):  # joining takes a while
            fake.control(heartbeat, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return DROP

    fake.control(ApiKey.FETCH, evict, broker=1)
    ended = run("consume", "s", "-g", "g", "-e", "-X", "request.timeout.ms=2000")
    assert "lost; other members may have them" in caplog.text
    assert (ended.exit_code, sorted(set(ended.stdout.split()))) == (0, ["0", "1"])
    with_none = run("consume", "s", "-g", "g", "-e")
    assert (with_none.exit_code, with_none.stdout) == (0, "")


def test_columns(run: Run, tmp_path: Path) -> None:
    csv = tmp_path / "t.csv"
    run("produce", "t", "a,b", "-k", "k", "--timestamp", "@0")
    assert run("consume", "t", "-e", "--out", str(csv)).exit_code == 0
    assert csv.read_text().splitlines() == [
        '"topic","partition","offset","timestamp","key","value"',
        '"t",0,0,1970-01-01 00:00:00.000Z,"k","a,b"',
    ]
    for name in ("t.parquet", "t.arrow", "t.bin"):
        assert run("consume", "t", "-e", "--out", str(tmp_path / name)).exit_code == 0
        assert (tmp_path / name).stat().st_size > 3
    (tmp_path / "in").write_bytes(b"\xff\n")
    run("produce", "t", "--file", str(tmp_path / "in"))
    result = run("consume", "t", "-e", "--out", str(csv))
    assert result.exit_code == 1
    assert "the value at t-0, offset 1, is no UTF-8" in result.stderr
    run("produce", "t", "z")
    skip = run("consume", "t", "-e", "--out", str(csv), "--skip-message-on-error")
    assert skip.exit_code == 0
    assert f"2 records of t, in {csv}\nnote: 1 record left out; the first: the value at t-0" in (
        skip.stderr
    )
    assert [line.rpartition(",")[2] for line in csv.read_text().splitlines()[1:]] == ['b"', '"z"']


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("name", "consequence"),
    [
        ("t", "it may end in the middle of a record"),
        ("t.csv", "nothing is in it"),
        ("t.parquet", "nothing is in it"),
        ("t.arrow", "without its end nothing in it can be read"),
    ],
)
def test_a_full_disk_names_the_file(run: Run, tmp_path: Path, name: str, consequence: str) -> None:
    file = tmp_path / name
    file.symlink_to("/dev/full")
    run("produce", "t", "a", "b")
    result = run("consume", "t", "-e", "--out", str(file))
    assert result.exit_code == 1
    assert f" of t, in {file}\n" in result.stderr
    assert f"error: {file} cannot be written: " in result.stderr
    assert "No space left on device" in result.stderr
    assert result.stderr.endswith(f"; {consequence}\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["consume", "tt", "-e"], "did you mean t?"),
        (["consume", "t", "-o", "soon"], "--from 'soon' is none of"),
        (["consume", "t", "--until", "-5"], "--until -5: give end"),
        (["consume", "t", "--until", "5", "-e"], "--until and --exit"),
        (["consume", "t", "-f", "%x"], "has '%x'; there are %t"),
        (["consume", "t", "-f", r"\xg"], "--format"),
        (["consume", "t", "-f", "%s", "--json"], "give one of them"),
        (["consume", "t", "--filter", "what=1"], "--filter 'what=1'"),
        (["consume", "t", "--filter", "key~("], "--filter 'key~('"),
        (["consume", "t", "-g", "g", "-o", "5"], "reset-offsets"),
        (["consume", "t", "-g", "g", "-p", "0"], "--partition and --group"),
        (["consume", "t", "-p", "9", "-e"], "9"),
        (["consume", "t", "--out", "t.csv", "--json"], "no use for the columns"),
        (["consume", "t", "-e", "-X", "fetch.max.byte=1"], "fetch.max.bytes"),
        (["produce", "t", "x", "-K", ":", "--json"], "give one of them"),
        (["produce", "t", "x", "--file", __file__], "values and --file"),
        (["produce", "t", "--file", "nowhere"], "does not exist"),
        (["produce", "t", "x", "-H", "a"], "--header takes NAME=VALUE"),
        (["produce", "t", "x", "--timestamp", "latest"], "--timestamp"),
        (["produce", "t", "x", "-z", "rar"], "compression.type"),
        (["produce", "t", "x", "-D", ""], "a delimiter is empty"),
    ],
)
def test_wrong_use_is_told(run: Run, words: list[str], reason: str) -> None:
    result = run(*words)
    assert result.exit_code in {1, 2}
    assert reason in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("words", [["produce", "t", "x"], ["consume", "t", "-e"]])
def test_a_wrong_option_is_told_before_brokers_are_asked(
    run: Run, fake: FakeCluster, words: list[str]
) -> None:
    for broker in range(2):
        fake.stop_broker(broker)
    result = run(*words, "-X", "fetch.min.byte=1")
    assert result.exit_code == 2
    assert "unknown option fetch.min.byte" in result.stderr


def test_the_brokers_create_no_topic_that_the_producer_does_not_ask_for(run: Run) -> None:
    result = run(
        "produce", "new", "x", "-X", "allow.auto.create.topics=false", "-X", "max.block.ms=10"
    )
    assert "there is no topic new\n" in result.stderr


@pytest.mark.parametrize("split", [delimited(b"\n"), delimited(b"ab"), length_prefixed])
@given(data=st.data())
def test_records_do_not_depend_on_where_the_input_is_cut(split: Split, data: st.DataObject) -> None:
    whole = data.draw(
        st.lists(st.sampled_from([b"a", b"b", b"\n", b"\x00\x00\x00\x01"])).map(b"".join)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    expected: list[bytes | None] | None
    try:
        expected, _ = split(whole, True)
    except InvalidRecordError:
        expected = None
    found, rest = [], b""
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        records, rest = split(rest + whole[start:end], False)
        found += records
    try:
        found += split(rest, True)[0]
    except InvalidRecordError:
        assert expected is None
    else:
        assert found == expected


@given(
    key=st.none() | st.binary(max_size=5),
    value=st.none() | st.binary(max_size=5),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))),
)
def test_json_lines_keep_every_byte(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = FetchedRecord("t", 3, 9, 5, 0, key, value, tuple(headers))
    line = written_as_json([record])
    assert line.count(b"\n") == 1
    row = row_of_json(line)
    assert (row.key, row.value, row.headers) == (key, value, tuple(headers))
    assert (row.partition, row.timestamp_ms) == (3, 5)


def test_formats() -> None:
    record = FetchedRecord("t", 0, 0, -1, 0, None, None)
    assert written_as("%k|%s|%K|%S|%R")([record]) == b"||-1|-1|\xff\xff\xff\xff"
    assert unescaped(r"\t\x00é\\n", "--x") == "\t\x00é\\n".encode()


async def test_places() -> None:
    where = TopicPartition("t", 0)
    now = time.time() * 1000

    async def offsets(_: object, at: int) -> dict[TopicPartition, int | None]:
        return {where: 7 if at < now else None}

    async def offset(text: str) -> int:
        return (await Place.parse(text, "--from").of(offsets, {where: 2}, {where: 9}))[where]

    texts = ["start", "end", "0", "5", "99", "-4", "-99", "@1", "1h", "2100-01-01"]
    found = {text: await offset(text) for text in texts}
    assert list(found.values()) == [2, 9, 2, 5, 9, 5, 2, 7, 7, 9]
    utc = Place.parse("2026-01-02T03:04", "--from").time_ms
    assert utc == datetime(2026, 1, 2, 3, 4, tzinfo=UTC).timestamp() * 1000
    with pytest.raises(ConfigError, match=re.escape("--from '5x' is none of: earliest")):
        Place.parse("5x", "--from")


def test_ctrl_c_says_how_many_records_may_not_be_written(
    run: Run,
    fake: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = Producer.stop

    async def interrupted(producer: Producer, timeout: float | None = None) -> int:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        return await stop(producer, timeout)

    monkeypatch.setattr(Producer, "stop", interrupted)
    fake.fail_produce("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS, times=1000)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = run("produce", "t", "one", "two")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert result.stderr == (
        "0 records written to t\n"
        "warning: 2 records may not be written: they were waiting for a broker\ninterrupted\n"
    )
    gc.collect()
    assert "no caller checked" not in caplog.text


def test_ctrl_c_does_not_wait_for_a_dead_broker(
    run: Run, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While the input goes on: no further record is read, and those that were read may take 5 s."""
    monkeypatch.setattr("kafkaclient.cli.produce._STOP_S", 0.2)
    fake.fail_produce("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS, times=1000)
    send_many = Producer.send_many

    async def sent(*arguments: Any, **named: Any) -> Any:
        asyncio.get_running_loop().call_later(0.2, signal.raise_signal, signal.SIGINT)
        return await send_many(*arguments, **named)

    monkeypatch.setattr(Producer, "send_many", sent)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR)  # the input has no end
    os.write(descriptor, b"one\n")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    try:
        limits = ("-X", "delivery.timeout.ms=20000", "-X", "request.timeout.ms=5000")
        result = run("produce", "t", "--file", str(pipe), *limits)
    finally:
        signal.signal(signal.SIGINT, before)
        os.write(descriptor, b"\n")  # the thread that reads ends
        os.close(descriptor)
    assert (result.exit_code, time.monotonic() - began < 10) == (130, True)
    assert result.stderr.startswith("0 records written to t\nerror: 1 record not written: ")
    assert result.stderr.endswith("interrupted\n")


def test_a_long_wait_is_told_while_the_input_goes_on(
    run: Run,
    fake: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module in (waits, runtime):
        monkeypatch.setattr(module, "LOGGED_AFTER_S", 0.1)
    monkeypatch.setattr("kafkaclient.cli.produce._WATCH_EVERY_S", 0.05)
    fake.delay_produce(0, 0.7)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    shell = f"exec > {pipe}; echo a; sleep 1.5"
    with subprocess.Popen(["bash", "-c", shell]):
        assert run("produce", "t", "-l", str(pipe)).exit_code == 0
    waits_told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    # On a slow machine the wait for a producer id is told, too.
    (began, ended) = [text for text in waits_told if "record" in text]
    assert re.search(r"1 record to t-0: after \d", began)
    assert "was on its way to broker 0" in began
    assert ended.startswith("the wait for acknowledgments of records ended after ")
