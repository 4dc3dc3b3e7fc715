"""``kafkaclient produce`` and ``consume`` with a schema registry."""

from __future__ import annotations

import json
import threading
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import kafkaclient.admin
import kafkaclient.reader
from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin
from kafkaclient.cli.app import app
from kafkaclient.cli.registry import _is_of_registry
from kafkaclient.reader import Reader
from kafkaclient.testing.fake import FakeCluster
from tests.schema_registry.stub import PASSWORD, USER, running_stub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typer.testing import Result

    from tests.schema_registry.stub import RegistryStub

    Run = Callable[..., Result]

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "raw", "type": ["null", "bytes"], "default": None},
        ],
    }
)
JSON = json.dumps({"title": "K", "type": "object", "properties": {"id": {"type": "integer"}}})


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    """In a thread with a loop of its own: the commands run theirs."""
    import asyncio  # noqa: PLC0415

    ready, ended = threading.Event(), threading.Event()
    stubs: list[RegistryStub] = []

    async def main() -> None:
        async with running_stub() as stub:
            stub.register("t-value", {"schema": AVRO, "schemaType": "AVRO"})
            stub.register("t-key", {"schema": JSON, "schemaType": "JSON"})
            stub.register("p-value", {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
            stubs.append(stub)
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(10)
    yield stubs[0]
    ended.set()
    thread.join(10)


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    cluster.create_topic("p", 1)
    return cluster


@pytest.fixture
def run(fake: FakeCluster, registry: RegistryStub, monkeypatch: pytest.MonkeyPatch) -> Run:
    clients: list[tuple[Any, str, Any]] = [
        (kafkaclient.admin, "Admin", Admin),
        (kafkaclient.reader, "Reader", Reader),
        (kafkaclient, "Consumer", Consumer),
        (kafkaclient, "Producer", Producer),
    ]
    for module, name, client in clients:
        monkeypatch.setattr(module, name, partial(client, dialer=fake, rng=Random(1)))
    login = f"schema.registry.basic.auth.user.info={USER}:{PASSWORD}"

    def invoke(*words: str, given: str = "") -> Result:
        places = ("-b", fake.bootstrap, "-X", login, "--registry", registry.url)
        return CliRunner().invoke(app, [*words, *places], input=given)

    return invoke


def test_json_goes_out_in_avro_and_comes_back_as_json(run: Run, fake: FakeCluster) -> None:
    sent = run("produce", "t", '{"carrier": "KLM", "day": null}', "--value-schema", "latest")
    assert sent.exit_code == 0, sent.stderr
    assert fake.log("t", 0)[0].value == b"\x00\x00\x00\x00\x01\x06KLM\x00\x00"
    read = run("consume", "t", "-e")
    assert json.loads(read.stdout) == {"carrier": "KLM", "day": None, "raw": None}
    line = run("consume", "t", "-e", "--filter", "value~KLM", "-f", "%o %s").stdout
    assert line.startswith('0 {"carrier": "KLM"')


def test_keys_have_a_schema_of_their_own(run: Run, fake: FakeCluster) -> None:
    sent = run("produce", "t", '{"carrier": "A", "day": 1}', "-k", '{"id": 5}', "--key-schema", "2")
    assert sent.exit_code == 0, sent.stderr
    (record,) = fake.log("t", 0)
    assert record.key == b'\x00\x00\x00\x00\x02{"id":5}'
    assert record.value == b'{"carrier": "A", "day": 1}'
    shown = json.loads(run("consume", "t", "-e", "--json").stdout)
    assert (json.loads(shown["key"]), json.loads(shown["value"])["day"]) == ({"id": 5}, 1)


def test_a_group_reads_the_same(run: Run) -> None:
    sent = run("produce", "t", '{"carrier": "A", "day": null}', "--value-schema", "1")
    assert sent.exit_code == 0, sent.stderr
    read = run("consume", "t", "-g", "g", "-e")
    assert json.loads(read.stdout)["carrier"] == "A"


def test_what_cannot_be_encoded_names_its_record(run: Run, fake: FakeCluster) -> None:
    good = '{"carrier": "A", "day": null}'
    for bad in ('{"carrier": 5, "day": null}', "no json"):
        wrong = run("produce", "t", good, bad, "--value-schema", "latest")
        assert wrong.exit_code != 0
        assert "record 2: value: " in wrong.stderr
        assert "Those before it were sent" in wrong.stderr
    assert len(fake.log("t", 0)) == 2
    tombstone = run("produce", "t", "", "-Z", "-k", "a", "--value-schema", "latest")
    assert tombstone.exit_code == 0
    assert fake.log("t", 0)[2].value is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["produce", "t", "1", "--value-schema", "newest"], "give latest or the id"),
        (["produce", "nothing", "1", "--value-schema", "latest"], "nothing"),
        (["produce", "p", "1", "--value-schema", "latest"], "type is PROTOBUF"),
    ],
)
def test_a_wrong_schema_is_told(run: Run, words: list[str], reason: str) -> None:
    wrong = run(*words)
    assert wrong.exit_code in (1, 2)
    assert reason in wrong.stderr
    assert PASSWORD not in wrong.stderr


