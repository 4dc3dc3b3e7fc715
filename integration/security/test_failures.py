"""What a broker or a client refuses, and how that is told."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from integration.security.broker import USERS, unsigned_token
from kafkaclient import Producer, Token
from kafkaclient.errors import (
    AuthenticationError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

# --- what fails, and how --------------------------------------------------------------------------


def _unknown_authority(options: dict[str, Any], directory: Path) -> None:
    trustme.CA().cert_pem.write_to_path(directory / "other.pem")
    options["ssl_truststore_location"] = directory / "other.pem"


async def _expired() -> Token:
    return Token(unsigned_token("alice", -60), time.time() + 60)


FAILURES: dict[str, tuple[str, str | None, dict[str, Any], type[Exception], str]] = {
    "wrong password, PLAIN": (
        "SASL_SSL",
        "PLAIN",
        {"sasl_password": "not-the-secret"},
        SaslAuthenticationError,
        r"refused the credentials \(PLAIN\): .*Invalid username or password",
    ),
    "wrong password, SCRAM": (
        "SASL_SSL",
        "SCRAM-SHA-512",
        {"sasl_password": "not-the-secret"},
        SaslAuthenticationError,
        r"refused the credentials \(SCRAM-SHA-512\): .*invalid credentials",
    ),
    "unknown user": (
        "SASL_PLAINTEXT",
        "SCRAM-SHA-256",
        {"sasl_username": "mallory"},
        SaslAuthenticationError,
        "refused the credentials",
    ),
    "expired token": (
        "SASL_SSL",
        "OAUTHBEARER",
        {"sasl_oauth_token_provider": _expired},
        SaslAuthenticationError,
        "invalid_token",
    ),
    "mechanism not offered": (
        "SCRAM",
        "PLAIN",
        {},
        UnsupportedSaslMechanismError,
        "does not accept sasl.mechanism=PLAIN; it offers: SCRAM-SHA-512",
    ),
    "no TLS to a TLS port": (
        "SSL",
        None,
        {"security_protocol": "PLAINTEXT"},
        SslAuthenticationError,
        "expects TLS on this listener, and security.protocol is PLAINTEXT",
    ),
    "no TLS to a TLS port with SASL": (
        "SASL_SSL",
        "PLAIN",
        {"security_protocol": "SASL_PLAINTEXT"},
        SslAuthenticationError,
        "give security.protocol=SASL_SSL",
    ),
    "TLS to a plain port": (
        "SASL_PLAINTEXT",
        "PLAIN",
        {"security_protocol": "SASL_SSL"},
        SslAuthenticationError,
        "it is a listener without encryption",
    ),
    "no SASL to a port with it": (
        "SASL_PLAINTEXT",
        None,
        {"security_protocol": "PLAINTEXT"},
        AuthenticationError,
        "wants clients to authenticate.* its mechanisms: .*SCRAM-SHA-256",
    ),
    "SASL to a port without it": (
        "SSL",
        "PLAIN",
        {"security_protocol": "SASL_SSL"},
        AuthenticationError,
        "does not want SASL on this listener",
    ),
    "expired certificate": (
        "EXPIRED",
        None,
        {},
        SslAuthenticationError,
        "certificate has expired; it must be renewed on the broker",
    ),
    "certificate for another host": (
        "ELSEWHERE",
        None,
        {},
        SslAuthenticationError,
        "not valid for '127.0.0.1'; it must name the address",
    ),
    "unknown authority": (
        "SSL",
        None,
        {"": _unknown_authority},
        SslAuthenticationError,
        "name the certificate of the authority that issued it in ssl_truststore_location",
    ),
    "no client certificate, TLS 1.3": (
        "MUTUAL",
        None,
        {"ssl_enabled_protocols": "TLSv1.3"},
        SslAuthenticationError,
        "see ssl_keystore_location",
    ),
    "no client certificate, TLS 1.2": (
        "MUTUAL",
        None,
        {"ssl_enabled_protocols": "TLSv1.2"},
        SslAuthenticationError,
        "see ssl_keystore_location",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_failures_end_the_start_at_once_and_name_their_cause(
    options, case, tmp_path, caplog
) -> None:
    listener, mechanism, changes, kind, words = FAILURES[case]
    given = options(listener, mechanism, **changes)
    if change := given.pop("", None):
        change(given, tmp_path)
    if given["security_protocol"] != "SSL" and not given["security_protocol"].endswith("_SSL"):
        given.pop("ssl_truststore_location", None)
    given.setdefault("ssl_truststore_location", None)
    producer = Producer(**given)
    with caplog.at_level(logging.DEBUG), pytest.raises(kind, match=words) as caught:
        async with asyncio.timeout(20):  # max.block.ms is 30 s
            await producer.start()
    assert type(caught.value) is kind
    shown = f"{caught.value!r} {caplog.text} {producer.config!r}"
    assert not any(secret in shown for secret in (*USERS.values(), "not-the-secret", "eyJ"))


async def test_the_host_check_alone_can_be_left_out(options) -> None:
    given = options("ELSEWHERE", ssl_endpoint_identification_algorithm="")
    async with Producer(**given) as producer:
        await producer.send_and_wait("flights", b"v")
