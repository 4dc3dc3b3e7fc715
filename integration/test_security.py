"""Encryption, authentication and authorisation on a real broker: every mechanism, every failure.

One broker with a listener for each, in a cluster of its own: it has ACLs.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import re
import ssl
import sys
import textwrap
import threading
import time
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import kafkaclient
from kafkaclient import Producer, Token
from kafkaclient.errors import (
    AuthenticationError,
    AuthorizationError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kafkaclient.testing import ClusterSecurity, LocalCluster, SecureListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

USERS = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
LISTENERS = (
    SecureListener("SSL", "SSL"),
    SecureListener("MUTUAL", "SSL", client_certificate=True),
    SecureListener("EXPIRED", "SSL", certificate="expired"),
    SecureListener("ELSEWHERE", "SSL", certificate="elsewhere"),
    SecureListener("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
    SecureListener("SASL_SSL", "SASL_SSL"),
    SecureListener("SHORT", "SASL_SSL", max_reauth_ms=3000),
    SecureListener("SCRAM", "SASL_SSL", mechanisms=("SCRAM-SHA-512",)),
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PAGE = Path(__file__).parents[1] / "docs" / "security.md"


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    cluster = LocalCluster(1, security=ClusterSecurity(users=USERS, listeners=LISTENERS, acls=True))
    asyncio.run(cluster.start())
    try:
        _grant(cluster)
        asyncio.run(_granted(cluster))
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def _grant(cluster: LocalCluster) -> None:
    """Everybody but bob may write to ``flights``; alice may know of ``departures``."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [NewTopic(name, 3, 1) for name in ("flights", "departures", "secrets")]
    write, describe = AclOperation.WRITE, AclOperation.DESCRIBE
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    rules = [
        ("flights", "User:*", write, allow),
        ("flights", "User:bob", write, deny),
        ("departures", "User:alice", describe, allow),
    ]
    literal, topic = ResourcePatternType.LITERAL, ResourceType.TOPIC
    bindings = [AclBinding(topic, name, literal, who, "*", *rule) for name, who, *rule in rules]
    for done in (*admin.create_topics(topics).values(), *admin.create_acls(bindings).values()):
        done.result(30)


async def _granted(cluster: LocalCluster) -> None:
    """A broker heeds an ACL a little later than it takes it."""
    credentials = {"sasl_username": "alice", "sasl_password": USERS["alice"]}
    async with asyncio.timeout(30):
        while True:
            async with Producer(
                cluster.secured_bootstrap("SASL_PLAINTEXT"),
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                **credentials,
            ) as producer:
                try:
                    await producer.send_and_wait("flights", b"first")
                    with contextlib.suppress(AuthorizationError):
                        await producer.send_and_wait("departures", b"never")
                except AuthorizationError:
                    await asyncio.sleep(0.2)
                else:
                    return


@pytest.fixture
def options(secured: LocalCluster) -> Callable[..., dict[str, Any]]:
    """A producer's options for a listener, as a user with the right password."""

    def make(
        listener: str, mechanism: str | None = None, user: str = "alice", **more: Any
    ) -> dict[str, Any]:
        protocol = next(each.protocol for each in LISTENERS if each.name == listener)
        made: dict[str, Any] = {
            "bootstrap_servers": secured.secured_bootstrap(listener),
            "security_protocol": protocol,
            "max_block_ms": 30_000,
        }
        if protocol.endswith("SSL"):
            made["ssl_truststore_location"] = secured.certificates / "ca.pem"
        if mechanism is not None:
            made["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            made["sasl_oauth_token_provider"] = lambda: _provide(user)
        elif mechanism is not None:
            made |= {"sasl_username": user, "sasl_password": USERS[user]}
        return made | more

    return make


async def _provide(user: str) -> Token:
    return Token(unsigned_token(user, 60), time.time() + 60)


def unsigned_token(user: str, life_s: float) -> str:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + life_s})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b""]).decode()


# --- what works -----------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_every_mechanism(options: Any, listener: str, mechanism: str) -> None:
    async with Producer(**options(listener, mechanism)) as producer:
        written = await producer.send_and_wait("flights", b"x" * 100_000)
    assert written.offset >= 0


def test_every_mechanism_on_uvloop(options: Any) -> None:
    async def main() -> None:
        for mechanism in MECHANISMS:
            async with Producer(**options("SASL_SSL", mechanism)) as producer:
                await producer.send_and_wait("flights", b"x" * 100_000)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_javas_way_to_say_it(options: Any) -> None:
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


