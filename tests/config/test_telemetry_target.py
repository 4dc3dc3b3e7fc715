"""Where telemetry goes: what is accepted, and that no secret of a URI is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaclient.config import ProducerConfig
from kafkaclient.config.options import TelemetryTarget
from kafkaclient.errors import ConfigError
from kafkaclient.producer.producer import Producer
from kafkaclient.telemetry import open_root

KEY, SECRET = "AKIAKEY123", "s%2Fcr/et+word"


def target(value: object) -> TelemetryTarget | None:
    return ProducerConfig.build("h:1", {"telemetry": value}).telemetry


@pytest.mark.parametrize("value", ["facts", Path("facts"), TelemetryTarget("facts")])
def test_a_path(value: object) -> None:
    given = target(value)
    assert given is not None
    assert (given.text, given.scheme, given.topic, str(given)) == ("facts", "", None, "facts")


@pytest.mark.parametrize("value", ["topic:facts", "TOPIC:facts"])
def test_a_topic(value: str) -> None:
    given = target(value)
    assert given is not None
    assert (given.topic, given.scheme, repr(given)) == ("facts", "", f"'{value}'")


def test_a_scheme_may_have_capitals(tmp_path: Path) -> None:
    given = target(f"FILE://{tmp_path}")
    assert given is not None
    assert open_root(given)[1] == str(tmp_path)


def test_a_query_is_hidden_once() -> None:
    given = TelemetryTarget("s3://b/f?x=secret")
    assert given.hide(f"cannot reach {given.text} at s3://b/f") == (
        "cannot reach s3://b/f?[hidden] at s3://b/f"
    )


@pytest.mark.parametrize(
    "value", ["", "  ", "topic:", "topic:a b", "s3:/b", "S3:/b/x", b"facts", 1, True]
)
def test_what_is_no_target_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"give a path, a URI such as .* or topic:NAME"):
        target(value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/facts", "s3://bucket/facts"),
        (f"s3://{KEY}:{SECRET}@bucket/facts", "s3://[hidden]@bucket/facts"),
        (f"s3://bucket/facts?access_key={KEY}&secret={SECRET}", "s3://bucket/facts?[hidden]"),
        (f"S3://{KEY}@b/f?x={SECRET}", "s3://[hidden]@b/f?[hidden]"),
        ("abfs://box@me.dfs.core.windows.net/f", "abfs://box@me.dfs.core.windows.net/f"),
        (f"abfss://box:{SECRET}@me/f", "abfss://box:[hidden]@me/f"),
    ],
)
def test_secrets_of_a_uri_are_hidden(uri: str, shown: str) -> None:
    given = target(uri)
    assert given is not None
    assert str(given) == shown
    config = ProducerConfig.build("h:1", {"telemetry": uri})
    hidden = given.hide(f"cannot reach {uri}: the key s/cr/et+word or {SECRET} of {KEY} is wrong")
    for text in (repr(given), repr(config), f"{config}", hidden):
        assert "cr/et" not in text or SECRET not in uri
        assert KEY not in text or KEY not in uri
    with pytest.raises(ConfigError) as refused:
        ProducerConfig.build({"bootstrap.servers": "h:1", "telemetry": uri}, {"telemetry": "x"})
    assert "cr/et" not in str(refused.value)


@pytest.mark.parametrize("share", [0, 1e-10, -0.1, 1.1, "much", True])
def test_a_share_is_more_than_nothing(share: object) -> None:
    with pytest.raises(ConfigError, match="give a number from 1e-9 to 1"):
        ProducerConfig.build("h:1", {"telemetry_sample": share})


def test_an_unknown_scheme_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"pyarrow has no file system for foo://") as refused:
        Producer("h:1", telemetry=f"foo://me:{SECRET}@there/facts")
    assert "cr/et" not in str(refused.value)
