"""The options of aiokafka's consumer, which is a member of the group and reads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider

from kafkaclient.errors import ConfigError
from kafkaclient.net.sasl.login import Login
from kafkaclient.net.tls import TlsContexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.config.security import SecurityOptions
    from kafkaclient.streams.config import StreamsConfig


def new_consumer(config: StreamsConfig, **more: Any) -> AIOKafkaConsumer:
    """A consumer with :func:`consumer_options` and ``more``."""
    return AIOKafkaConsumer(**consumer_options(config), **more)


def consumer_options(config: StreamsConfig) -> dict[str, Any]:
    """Raises ConfigError for invalid certificates."""
    security = _security(config.producer_config) if config.security_options else {}
    return {
        "bootstrap_servers": config.bootstrap_servers,
        "enable_auto_commit": False,
        **security,
    }


def _security(options: SecurityOptions) -> Mapping[str, Any]:
    """The security options under aiokafka's names. Certificate files are read once."""
    found: dict[str, Any] = {"security_protocol": options.security_protocol}
    if options.uses_tls:
        if options.ssl_endpoint_hostname is not None:
            raise ConfigError(
                "ssl_endpoint_hostname is not available for streams applications: aiokafka's "
                "consumers cannot verify another name than the address"
            )
        found["ssl_context"] = TlsContexts(options).context()
    if options.uses_sasl:
        found["sasl_mechanism"] = options.sasl_mechanism
        if options.sasl_mechanism == "OAUTHBEARER":
            found["sasl_oauth_token_provider"] = _Tokens(Login(options))
        else:
            found["sasl_plain_username"] = options.sasl_username
            found["sasl_plain_password"] = options.sasl_password
    return found


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Token provider of one client. The extensions belong to the latest token."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._extensions: Mapping[str, str] = {}

    async def token(self) -> str:
        token = await self._login.token()
        self._extensions = token.extensions
        return token.value

    def extensions(self) -> Mapping[str, str]:
        return self._extensions
