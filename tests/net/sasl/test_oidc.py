"""Client credentials against an identity provider in this process."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, ConfigError
from kafkaclient.net.login import Login
from kafkaclient.net.tokens import ClientCredentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

SECRET = "client-secret"
CLIENT = {
    "sasl_oauthbearer_client_credentials_client_id": "client-id",
    "sasl_oauthbearer_client_credentials_client_secret": SECRET,
}


class Issuer:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body: bytes = json.dumps({"access_token": "abc.def", "expires_in": 300}).encode()
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[dict[str, str], dict[str, list[str]]]] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                form = parse_qs(self.rfile.read(size).decode())
                issuer.asked.append((dict(self.headers), form))
                self.send_response(issuer.status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def client(self, scheme: str = "http", **more: Any) -> ClientCredentials:
        url = f"{scheme}://127.0.0.1:{self.port}/token"
        return ClientCredentials(url, "client-id", SECRET, wall_clock=lambda: 1000.0, **more)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield from _serving(issuer)


@pytest.fixture
def secure_issuer(authority: trustme.CA) -> Iterator[Issuer]:
    issuer = Issuer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    issuer.server.socket = context.wrap_socket(issuer.server.socket, server_side=True)
    issuer.server.handle_error = lambda *_: None  # type: ignore[method-assign]
    yield from _serving(issuer)


def _serving(issuer: Issuer) -> Iterator[Issuer]:
    thread = threading.Thread(target=issuer.server.serve_forever, args=(0.01,))
    thread.start()
    yield issuer
    issuer.server.shutdown()
    thread.join()
    issuer.server.server_close()


async def test_a_token_is_asked_for_as_java_does(issuer: Issuer) -> None:
    token = await issuer.client(scope="kafka write").token()
    assert (token.value, token.expires_at) == ("abc.def", 1300.0)
    headers, form = issuer.asked[0]
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka write"]}
    scheme, _, login = headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(login) == b"client-id:client-secret"


async def test_a_token_may_have_no_end(issuer: Issuer) -> None:
    issuer.body = b'{"access_token": "abc"}'
    assert (await issuer.client().token()).expires_at is None
    assert "scope" not in issuer.asked[0][1]


@pytest.mark.parametrize("retriever", ["Default", "ClientCredentials", "JwtBearer"])
async def test_an_assertion_in_place_of_a_secret(
    issuer: Issuer, tmp_path: Path, retriever: str
) -> None:
    """As Java's ClientAssertionRequestFormatter and JwtBearerRequestFormatter send it."""
    file = tmp_path / "jwt"
    config = ProducerConfig.build(
        "b:9092",
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": f"http://127.0.0.1:{issuer.port}/token",
            "sasl_oauthbearer_client_credentials_client_id": "client-id",
            "sasl_oauthbearer_assertion_file": file,
            "sasl_oauthbearer_jwt_retriever_class": (
                f"org.apache.kafka.common.security.oauthbearer.{retriever}JwtRetriever"
            ),
        },
    )
    with pytest.raises(AuthenticationError, match=r"no token: the assertion in .*jwt cannot be"):
        await Login(config).token()
    for jwt in ("a.b.c", "d.e.f"):  # another program keeps it fresh
        file.write_text(f"{jwt}\n")
        assert (await Login(config).token()).value == "abc.def"
        headers, form = issuer.asked[-1]
        assert "Authorization" not in headers
        if retriever == "JwtBearer":
            grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
            assert form == {"grant_type": [grant], "assertion": [jwt]}
        else:
            assert form == {
                "grant_type": ["client_credentials"],
                "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
                "client_assertion": [jwt],
                "client_id": ["client-id"],
            }


