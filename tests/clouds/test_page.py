"""docs/how-to/clouds.md: its snippets and property files, run against a fake cluster."""

from __future__ import annotations

import asyncio
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import azure.identity.aio
import javaproperties
import pytest
from azure.core.credentials import AccessToken

from kafkaclient import Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.net.sasl.oidc import ClientCredentials
from kafkaclient.spark.options import WriteOptions
from kafkaclient.testing.fake import FakeCluster, Sasl

if TYPE_CHECKING:
    import trustme

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "clouds.md").read_text("utf-8")
TOKEN = b"n,,\x01auth=Bearer "


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


CLIENTS = [block for block in blocks("python") if "Producer(" in block]


class Credential:
    async def get_token(self, scope: str) -> AccessToken:
        assert scope == "https://flights-ns.servicebus.windows.net/.default"
        return AccessToken("entra-token", 4_000_000_000)

    async def __aenter__(self) -> Credential:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the snippets take from outside."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    for name in (
        *("AWS_SECRET_ACCESS_KEY", "EVENT_HUBS_CONNECTION_STRING", "CONFLUENT_API_KEY"),
        *("CONFLUENT_API_SECRET", "CLIENT_SECRET", "KAFKA_PASSWORD"),
    ):
        monkeypatch.setenv(name, name.lower())
    monkeypatch.setattr(azure.identity.aio, "DefaultAzureCredential", Credential)
    answer = {"access_token": "oidc-token", "expires_in": 3600}
    monkeypatch.setattr(ClientCredentials, "_post", lambda _self: answer)


class Anywhere:
    """A dialer for which every address is a broker of the fake cluster."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake = fake

    async def dial(self, host: str, port: int, factory: Any) -> Any:
        try:
            return await self._fake.dial(host, port, factory)
        except OSError:
            first, _, number = self._fake.bootstrap.partition(",")[0].rpartition(":")
            return await self._fake.dial(first, int(number), factory)


@pytest.mark.parametrize("number", range(len(CLIENTS)))
async def test_the_snippets_log_in_and_send(
    number: int, authority_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = CLIENTS[number].replace("/etc/kafka/ca.pem", str(authority_file))
    if "SCRAM" in code:  # which the fake cluster does not have
        code = code.replace("SCRAM-SHA-256", "PLAIN")
    sasl = Sasl() if "sasl" in code else None
    fake = FakeCluster(2, sasl=sasl)
    fake.create_topic("flights", 2)
    names = {
        "Producer": partial(Producer, dialer=Anywhere(fake)),
        "os": __import__("os"),
    }
    exec("async def example():\n" + textwrap.indent(code, "    "), names)  # noqa: S102
    async with asyncio.timeout(30):
        await names["example"]()  # type: ignore[operator]
    assert [r.value for p in range(2) for r in fake.log("flights", p)] == [b"value"]
    if sasl is not None:
        assert sasl.messages


@pytest.fixture
def authority_file(tmp_path: Path) -> Path:
    import trustme  # noqa: PLC0415

    path = tmp_path / "ca.pem"
    authority: trustme.CA = trustme.CA()
    authority.cert_pem.write_to_path(path)
    return path


async def _first_message(properties: str) -> bytes:
    """The client's first message in an authentication with these properties."""
    sasl = Sasl()
    fake = FakeCluster(1, sasl=sasl)
    options = javaproperties.loads(properties)
    async with Producer(options, dialer=Anywhere(fake)):
        return sasl.messages[0]


async def test_the_property_files_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    msk, confluent, by_path = blocks("properties")
    provider = ProducerConfig.build(javaproperties.loads(msk)).sasl_oauth_token_provider
    assert provider.region == "eu-west-1"
    assert provider._role_arn == "arn:aws:iam::123456789012:role/flights"
    without_role = re.sub(r"required.*?;", "required;", msk, flags=re.DOTALL)
    assert (await _first_message(without_role)).startswith(TOKEN)
    extensions = b"\x01logicalCluster=lkc-12345\x01identityPoolId=pool-6789\x01\x01"
    assert await _first_message(confluent) == TOKEN + b"oidc-token" + extensions
    assert await _first_message(by_path) == TOKEN + b"entra-token\x01\x01"


async def test_confluent_clouds_extensions_are_sent() -> None:
    (code,) = [block for block in CLIENTS if "extensions" in block]
    sasl = Sasl()
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("flights", 1)
    names: dict[str, Any] = {
        "Producer": partial(Producer, dialer=Anywhere(fake)),
        "os": __import__("os"),
    }
    exec("async def example():\n" + textwrap.indent(code, "    "), names)  # noqa: S102
    await names["example"]()
    assert b"\x01logicalCluster=lkc-12345\x01identityPoolId=pool-6789\x01" in sasl.messages[0]


class Frame:
    """Takes what the snippet gives to Spark's writer."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.write = self

    def format(self, name: str) -> Frame:
        assert name == "kafkaclient"
        return self

    def options(self, **given: str) -> Frame:
        self.given = given
        return self

    def mode(self, _name: str) -> Frame:
        return self

    def save(self) -> None: ...


def test_sparks_options_give_each_worker_its_provider() -> None:
    (code,) = [block for block in blocks("python") if "frame.write" in block]
    frame = Frame()
    exec(code, {"frame": frame})  # noqa: S102
    client = WriteOptions.parse(frame.given, "batch").client
    assert ProducerConfig.build(client).sasl_oauth_token_provider.region == "eu-west-1"


def test_the_options_for_event_hubs_are_within_its_limits() -> None:
    for code in CLIENTS:
        if "servicebus" not in code:
            continue
        found = {
            name.replace(".", "_"): int(value.replace("_", ""))
            for name, value in re.findall(r'"?([a-z_.]+)"?(?:: |=)([\d_]+),', code)
        }
        assert found["connections_max_idle_ms"] < 240_000
        assert found["metadata_max_age_ms"] < 240_000
        assert found["max_request_size"] < 1_046_528
        assert found["request_timeout_ms"] > 20_000
