"""Tokens of Entra, from credentials that are made up; nothing leaves this machine."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import azure.identity.aio
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.identity import CredentialUnavailableError

import kafkaclient.azure
from kafkaclient.aiokafka.options import token_provider_for
from kafkaclient.azure import EntraTokenProvider
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, ConfigError
from kafkaclient.net.tokens import TokenSource
from kafkaclient.spark.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable

HOST = "flights.servicebus.windows.net"
SCOPE = f"https://{HOST}/.default"
OPTIONS = {
    "bootstrap.servers": f"{HOST}:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
}


class Credential:
    """An async credential, as those of azure.identity.aio."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes) or [AccessToken("entra-token", 1_700_000_000)]
        self.asked: list[tuple[str, ...]] = []
        self.threads: list[threading.Thread] = []
        self.closed = 0

    async def get_token(self, *scopes: str) -> AccessToken:
        return self._next(scopes)

    def _next(self, scopes: tuple[str, ...]) -> AccessToken:
        self.asked.append(scopes)
        self.threads.append(threading.current_thread())
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def __aenter__(self) -> Credential:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed += 1


class BlockingCredential(Credential):
    """As those of azure.identity."""

    def get_token(self, *scopes: str) -> AccessToken:  # type: ignore[override]
        return self._next(scopes)


async def test_an_async_credential_is_awaited() -> None:
    credential = Credential()
    token = await EntraTokenProvider(credential, scope=SCOPE).token()
    assert (token.value, token.expires_at) == ("entra-token", 1_700_000_000.0)
    assert credential.asked == [(SCOPE,)]
    assert credential.threads == [threading.main_thread()]
    assert not credential.closed  # it is the caller's


async def test_a_blocking_credential_gets_a_thread() -> None:
    credential = BlockingCredential()
    assert (await EntraTokenProvider(credential, scope=SCOPE).token()).value == "entra-token"
    assert threading.main_thread() not in credential.threads


async def test_a_blocking_credential_that_raises_stop_iteration() -> None:
    """A future cannot have this exception: the caller would wait for ever."""
    credential = BlockingCredential(StopIteration("end"))
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await EntraTokenProvider(credential, scope=SCOPE).token()
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_a_plain_function_around_an_async_credential_is_awaited() -> None:
    class Wrapped:
        def get_token(self, *scopes: str) -> Awaitable[AccessToken]:
            return Credential().get_token(*scopes)

    assert (await EntraTokenProvider(Wrapped(), scope=SCOPE).token()).value == "entra-token"


async def test_the_default_credential_is_closed_after_each_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Credential] = []

    def make() -> Credential:
        made.append(Credential())
        return made[-1]

    monkeypatch.setattr(azure.identity.aio, "DefaultAzureCredential", make)
    provider = EntraTokenProvider(scope=SCOPE)
    await provider.token()
    await provider.token()
    assert [credential.closed for credential in made] == [1, 1]


@pytest.mark.parametrize(
    ("hosts", "scope"),
    [
        ([HOST], SCOPE),
        (["Flights.ServiceBus.Windows.net"], SCOPE),
        (["flights.servicebus.windows.net."], SCOPE),
        (
            ["flights.servicebus.usgovcloudapi.net"],
            "https://flights.servicebus.usgovcloudapi.net/.default",
        ),
    ],
)
def test_the_scope_is_in_the_namespace(hosts: list[str], scope: str) -> None:
    assert EntraTokenProvider().for_brokers(hosts).scope == scope
    assert EntraTokenProvider(scope="mine").for_brokers(hosts).scope == "mine"


@pytest.mark.parametrize("hosts", [["localhost"], [HOST, f"other-{HOST}"]])
def test_other_hosts_need_a_scope(hosts: list[str]) -> None:
    with pytest.raises(ConfigError, match="are not the host of one Event Hubs namespace"):
        EntraTokenProvider().for_brokers(hosts)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CredentialUnavailableError("no managed identity"), AuthenticationError),
        (ClientAuthenticationError("AADSTS7000215: invalid secret"), AuthenticationError),
        (ServiceRequestError("no route"), BrokerConnectionError),
    ],
)
async def test_failures_say_whether_a_retry_may_help(error: Any, kind: type[Exception]) -> None:
    credential = Credential(error, AccessToken("t", 1), error)
    provider = EntraTokenProvider(credential, scope=SCOPE)
    with pytest.raises(kind, match=error.message) as caught:
        await provider.token()
    assert type(caught.value) is kind
    source = TokenSource(provider, lambda: 2.0)
    await source.get()  # it has ended
    with pytest.raises(BrokerConnectionError, match=error.message):
        await source.get()


async def test_a_provider_that_has_met_no_client_has_no_scope() -> None:
    with pytest.raises(ConfigError, match="EntraTokenProvider has no scope"):
        await EntraTokenProvider(Credential()).token()


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(kafkaclient.azure, "find_spec", absent)
    with pytest.raises(ConfigError, match=r'pip install "kafkaclient\[azure\]"'):
        EntraTokenProvider()


def test_by_its_path_as_in_property_files_and_spark() -> None:
    path = {"sasl.oauth.token.provider": "kafkaclient.azure:EntraTokenProvider"}
    assert ProducerConfig.build(OPTIONS | path).sasl_oauth_token_provider.scope == SCOPE
    options = {f"kafka.{name}": value for name, value in (OPTIONS | path).items()}
    client = WriteOptions.parse({**options, "topic": "flights"}, "batch").client
    assert ProducerConfig.build(client).sasl_oauth_token_provider.scope == SCOPE


def test_aiokafkas_producer_takes_it_as_it_is() -> None:
    provider = EntraTokenProvider()
    assert token_provider_for(provider) is provider