def test_what_cannot_be_decoded_is_told(
    run: Run, fake: FakeCluster, registry: RegistryStub
) -> None:
    run("produce", "p", "plain")
    assert run("consume", "p", "-e").stdout == "plain\n"
    for value, reason in (("\0\0\0\0\3x", "PROTOBUF"), ("\0\0\0\0\x63x", "schemas/ids/99")):
        assert run("produce", "p", "before", value).exit_code == 0
        wrong = run("consume", "p", "-o", "-1", "-e")
        assert wrong.exit_code == 1
        assert "p-0 at offset" in wrong.stderr
        assert reason in wrong.stderr
        assert registry.url in wrong.stderr
        printed = run("consume", "p", "-o", "-2", "-e")
        assert (printed.exit_code, printed.stdout) == (1, "before\n")
        assert run("consume", "p", "-o", "-2", "-n", "1").exit_code == 0
    skip = ["consume", "p", "-e", "--skip-message-on-error"]
    assert run("produce", "p", "last").exit_code == 0
    for member in ([], ["-g", "g"]):
        left = run(*skip, *member)
        assert (left.exit_code, left.stdout.split()) == (0, ["plain", "before", "before", "last"])
        told = "4 records of p\nnote: 2 records left out; the first: the record of p-0 at offset 2 "
        assert left.stderr.startswith(told)
    assert run(*skip, "-n", "2").stderr == "2 records of p\n"
    for status in (401, 500):
        registry.refuse_with = status
        for words in (["consume", "p", "-o", "-2", "-e"], skip):
            away = run(*words, "-X", "schema.registry.max.retries=0")
            assert away.exit_code == 1
            assert "the store is not available" in away.stderr


def test_a_schema_needs_a_registry(fake: FakeCluster) -> None:
    words = ["produce", "t", "1", "--value-schema", "latest", "-b", fake.bootstrap]
    wrong = CliRunner().invoke(app, words)
    assert (wrong.exit_code, "needs --registry URL" in wrong.stderr) == (2, True)


def test_only_java_s_own_names_are_left_out(fake: FakeCluster) -> None:
    words = ["topics", "list", "-b", fake.bootstrap, "-X", "key.serializers=x"]
    wrong = CliRunner().invoke(app, words)
    assert (wrong.exit_code, "key.serializers" in wrong.stderr) == (2, True)


def test_a_file_of_options_is_read_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell's ``<(...)`` is empty when it is read again."""
    file, reads = tmp_path / "options", []

    def read(path: Path) -> dict[str, str]:
        reads.append(path)
        return {}

    file.touch()
    monkeypatch.setattr("kafkaclient.cli.connection.options_in", read)
    for words in (["consume", "t", "-e"], ["produce", "t", "1", "--value-schema", "1"]):
        run(*words, "--command-config", str(file))
    assert reads == [file, file]


def test_a_registry_that_is_away_is_no_wrong_use(
    run: Run, fake: FakeCluster, registry: RegistryStub
) -> None:
    words = ["produce", "t", "1", "--value-schema", "latest"]
    quick = ["-X", "schema.registry.max.retries=0"]
    away = ["-b", fake.bootstrap, "--registry", "http://u:pw@[::1]:1"]
    gone = CliRunner().invoke(app, [*words, *quick, *away])
    assert gone.exit_code == 1
    assert "the registry [::1]:1: " in gone.stderr
    assert "nothing was sent" in gone.stderr
    assert "pw" not in gone.stderr
    registry.refuse_with = 500
    assert run(*words, *quick).exit_code == 1


@pytest.mark.parametrize("client", ["httpx", "httpx2"])
def test_a_registry_that_does_not_answer_is_not_the_records_fault(client: str) -> None:
    """confluent-kafka uses the HTTP client that is installed, httpx2 before httpx."""
    error = pytest.importorskip(client).ConnectError("connection refused")
    assert _is_of_registry(error)
    assert not _is_of_registry(ValueError("not a record of this schema"))
