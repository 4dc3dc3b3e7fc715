"""Makes the mechanism for each authentication, with the credentials of the options; and SCRAM.

SCRAM-SHA-256 and SCRAM-SHA-512 are in RFC 5802, RFC 7677 and KIP-84. Both sides prove that they
know the password, and neither sends it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkaclient.errors import SaslAuthenticationError
from kafkaclient.net.mechanisms import OAuthBearer, Plain, SaslRefusedError
from kafkaclient.net.tls import https_context
from kafkaclient.net.tokens import ClientCredentials, TokenSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.security import SecurityOptions
    from kafkaclient.net.kerberos import Tickets
    from kafkaclient.net.mechanisms import Mechanism
    from kafkaclient.net.tokens import Token


MIN_ITERATIONS = 4096
"""The fewest accepted iterations, as in Java (``ScramMechanism.minIterations``). With fewer a false
broker could guess the password cheaply."""

MAX_ITERATIONS = 1_000_000
"""The most accepted iterations: half a second of processor time. Kafka creates at most 16384."""

_NO_CHANNEL_BINDING = "n,,"


class _Keys(NamedTuple):
    client: bytes
    server: bytes

    def __repr__(self) -> str:
        return "_Keys(hidden)"


class KeyCache:
    """The keys last computed from a password. All brokers of a cluster have the same salt, so only
    the first connection computes the iterations (RFC 5802, section 5.1)."""

    __slots__ = ("_of", "keys")

    def __init__(self) -> None:
        self._of: tuple[str, bytes, int] | None = None
        self.keys: _Keys | None = None

    def get(self, password: str, mechanism: type[_Scram], salt: bytes, iterations: int) -> _Keys:
        wanted = (mechanism.digest, salt, iterations)
        keys = self.keys
        if keys is None or self._of != wanted:
            # Without SASLprep, like Java's ScramFormatter and unlike the RFC: brokers store keys of
            # the plain UTF-8 bytes, which a prepared password would not match.
            salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
            keys = _Keys(
                hmac.digest(salted, b"Client Key", mechanism.digest),
                hmac.digest(salted, b"Server Key", mechanism.digest),
            )
            self.keys, self._of = keys, wanted
        return keys


class _Scram:
    name: ClassVar[str]
    digest: ClassVar[str]
    computes: ClassVar[bool] = True

    def __init__(
        self,
        username: str,
        password: str,
        *,
        tokenauth: bool = False,
        cache: KeyCache | None = None,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self._password = password
        self._cache = cache or KeyCache()
        self._nonce = new_nonce()
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}{',tokenauth=true' if tokenauth else ''}"
        self._signature: bytes | None = None
        self._verified = False

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError as error:
            raise SaslRefusedError("the broker's SCRAM message is not text") from error
        if self._signature is None:
            return self._prove(text)
        if not self._verified:
            self._verify(text, self._signature)
        return None

    def _prove(self, server_first: str) -> bytes:
        nonce, salt, iterations = _server_first(server_first)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslRefusedError("the broker's SCRAM nonce does not continue this client's")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise SaslRefusedError(
                f"the broker demands {iterations} SCRAM iterations; accepted are "
                f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        keys = self._cache.get(self._password, type(self), salt, iterations)
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        message = f"{self._first_bare},{server_first},{without_proof}".encode()
        stored = hashlib.new(self.digest, keys.client).digest()
        client_signature = hmac.digest(stored, message, self.digest)
        proof = bytes(a ^ b for a, b in zip(keys.client, client_signature, strict=True))
        self._signature = hmac.digest(keys.server, message, self.digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str, expected: bytes) -> None:
        fields = _fields(server_final)
        if "e" in fields:
            raise SaslRefusedError(f"the broker says: {fields['e']}")
        if not hmac.compare_digest(_decoded(fields.get("v", ""), "signature"), expected):
            raise SaslRefusedError(
                "the broker could not prove that it knows the password: its SCRAM signature is "
                "wrong. It may not be the broker that it pretends to be"
            )
        self._verified = True


class Scram256(_Scram):
    """A :class:`~kafkaclient.net.mechanisms.Mechanism`; channel binding is not offered.

    ``tokenauth``: the user is a delegation token (KIP-48, Kafka's ``ScramExtensions``)."""

    name: ClassVar[str] = "SCRAM-SHA-256"
    digest: ClassVar[str] = "sha256"


class Scram512(_Scram):
    """A :class:`~kafkaclient.net.mechanisms.Mechanism`; channel binding is not offered."""

    name: ClassVar[str] = "SCRAM-SHA-512"
    digest: ClassVar[str] = "sha512"


def _server_first(text: str) -> tuple[str, bytes, int]:
    fields = _fields(text)
    if "e" in fields:
        raise SaslRefusedError(f"the broker says: {fields['e']}")
    if "m" in fields:
        raise SaslRefusedError(
            "the broker demands a SCRAM extension that this client does not know"
        )
    try:
        nonce, salt, count = fields["r"], fields["s"], fields["i"]
    except KeyError as error:
        raise SaslRefusedError(f"the broker's first SCRAM message lacks {error}") from error
    if not (count.isascii() and count.isdecimal() and len(count) <= 10):
        raise SaslRefusedError("the broker's number of SCRAM iterations is not a number")
    salt_bytes = _decoded(salt, "salt")
    if not salt_bytes:
        raise SaslRefusedError("the broker's SCRAM salt is empty")
    return nonce, salt_bytes, int(count)


def _fields(text: str) -> dict[str, str]:
    """``a=...,b=...``; a value may contain ``=``, the letter comes before the first one."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        letter, equals, value = part.partition("=")
        if len(letter) != 1 or not equals or letter in fields:
            raise SaslRefusedError("the broker's SCRAM message is malformed")
        fields[letter] = value
    return fields


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SaslRefusedError(f"the broker's SCRAM {what} is not base64") from error


_SCRAM = {kind.name: kind for kind in (Scram256, Scram512)}


class Login:
    """The credentials of one client. ``wall_clock`` returns seconds since the epoch."""

    def __init__(
        self, options: SecurityOptions, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._kind = options.sasl_mechanism
        self._username = options.sasl_username or ""
        self._password = options.sasl_password or ""
        self._tokenauth = options.sasl_tokenauth
        self._keys = KeyCache()
        self._tokens: TokenSource | None = None
        self._offered: Token | None = None
        self._extensions = options.sasl_oauthbearer_extensions or {}
        self._tickets = _tickets(options, wall_clock) if self._kind == "GSSAPI" else None
        if self._kind == OAuthBearer.name:
            provider, name = options.sasl_oauth_token_provider, None
            if provider is None:
                provider = ClientCredentials(
                    options.sasl_oauthbearer_token_endpoint_url or "",
                    options.sasl_oauthbearer_client_credentials_client_id,
                    options.sasl_oauthbearer_client_credentials_client_secret,
                    options.sasl_oauthbearer_scope,
                    assertion_file=options.sasl_oauthbearer_assertion_file,
                    jwt_bearer=options.uses_jwt_bearer,
                    context=https_context(options),
                    wall_clock=wall_clock,
                )
                name = f"for OIDC at {provider.where}"
            self._tokens = TokenSource(provider, wall_clock, name)

    async def mechanism(self, host: str) -> Mechanism:
        """A new mechanism for the broker at this host; waits for a token with OAUTHBEARER and for
        a ticket with GSSAPI. Raises what :meth:`TokenSource.get` and :meth:`Tickets.mechanism`
        raise."""
        if self._tickets is not None:
            return await self._tickets.mechanism(host)
        if self._tokens is not None:
            return OAuthBearer(await self.token())
        if self._kind == Plain.name:
            return Plain(self._username, self._password)
        kind = _SCRAM[self._kind or ""]
        return kind(self._username, self._password, tokenauth=self._tokenauth, cache=self._keys)

    async def token(self) -> Token:
        """The current OAUTHBEARER token; raises what :meth:`TokenSource.get` raises."""
        assert self._tokens is not None
        self._offered = token = await self._tokens.get()
        return replace(token, extensions={**self._extensions, **token.extensions})

    @property
    def awaited(self) -> str | None:
        """What :meth:`mechanism` waits for, and from whom; None if it never waits."""
        if self._tickets is not None:
            return f"a Kerberos ticket from {self._tickets.source}, and the KDC gave none"
        if self._tokens is not None:
            return f"a token, and the provider {self._tokens.provider} returned none"
        return None

    def missing_token(self) -> str | None:
        """Why there is no token or ticket, for messages; None if there is one or none is needed."""
        source = self._tickets or self._tokens
        return None if source is None else source.missing

    def refused(self, error: BaseException) -> None:
        """Authentication has failed: discard the token, so that the next attempt gets another."""
        if not isinstance(error, SaslAuthenticationError):
            return
        if self._tickets is not None:
            self._tickets.refused()
        if self._tokens is not None:
            self._tokens.drop(self._offered)


def _tickets(options: SecurityOptions, wall_clock: Callable[[], float]) -> Tickets:
    from kafkaclient.net.kerberos import Tickets  # noqa: PLC0415 - few clients have tickets

    return Tickets(options, wall_clock)
