"""Token providers for clouds on a real broker, which takes unsigned tokens."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from azure.core.credentials import AccessToken

from integration.security.broker import counts, issuing, unsigned_token
from kafkaclient import Producer, Token
from kafkaclient.aws import MskIamTokenProvider
from kafkaclient.azure import EntraTokenProvider
from kafkaclient.errors import SaslAuthenticationError, SslAuthenticationError

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

LIFE_S = 3
AGAIN = "authenticated again"
SLEPT_THROUGH = 2  # without renewals it is each one, and none is authenticated again


class Credential:
    """A credential of azure-identity, whose calls block."""

    def __init__(self) -> None:
        self.asked = 0

    def get_token(self, scope: str) -> AccessToken:
        assert scope == "https://flights.servicebus.windows.net/.default"
        self.asked += 1
        time.sleep(0.05)
        return AccessToken(unsigned_token("alice", LIFE_S), int(time.time()) + LIFE_S)


async def test_tokens_of_a_credential_are_renewed_under_load(secured, options, caplog) -> None:
    credential = Credential()
    scope = "https://flights.servicebus.windows.net/.default"
    given = options("SASL_SSL", "OAUTHBEARER")
    given["sasl_oauth_token_provider"] = EntraTokenProvider(credential, scope=scope)
    before, sent = await counts(secured), []
    with caplog.at_level(logging.DEBUG, "kafkaclient"):
        async with Producer(**given, linger_ms=1) as producer, asyncio.timeout(60):
            while caplog.text.count(AGAIN) < 2 or credential.asked < 3:
                sent.append(await producer.send("flights", b"renewed"))
                await asyncio.sleep(0.005)
            await asyncio.gather(*sent)
            metrics = producer.metrics().producer
    assert await counts(secured) == before + len(sent)
    # The bootstrap server's, and those whose sessions a busy machine has slept through.
    assert metrics["connection-close-total"] <= 1 + SLEPT_THROUGH
    assert "Bearer" not in caplog.text
    assert "eyJ" not in caplog.text  # how every token begins


async def test_a_token_that_the_broker_refuses_is_not_shown(options, monkeypatch) -> None:
    """This broker knows nothing of Amazon's presigned URLs."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-access-key")
    provider = MskIamTokenProvider("eu-west-1")
    token = await provider.token()
    given = options("SASL_SSL", "OAUTHBEARER", sasl_oauth_token_provider=provider)
    with pytest.raises(SaslAuthenticationError) as caught:
        await Producer(**given).start()
    assert token.value[:40] not in str(caught.value)
    assert "AKIDEXAMPLE" not in str(caught.value)


async def alice() -> Token:
    return Token(unsigned_token("alice", 60), time.time() + 60)


async def test_a_provider_by_its_path_with_extensions(options) -> None:
    given = options(
        "SASL_SSL",
        "OAUTHBEARER",
        sasl_oauth_token_provider=f"{__name__}:alice",
        sasl_oauthbearer_extensions="logicalCluster=lkc-1,identityPoolId=pool-1",
    )
    async with Producer(**given) as producer:
        await producer.send_and_wait("flights", b"v")


async def test_confluent_clouds_settings_for_java(options) -> None:
    given = options("SASL_SSL", sasl_mechanism="OAUTHBEARER")
    modules = "org.apache.kafka.common.security.oauthbearer"
    with issuing() as url:
        async with Producer(
            **given,
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_login_callback_handler_class=f"{modules}.OAuthBearerLoginCallbackHandler",
            sasl_jaas_config=f"{modules}.OAuthBearerLoginModule required clientId='c' "
            "clientSecret='s' scope='' extension_logicalCluster='lkc-1' "
            "extension_identityPoolId='pool-1';",
        ) as producer:
            await producer.send_and_wait("flights", b"v")


async def test_brokers_behind_another_name(options) -> None:
    """The certificate is for another host than the address, as behind a tunnel."""
    with pytest.raises(SslAuthenticationError, match="ssl_endpoint_hostname the name in the cert"):
        await Producer(**options("ELSEWHERE")).start()
    async with Producer(
        **options("ELSEWHERE", ssl_endpoint_hostname="elsewhere.example.org")
    ) as producer:
        await producer.send_and_wait("flights", b"v")


@pytest.mark.full
def test_sparks_workers_make_the_provider_themselves(
    secured, options, monkeypatch, tmp_path
) -> None:
    from kafkaclient.spark import spark_session  # noqa: PLC0415 - takes seconds

    (tmp_path / "flights_login.py").write_text(
        "import base64, json, time\n"
        "from kafkaclient import Token\n"
        "class Login:\n"
        "    async def token(self):\n"
        "        now = time.time()\n"
        "        parts = {'alg': 'none'}, {'sub': 'alice', 'iat': now - 1, 'exp': now + 60}\n"
        "        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b'=')\n"
        "                   for part in parts]\n"
        "        return Token(b'.'.join([*encoded, b'']).decode(), now + 60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    given = options("SASL_SSL")
    session = spark_session("test_clouds", "local[2]", {})
    try:
        frame = session.range(100).selectExpr("cast(id as string) value")
        before = asyncio.run(counts(secured))
        frame.write.format("kafkaclient").mode("append").options(
            **{
                "kafka.bootstrap.servers": given["bootstrap_servers"],
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.truststore.location": str(given["ssl_truststore_location"]),
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauth.token.provider": "flights_login:Login",
                "topic": "flights",
            }
        ).save()
    finally:
        session.stop()
    assert asyncio.run(counts(secured)) == before + 100
