"""Login to Azure Event Hubs with Microsoft Entra: ``EntraTokenProvider`` (extra ``azure``)."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import AuthenticationError, BrokerConnectionError, ConfigError
from kafkaclient.net.off_loop import OffLoop
from kafkaclient.net.tokens import Token
from kafkaclient.topic_names import several

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EntraTokenProvider"]

# example.servicebus.windows.net, also of the national clouds
_NAMESPACE = re.compile(r"[a-z0-9-]+\.servicebus(\.[a-z]+)+")


class EntraTokenProvider:
    """A :class:`~kafkaclient.TokenProvider` with tokens of Microsoft Entra, through azure-identity.

    Both arguments are optional:

    - ``credential``: a credential of ``azure.identity.aio``, or of ``azure.identity``, whose calls
      then run in a thread. The caller closes the credential. None: a new
      ``azure.identity.aio.DefaultAzureCredential`` for each token, closed afterwards.
    - ``scope``: what the token is for. None: the Event Hubs namespace in the host name of the
      bootstrap server, as ``https://NAMESPACE.servicebus.windows.net/.default``.

    A client requests the next token after 80 % of a token's lifetime (about an hour). Raises
    :class:`~kafkaclient.errors.ConfigError` if the extra ``azure`` is not installed.
    """

    def __init__(self, credential: Any = None, *, scope: str | None = None) -> None:
        if not _is_installed():
            raise ConfigError(
                'EntraTokenProvider needs azure-identity: pip install "kafkaclient[azure]"'
            )
        self.scope = scope
        self._credential = credential
        self._off_loop: OffLoop[Any] = OffLoop()

    def __repr__(self) -> str:
        return f"<EntraTokenProvider scope={self.scope}>"

    def for_brokers(self, host_names: Iterable[str]) -> EntraTokenProvider:
        """This provider, or one with the scope of this namespace if no scope was given.

        Raises :class:`~kafkaclient.errors.ConfigError` if the host is no Event Hubs namespace.
        """
        if self.scope is not None:
            return self
        names = several(host_names, "host_names")
        hosts = sorted({host.lower().removesuffix(".") for host in names})
        if len(hosts) != 1 or not _NAMESPACE.fullmatch(hosts[0]):
            raise ConfigError(
                f"the bootstrap servers ({', '.join(hosts)}) are not the host of one Event Hubs "
                "namespace: give EntraTokenProvider a scope"
            )
        return EntraTokenProvider(self._credential, scope=f"https://{hosts[0]}/.default")

    async def token(self) -> Token:
        """A token that is valid now.

        Raises AuthenticationError if no credential is available or Entra refuses it, and
        BrokerConnectionError, which the client retries, if a retry may help.
        """
        if self.scope is None:
            raise ConfigError("EntraTokenProvider has no scope: give it one")
        from azure.core.exceptions import AzureError, ClientAuthenticationError  # noqa: PLC0415

        try:
            found = await self._request(self.scope)
        except AzureError as error:
            refused = isinstance(error, ClientAuthenticationError)
            kind = AuthenticationError if refused else BrokerConnectionError
            raise kind(f"no token of Entra: {type(error).__name__}: {error.message}") from error
        return Token(found.token, float(found.expires_on))

    async def _request(self, scope: str) -> Any:
        credential = self._credential
        if credential is None:
            identity = await self._off_loop.run(lambda: import_module("azure.identity.aio"))
            async with identity.DefaultAzureCredential() as default:
                return await default.get_token(scope)
        if iscoroutinefunction(credential.get_token):
            return await credential.get_token(scope)
        found = await self._off_loop.run(lambda: credential.get_token(scope))
        return await found if isawaitable(found) else found  # a wrapper of an async credential


def _is_installed() -> bool:
    try:
        return find_spec("azure.identity.aio") is not None and find_spec("aiohttp") is not None
    except ModuleNotFoundError:  # not even its parent package
        return False