def test_the_jwt_bearer_grant_needs_an_assertion() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.oauthbearer.jwt.retriever.class": (
            "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
        ),
    }
    with pytest.raises(ConfigError, match="needs sasl_oauthbearer_assertion_file"):
        ProducerConfig.build("b:9092", options)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthenticationError),
        (400, AuthenticationError),
        (404, AuthenticationError),
        (302, AuthenticationError),
        (429, BrokerConnectionError),
        (500, BrokerConnectionError),
        (503, BrokerConnectionError),
    ],
)
async def test_refusals_are_final_and_outages_are_not(
    issuer: Issuer, status: int, kind: type[Exception]
) -> None:
    issuer.status, issuer.body = status, b'{"error":"invalid_client"}'
    issuer.headers = {"Location": f"http://127.0.0.1:{issuer.port}/elsewhere"}
    client = issuer.client()
    with pytest.raises(kind, match=f"/token answered {status}.*invalid_client") as caught:
        await client.token()
    assert len(issuer.asked) == 1  # a redirection is not followed: the secret is for one address
    assert SECRET not in f"{caught.value!r} {client!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"{}", b'{"access_token": 5}'])
async def test_an_answer_that_makes_no_sense(issuer: Issuer, body: bytes) -> None:
    issuer.body = body
    with pytest.raises(AuthenticationError, match="answered with"):
        await issuer.client().token()


async def test_an_issuer_that_is_down(issuer: Issuer) -> None:
    client = ClientCredentials("http://127.0.0.1:1/token", "id", SECRET)
    with pytest.raises(BrokerConnectionError, match="refused"):
        await client.token()


async def test_an_issuer_that_hangs_takes_one_thread_and_none_of_the_applications(
    monkeypatch: pytest.MonkeyPatch, issuer: Issuer
) -> None:
    hangs, client = threading.Event(), issuer.client()
    asked: list[str] = []

    def post() -> dict[str, Any]:
        asked.append(threading.current_thread().name)
        hangs.wait(10)
        return {"access_token": "abc.def"}

    monkeypatch.setattr(client, "_post", post)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.token()
    hangs.set()
    assert (await client.token()).value == "abc.def"
    assert asked == ["kafkaclient-call"]


async def test_its_certificate_is_verified(secure_issuer: Issuer, authority: trustme.CA) -> None:
    with pytest.raises(BrokerConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        await secure_issuer.client("https").token()
    assert not secure_issuer.asked
    context = ssl.create_default_context()
    authority.configure_trust(context)
    assert (await secure_issuer.client("https", context=context).token()).value == "abc.def"


@pytest.mark.parametrize("kind", ["file", "text", "Java's words"])
async def test_whom_to_trust_is_told_by_the_options(
    secure_issuer: Issuer, authority: trustme.CA, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "idp.pem"
    authority.cert_pem.write_to_path(file)
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="client-id" clientSecret="{SECRET}" ssl.truststore.location="{file}";'
    )
    given: dict[str, Any] = {
        "file": {"https_ca_location": file, **CLIENT},
        "text": {"https_ca_pem": authority.cert_pem.bytes().decode(), **CLIENT},
        "Java's words": {"sasl_jaas_config": jaas},
    }[kind]
    login = Login(_config(secure_issuer, **given))
    assert (await login.mechanism("b")).first() == b"n,,\x01auth=Bearer abc.def\x01\x01"
    (asked,) = secure_issuer.asked
    assert asked[0]["Authorization"] == f"Basic {_basic()}"


async def test_the_truststore_for_brokers_is_not_for_the_issuer(
    secure_issuer: Issuer, authority: trustme.CA, tmp_path: Path
) -> None:
    file = tmp_path / "brokers.pem"
    authority.cert_pem.write_to_path(file)
    login = Login(_config(secure_issuer, ssl_truststore_location=file, **CLIENT))
    with pytest.raises(BrokerConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        await login.mechanism("b")
    assert not secure_issuer.asked


def test_certificates_that_cannot_be_read_are_told_at_once(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ConfigError, match=r"https_ca_location=.*empty\.pem holds no certificate"):
        Login(_config(issuer, https_ca_location=tmp_path / "empty.pem", **CLIENT))


def _config(issuer: Issuer, **options: Any) -> ProducerConfig:
    return ProducerConfig.build(
        {"bootstrap.servers": "b:9092"},
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": f"https://127.0.0.1:{issuer.port}/token",
            **options,
        },
    )


def _basic() -> str:
    return base64.b64encode(f"client-id:{SECRET}".encode()).decode()