async def test_tls_under_load_brings_everything_once(secured: LocalCluster, options: Any) -> None:
    """Large requests, one behind the other: what TLS buffers and holds back comes in order."""
    values = [b"%d:" % n + bytes([n % 251]) * 40_000 for n in range(300)]
    async with Producer(**options("SSL"), batch_size=500_000) as producer:
        deliveries = [await producer.send("departures", v, key=b"k") for v in values]
        await asyncio.gather(*deliveries)
    records = await _read(secured, "departures")
    assert [value for value in records if value.partition(b":")[0].isdigit()] == values


async def _read(cluster: LocalCluster, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415

    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        parts = [TopicPartition(topic, p) for p in range(3)]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        await consumer.seek_to_beginning(*parts)
        values: list[bytes] = []
        async with asyncio.timeout(30):
            while sum(ends.values()) > len(values):
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    values += [message.value for message in messages]
        return values
    finally:
        await consumer.stop()


async def test_tokens_of_an_issuer_with_an_authority_of_its_own(
    options: Any, tmp_path: Path
) -> None:
    """It is not the brokers' authority, and named as in Java or by an option."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "idp.pem")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    given = options("SASL_SSL", sasl_mechanism="OAUTHBEARER")
    with _issuing(tls) as url:
        given["sasl_oauthbearer_token_endpoint_url"] = url
        for words, more in (
            (f'ssl.truststore.location="{tmp_path}/idp.pem"', {}),
            ("", {"https_ca_location": tmp_path / "idp.pem"}),
        ):
            jaas = f'{module} required clientId="flights" clientSecret="s" {words};'
            async with Producer(**given, sasl_jaas_config=jaas, **more) as producer:
                await producer.send_and_wait("flights", b"v")


# --- sessions (KIP-368) ---------------------------------------------------------------------------


async def test_sessions_are_renewed_under_load(
    secured: LocalCluster, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = await _counts(secured)
    sent: dict[bytes, Any] = {}
    lost: list[float] = []

    async def load(mechanism: str) -> None:
        loop = asyncio.get_running_loop()
        end, number = loop.time() + 7, 0
        async with Producer(**options("SHORT", mechanism), linger_ms=1) as producer:
            while loop.time() < end:
                for _ in range(5):
                    value = f"{mechanism} {number}".encode()
                    sent[value] = await producer.send("flights", value)
                    number += 1
                await asyncio.sleep(0.01)
            await producer.flush()
            metrics = producer.metrics()["producer-metrics"]
            lost.append(metrics["connection-close-total"] - 1)  # the bootstrap server's

    with caplog.at_level(logging.DEBUG, "kafkaclient.net.authentication"):
        await asyncio.gather(*(load(mechanism) for mechanism in MECHANISMS))
    places = {await delivery for delivery in sent.values()}
    assert len({(place.partition, place.offset) for place in places}) == len(sent) > 400
    assert caplog.text.count("authenticated again") >= 2 * len(MECHANISMS)
    assert sum(lost) <= 1  # a machine that is busy may sleep through the end of a session
    assert await _counts(secured) - before == len(sent)  # nothing is there twice


async def _counts(cluster: LocalCluster) -> int:
    return len(await _read(cluster, "flights"))


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
    options: Any, case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
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
        async with asyncio.timeout(10):
            await producer.start()
    assert type(caught.value) is kind
    shown = f"{caught.value!r} {caplog.text} {producer.config!r}"
    assert not any(secret in shown for secret in (*USERS.values(), "not-the-secret", "eyJ"))


async def test_the_host_check_alone_can_be_left_out(options: Any) -> None:
    given = options("ELSEWHERE", ssl_endpoint_identification_algorithm="")
    async with Producer(**given) as producer:
        await producer.send_and_wait("flights", b"v")


# --- ACLs -----------------------------------------------------------------------------------------


async def test_a_denial_names_operation_and_topic_and_harms_no_other_record(options: Any) -> None:
    async with Producer(**options("SASL_SSL", "PLAIN")) as producer:
        allowed = await producer.send("flights", b"v")
        with pytest.raises(AuthorizationError, match="may not Write on the topic 'departures'"):
            await producer.send_and_wait("departures", b"v")
        with pytest.raises(AuthorizationError, match="may not Describe on the topic 'secrets'"):
            await producer.send("secrets", b"v")
        await allowed
        await producer.send_and_wait("flights", b"v")


async def test_idempotence_that_is_denied_is_named(options: Any) -> None:
    """bob may not write anywhere, which is what brokers since 2.8 ask for (KIP-679)."""
    async with Producer(**options("SASL_SSL", "PLAIN", "bob")) as producer:
        for _ in range(2):
            with pytest.raises(AuthorizationError, match="may not IdempotentWrite on the cluster"):
                await producer.send_and_wait("flights", b"v")


async def test_idempotence_needs_no_more_than_a_topic_to_write_to(
    secured: LocalCluster, options: Any
) -> None:
    """A producer that was refused goes on when its user is allowed to write, and only there."""
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    (place,) = admin.create_topics([NewTopic("later", 1, 1)])
    write, allow = AclOperation.WRITE, AclPermissionType.ALLOW
    binding = AclBinding(
        *(ResourceType.TOPIC, place, ResourcePatternType.LITERAL, "User:bob", "*", write, allow)
    )
    async with Producer(**options("SASL_SSL", "PLAIN", "bob")) as producer:
        with pytest.raises(AuthorizationError, match="may not IdempotentWrite on the cluster"):
            await producer.send_and_wait("flights", b"v")
        for done in admin.create_acls([binding]).values():
            done.result(30)
        async with asyncio.timeout(30):
            while True:  # a broker heeds an ACL a little later than it takes it
                with contextlib.suppress(AuthorizationError):
                    assert (await producer.send_and_wait(place, b"allowed")).offset == 0
                    break
        with pytest.raises(AuthorizationError, match="may not Write on the topic 'flights'"):
            await producer.send_and_wait("flights", b"v")
        assert (await producer.send_and_wait(place, b"allowed")).offset == 1


async def test_without_idempotence_only_the_topic_is_denied(options: Any) -> None:
    given = options("SASL_SSL", "PLAIN", "bob", enable_idempotence=False)
    async with Producer(**given) as producer:
        for _ in range(2):  # the producer goes on
            with pytest.raises(AuthorizationError, match=r"may not .* on the topic 'flights'"):
                await producer.send_and_wait("flights", b"v")


# --- the documentation, and the command line ------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[str]:
    with _issuing() as url:
        yield url


@contextlib.contextmanager
def _issuing(tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """An identity provider that gives everybody a token for alice; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            token = {"access_token": unsigned_token("alice", 60), "expires_in": 60}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(token).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _here(text: str, cluster: LocalCluster, issuer: str = "") -> str:
    for what, here in {
        "broker.example.org:9093": cluster.secured_bootstrap("SSL"),
        "broker.example.org:9094": cluster.secured_bootstrap("MUTUAL"),
        "broker.example.org:9095": cluster.secured_bootstrap("SASL_SSL"),
        "/etc/kafka": str(cluster.certificates),
        "https://login.example.org/oauth2/token": issuer,
    }.items():
        text = text.replace(what, here)
    return text


@pytest.mark.parametrize("number", range(len(_blocks("python"))))
async def test_the_documented_examples_run(
    secured: LocalCluster, issuer: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", USERS["alice"])
    monkeypatch.setenv("CLIENT_SECRET", "client-secret")

    async def my_identity_provider() -> tuple[str, float]:
        return unsigned_token("alice", 60), 60

    @asynccontextmanager
    async def no_second_cluster(*_: Any, **__: Any) -> AsyncIterator[LocalCluster]:
        yield secured

    block = _here(_blocks("python")[number], secured, issuer)
    names = {
        **vars(kafkaclient),
        "Producer": Producer,
        "Token": Token,
        "ClusterSecurity": ClusterSecurity,
        "LocalCluster": no_second_cluster,
        "my_identity_provider": my_identity_provider,
        "os": __import__("os"),
        "time": time,
    }
    before = await _counts(secured)
    exec("async def example():\n" + textwrap.indent(block, "    "), names)  # noqa: S102
    await names["example"]()
    assert await _counts(secured) == before + 1


async def test_perf_test_takes_the_documented_property_file(
    secured: LocalCluster, tmp_path: Path
) -> None:
    (properties,) = _blocks("properties")
    file, results = tmp_path / "client.properties", tmp_path / "results.json"
    file.write_text(_here(properties, secured))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from kafkaclient.cli import main; main()"),
        *("perf-test", "--topic", "flights"),
        *("--num-records", "1000", "--record-size", "100", "--throughput", "-1"),
        *("--command-config", str(file), "--json", str(results)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert "1000 records sent" in output.decode()
    kept = results.read_text() + output.decode() + errors.decode()
    assert "alice-secret" not in kept
