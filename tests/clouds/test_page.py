"""docs/how-to/clouds.md: its snippets and property files, run against a fake cluster."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import azure.identity.aio
import javaproperties
import pytest
from azure.core.credentials import AccessToken

from kafkaclient import Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.net.tokens import ClientCredentials
from kafkaclient.spark.options import WriteOptions
from kafkaclient.testing.fake import FakeCluster, Sasl
from tests.code_blocks import Block, parses, runs

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

TOKEN = b"n,,\x01auth=Bearer "


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
        self.bootstrap = fake.bootstrap

    async def dial(self, host: str, port: int, factory: Any) -> Any:
        try:
            return await self._fake.dial(host, port, factory)
        except OSError:
            first, _, number = self._fake.bootstrap.partition(",")[0].rpartition(":")
            return await self._fake.dial(first, int(number), factory)


@runs("docs/how-to/clouds.md", having="Producer(")
def test_the_snippets_log_in_and_send(block: Block, authority_file: Path) -> None:
    replaced = {"/etc/kafka/ca.pem": str(authority_file)}
    sasl = Sasl() if "sasl" in block.source else None
    fake = FakeCluster(2, sasl=sasl)
    fake.create_topic("flights", 2)
    block.run({"os": os}, dialer=Anywhere(fake), replaced=replaced)
    assert [r.value for p in range(2) for r in fake.log("flights", p)] == [b"value"]
    if sasl is not None:
        assert sasl.messages
    if "extensions" in block.source:
        extensions = b"\x01logicalCluster=lkc-12345\x01identityPoolId=pool-6789\x01\x01"
        assert sasl is not None
        assert sasl.messages[0].endswith(extensions)


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


@runs("docs/how-to/clouds.md", "properties", together=True, name="blocks")
async def test_the_property_files_log_in(blocks: list[Block]) -> None:
    msk, confluent, by_path = (block.text() for block in blocks)
    provider = ProducerConfig.build(javaproperties.loads(msk)).sasl_oauth_token_provider
    assert provider.region == "eu-west-1"
    assert provider._role_arn == "arn:aws:iam::123456789012:role/flights"
    without_role = re.sub(r"required.*?;", "required;", msk, flags=re.DOTALL)
    assert (await _first_message(without_role)).startswith(TOKEN)
    extensions = b"\x01logicalCluster=lkc-12345\x01identityPoolId=pool-6789\x01\x01"
    assert await _first_message(confluent) == TOKEN + b"oidc-token" + extensions
    assert await _first_message(by_path) == TOKEN + b"entra-token\x01\x01"


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


@runs("docs/how-to/clouds.md", having="frame.write")
def test_sparks_options_give_each_worker_its_provider(block: Block) -> None:
    frame = Frame()
    block.run({"frame": frame})
    client = WriteOptions.parse(frame.given, "batch").client
    assert ProducerConfig.build(client).sasl_oauth_token_provider.region == "eu-west-1"


@parses("docs/how-to/clouds.md", having="servicebus")
def test_the_options_for_event_hubs_are_within_its_limits(block: Block) -> None:
    found = {
        name.replace(".", "_"): int(value.replace("_", ""))
        for name, value in re.findall(r'"?([a-z_.]+)"?(?:: |=)([\d_]+),', block.text())
    }
    assert found["connections_max_idle_ms"] < 240_000
    assert found["metadata_max_age_ms"] < 240_000
    assert found["max_request_size"] < 1_046_528
    assert found["request_timeout_ms"] > 20_000
