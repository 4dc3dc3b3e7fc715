"""``kafkaclient produce`` and ``consume`` on the fake cluster."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from functools import partial
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
from kafkaclient.cli.app import app
from kafkaclient.cli.record_format import row_of_json, unescaped, written_as, written_as_json
from kafkaclient.cli.record_input import Split, delimited, length_prefixed
from kafkaclient.errors import ConfigError, InvalidRecordError
from kafkaclient.reader import Reader
from kafkaclient.reader.batch import FetchedRecord
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    ("words", "limit"), [([], None), (["--timeout", "3"], "3000"), (["-X", "max.block.ms=7"], "7")]
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
