"""The fields of log messages: which calls have them, what they say, and the recipes of the docs."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
from kafkaclient import Consumer, Producer
from kafkaclient.errors import AuthenticationError, KafkaError
from kafkaclient.log_fields import NAMES, log_fields
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake.serving import Sasl
from tests.code_blocks import Block, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = Path(kafkaclient.__file__).parent
POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED = 44, 29

ALOUD = {"warning", "error", "exception", "critical", "log"}
WITHOUT = {
    "%s; the certificates read before stay in use",
    "adding partitions to a transaction failed",
    "ending a transaction failed",
    "sending offsets to a transaction failed",
    "the event loop stood still for %.1f s, and nothing was sent meanwhile: something in "
    "this program computes or waits without awaiting; asyncio's debug mode names it",
}
"""Messages that concern the whole producer, and no topic, partition, broker or error code."""


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for package in ("producer", "cluster", "net"):
        for path in (PACKAGE / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "_log"
                    and node.func.attr in ALOUD
                ):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def _message(call: ast.Call) -> str | None:
    text = call.args[1 if isinstance(call.func, ast.Attribute) and call.func.attr == "log" else 0]
    return text.value if isinstance(text, ast.Constant) else None


def test_every_call_from_warning_on_has_fields() -> None:
    seen = set()
    for where, call in _calls():
        has = any(keyword.arg == "extra" for keyword in call.keywords)
        message = _message(call)
        assert has != (message in WITHOUT), f"{where}: {message}"
        seen.add(message)
    assert seen >= WITHOUT
    assert len(seen) > 20


def test_fields_are_made_in_one_place() -> None:
    """No call has a dict of its own, so all use the same names."""
    for where, call in _calls():
        for keyword in call.keywords:
            if keyword.arg == "extra":
                assert isinstance(keyword.value, ast.Call), where
                assert ast.unparse(keyword.value.func).endswith("_fields"), where


def test_no_field_is_an_attribute_that_records_have_anyway() -> None:
    record = logging.LogRecord("name", logging.INFO, "path", 1, "message", (), None)
    assert not {*vars(record), "message", "asctime", "taskName"} & {*NAMES}


def test_what_does_not_apply_is_left_out() -> None:
    error = KafkaError("refused")
    error.code = 29
    assert log_fields() == {}
    assert log_fields(error, topic="", partition=-1) == {"code": 29}
    assert log_fields(LookupError(), topic="t", partition=0, broker=-1, maybe_written=False) == {
        "topic": "t",
        "partition": 0,
        "broker": -1,
        "maybe_written": False,
    }


# --- behavior -------------------------------------------------------------------------------------


def _fields(caplog: pytest.LogCaptureFixture, part: str) -> dict[str, Any]:
    """The fields of the one message that contains ``part``."""
    (record,) = [r for r in caplog.records if part in r.getMessage()]
    return {name: vars(record)[name] for name in NAMES if name in vars(record)}


def _cluster() -> FakeCluster:
    fake = FakeCluster(1)
    fake.create_topic("t", 1, 1)
    return fake


async def test_a_failed_record(caplog: pytest.LogCaptureFixture) -> None:
    fake = _cluster()
    fake.fail_produce("t", 0, POLICY_VIOLATION)
    async with Producer(fake.bootstrap, dialer=fake, client_id="shop") as producer:
        producer.send_nowait("t", b"x")
        await producer.flush()
    assert _fields(caplog, "no caller checked") == {
        "topic": "t",
        "partition": 0,
        "code": POLICY_VIOLATION,
        "maybe_written": False,
        "client_id": "shop",
    }


async def test_records_left_at_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    fake = _cluster()
    producer = Producer(fake.bootstrap, dialer=fake, client_id="shop", linger_ms=0)
    await producer.start()
    await producer.send_and_wait("t", b"x")
    fake.stall_broker(0)
    delivery = producer.send_nowait("t", b"x")
    await producer.stop(0.01)
    assert delivery.exception() is not None
    assert _fields(caplog, " undelivered") == {"maybe_written": True, "client_id": "shop"}


async def test_a_lost_connection_names_its_broker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkaclient.cluster.link")
    fake = _cluster()
    async with Producer(fake.bootstrap, dialer=fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
        fake.drop_connections(0)
        await producer.send_and_wait("t", b"x", partition=0)
    lost = [r for r in caplog.records if "the connection to broker 0" in r.getMessage()]
    assert lost
    assert all(vars(record)["broker"] == 0 for record in lost)


@virtual_time
async def test_messages_about_a_cluster_name_their_client(caplog: pytest.LogCaptureFixture) -> None:
    """Two clients of one program are told apart, although both lose the same brokers."""
    caplog.set_level(logging.INFO)
    fake = _cluster()
    options: dict[str, Any] = {
        "dialer": fake,
        "metadata_max_age_ms": 500,
        "metadata_recovery_rebootstrap_trigger_ms": 1000,
    }
    async with (
        Producer(fake.bootstrap, client_id="orders", **options) as producer,
        Consumer(fake.bootstrap, client_id="billing", **options) as consumer,
    ):
        consumer.assign([("t", 0)])
        fake.stop_broker(0)
        sending = asyncio.create_task(producer.send_and_wait("new", b"x"))
        looking = asyncio.create_task(consumer.offsets([("new", 0)], "latest"))
        await asyncio.sleep(20)
        fake.start_broker(0)
        await asyncio.sleep(10)
        sending.cancel()
        looking.cancel()
        await asyncio.wait((sending, looking))
    told: dict[str, set[object]] = {}
    for record in caplog.records:
        if record.name.startswith(("kafkaclient.cluster", "kafkaclient.net")):
            told.setdefault(record.name, set()).add(vars(record).get("client_id"))
    loggers = [f"kafkaclient.cluster.{each}" for each in ("identity", "link", "metadata", "waits")]
    assert [told[name] for name in loggers] == [{"orders", "billing"}] * len(loggers)


async def test_a_refused_login_names_its_broker(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster(1, sasl=Sasl(refusal=lambda _mechanism, _message: "wrong password"))
    options = {"sasl_mechanism": "PLAIN", "security_protocol": "SASL_PLAINTEXT"}
    producer = Producer(
        fake.bootstrap, dialer=fake, sasl_username="ann", sasl_password="wr0ng", **options
    )
    caplog.set_level(logging.INFO, "kafkaclient.cluster.link")
    with pytest.raises(AuthenticationError):
        await producer.start()
    refused = [r for r in caplog.records if r.name == "kafkaclient.cluster.link"]
    assert [vars(record)["broker"] for record in refused] == [-1]
    assert all("wr0ng" not in f"{vars(record)}" for record in caplog.records)


# --- recipes --------------------------------------------------------------------------------------


@contextmanager
def _only(recipe: Block) -> Iterator[io.StringIO]:
    """The recipe's handler is the only one, and writes here. pytest's handlers come back."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level, root.handlers = root.handlers[:], root.level, []
    try:
        recipe.run()
        for handler in root.handlers:
            assert isinstance(handler, logging.StreamHandler)
            handler.setStream(stream)
        yield stream
    finally:
        root.handlers = handlers
        root.setLevel(level)


@runs("docs/how-to/logging.md", "json", name="page")
@runs("docs/how-to/logging.md", name="recipe")
async def test_a_recipe_writes_the_fields(recipe: Block, page: Block) -> None:
    fake, expected = _cluster(), json.loads(page.text())
    for topic in ("flights", "billing"):
        fake.create_topic(topic, 1, 1)
        fake.fail_produce(topic, 0, POLICY_VIOLATION)
    with _only(recipe) as stream:
        async with Producer(fake.bootstrap, dialer=fake) as producer:
            producer.send_nowait("flights", b"x")
            producer.send_nowait("billing", b"x")
            await producer.flush()
    lines = [line for line in stream.getvalue().splitlines() if "no caller checked" in line]
    if "addFilter" in recipe.source:
        assert len(lines) == 1
        assert "billing" in lines[0]
        return
    assert len(lines) == 2
    fields = json.loads(lines[0])
    if "pythonjsonlogger" in recipe.source:
        assert fields.keys() == expected.keys()
        assert fields["name"] == expected["name"]
    assert {name: fields.get(name) for name in NAMES} == {n: expected.get(n) for n in NAMES}
