"""aiokafka's arguments, also token providers, as options of :class:`kafkaclient.Producer`.

The checks raise the same ValueErrors as aiokafka 0.14. docs/reference/aiokafka.md has the table.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from ipaddress import AddressValueError, IPv6Address
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, cast

import aiokafka.producer.producer

from kafkaclient import Token
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "MISSING",
    "TokenAdapter",
    "acks_and_idempotence",
    "checked_compression",
    "checked_partition",
    "security_options",
    "servers_with_ports",
    "time_limits",
    "timestamp_as_int",
    "token_provider_for",
]


# --- aiokafka's constructor arguments as options of ``Producer`` ----------------------------------

MISSING: Any = getattr(aiokafka.producer.producer, "_missing", object())
"""aiokafka's own default of ``acks``, which FastStream passes on."""

_DEFAULT_PORT = 9092
_MIN_IDEMPOTENT_DELIVERY_TIMEOUT_MS = 120_000  # delivery.timeout.ms of Java's producer
_PROTOCOLS = ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def servers_with_ports(servers: str | Iterable[str] | None) -> list[str]:
    """The servers as ``host:port``; aiokafka's default port is 9092, and its default server is
    localhost."""
    given = servers.split(",") if isinstance(servers, str) else servers or ()
    try:
        return [_with_port(each.strip()) for each in given if each.strip()] or [
            _with_port("localhost")
        ]
    except (AttributeError, TypeError):
        why = f"bootstrap_servers must be a str or a list of str, not {servers!r}"
        raise ConfigError(why) from None


def _with_port(server: str) -> str:
    if server.startswith("["):  # an IPv6 address, maybe with a port
        return server if "]:" in server else f"{server}:{_DEFAULT_PORT}"
    if _is_ipv6(server):
        return f"[{server}]:{_DEFAULT_PORT}"
    return server if ":" in server else f"{server}:{_DEFAULT_PORT}"


def _is_ipv6(server: str) -> bool:
    try:
        IPv6Address(server)
    except AddressValueError:
        return False
    return True


def acks_and_idempotence(acks: Any, *, idempotent: bool) -> int:
    """The option ``acks``: given, or 1, or -1 with idempotence."""
    if acks not in (0, 1, -1, "all", MISSING):
        raise ValueError("Invalid ACKS parameter")
    if idempotent and acks not in ("all", -1, MISSING):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
    if acks is MISSING:
        return -1 if idempotent else 1
    return -1 if acks == "all" else int(acks)


def checked_compression(compression_type: str | None) -> str:
    if compression_type not in ("gzip", "snappy", "lz4", "zstd", None):
        raise ValueError("Invalid compression type!")
    return compression_type or "none"


def time_limits(
    request_timeout_ms: float, linger_ms: float, retry_backoff_ms: float, *, idempotent: bool
) -> dict[str, Any]:
    """How long requests, calls and deliveries may take.

    aiokafka's batches expire after about two times ``request_timeout_ms``, its idempotent batches
    never: here every delivery ends.
    """
    request = math.ceil(request_timeout_ms)
    delivery = 2 * request + math.ceil(linger_ms)
    if idempotent:
        delivery = max(delivery, _MIN_IDEMPOTENT_DELIVERY_TIMEOUT_MS)
    backoff = math.ceil(retry_backoff_ms)
    return {
        "request_timeout_ms": request,
        "max_block_ms": request,
        "delivery_timeout_ms": delivery,
        "linger_ms": linger_ms,
        "retry_backoff_ms": backoff,
        "retry_backoff_max_ms": backoff,
    }


def security_options(
    security_protocol: str, ssl_context: Any, sasl: Mapping[str, Any], further: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of TLS and SASL that ``security_protocol`` uses; the others have no effect.

    ``sasl`` has kafkaclient's names. ``further`` are the options of kafkaclient that the caller
    gave by keyword; they may configure TLS and SASL as well.
    """
    if security_protocol not in _PROTOCOLS:
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    options: dict[str, Any] = {"security_protocol": security_protocol}
    if security_protocol in ("SSL", "SASL_SSL"):
        if ssl_context is not None:
            options["ssl_context"] = ssl_context
        elif not any(name.startswith("ssl_") for name in further):
            raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    if security_protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        _check_sasl(sasl, further)
        options.update({name: value for name, value in sasl.items() if value is not None})
    return options


def _check_sasl(sasl: Mapping[str, Any], further: Mapping[str, Any]) -> None:
    mechanism = sasl["sasl_mechanism"]
    if mechanism not in _MECHANISMS:
        raise ValueError(
            "only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER`"
            "sasl_mechanism are supported at the moment"
        )
    given = {**sasl, **further}
    missing = given["sasl_username"] is None or given["sasl_password"] is None
    if mechanism == "PLAIN" and missing and "sasl_jaas_config" not in further:
        raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")


# --- aiokafka's token provider, which returns a str, as a token provider of ours ------------------

_IN_MILLISECONDS = 1e12  # a claim from here on is against RFC 7519; aiokafka reads no claims


class TokenAdapter:
    """Wraps an ``aiokafka.abc.AbstractTokenProvider``.

    A token that is a JWT is used until its claim ``exp``, another token for 5 minutes. The
    provider's ``extensions()`` are sent with it. A provider may return a
    :class:`kafkaclient.Token` as well.
    """

    __slots__ = ("__wrapped__",)

    def __init__(self, provider: Any) -> None:
        self.__wrapped__ = provider  # errors name the provider, not this class

    async def token(self) -> Token:
        token = await self.__wrapped__.token()
        if isinstance(token, Token):
            return token
        if not isinstance(token, str):
            kind = type(token).__name__
            raise TypeError(f"token() of a token provider must return a str, not {kind}")
        extensions: Any = getattr(self.__wrapped__, "extensions", None)
        return Token(token, _expiry(token), dict(extensions() or {}) if extensions else {})


def token_provider_for(provider: Any) -> Any:
    """The option ``sasl_oauth_token_provider`` of :class:`kafkaclient.Producer`. A provider with a
    method ``for_brokers`` is one of kafkaclient's own."""
    is_aiokafkas = hasattr(provider, "token") and not hasattr(provider, "for_brokers")
    return TokenAdapter(provider) if is_aiokafkas else provider


def _expiry(token: str) -> float | None:
    """The claim ``exp`` of a JWT, in seconds since the epoch; None: no JWT, or no such claim."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        seconds = float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
    return seconds if seconds < _IN_MILLISECONDS else None


# --- A record's partition and timestamp as aiokafka's callers give them ---------------------------


def checked_partition(partition: Any) -> int:
    """A partition as an int; numpy's integers are accepted, as in aiokafka.

    Raises AssertionError if it is negative, TypeError if it is no integer.
    """
    number = index(partition)
    if number < 0:
        raise AssertionError(f"a partition is not negative, but {number}")
    return number


def timestamp_as_int(timestamp_ms: Any) -> int:
    """A timestamp as an int. As in aiokafka a float such as ``time.time() * 1000`` is truncated.

    Raises TypeError for anything but a number, ValueError for an infinite number or NaN.
    """
    if not isinstance(timestamp_ms, Real):
        raise TypeError(f"a timestamp must be a number, not {timestamp_ms!r}")
    try:
        return int(cast("float", timestamp_ms))
    except (OverflowError, ValueError):
        raise ValueError(f"a timestamp must be a finite number, not {timestamp_ms!r}") from None
