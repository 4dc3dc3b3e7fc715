"""Tokens for Amazon MSK, signed with fake credentials; nothing leaves this machine."""

from __future__ import annotations

import asyncio
import base64
import logging
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import botocore.client
import botocore.session
import pytest
from botocore.credentials import CredentialProvider, Credentials
from botocore.exceptions import ClientError, EndpointConnectionError

import kafkaclient.aws
from kafkaclient import Producer, Token
from kafkaclient.aws import MskIamTokenProvider
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, ConfigError
from kafkaclient.net.tokens import TokenSource, check_token
from kafkaclient.spark.options import WriteOptions
from kafkaclient.testing.fake import FakeCluster, Sasl

if TYPE_CHECKING:
    from pathlib import Path

KEY, SECRET, SESSION = "AKIDEXAMPLE", "secret-access-key", "session-token"
MSK = "b-1.flights.a1b2c3.c4.kafka.eu-west-1.amazonaws.com"
IAM = {
    "bootstrap.servers": f"{MSK}:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials in the environment and in a profile; no file of the user, no instance."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text(
        f"[other]\naws_access_key_id = AKIDOTHER\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


def signed(token: Token) -> dict[str, str]:
    """The fields of the presigned URL in a token, and its host."""
    check_token(token)
    url = urlsplit(base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode())
    fields = {name: values[0] for name, values in parse_qs(url.query).items()}
    return {**fields, "scheme": url.scheme, "host": url.netloc}


async def test_a_token_is_a_presigned_url_for_fifteen_minutes() -> None:
    before = time.time()
    token = await MskIamTokenProvider("eu-west-1").token()
    found = signed(token)
    assert (found["scheme"], found["host"]) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert found["Action"] == "kafka-cluster:Connect"
    assert found["X-Amz-Expires"] == "900"
    assert found["X-Amz-Security-Token"] == SESSION
    assert found["X-Amz-Credential"].startswith(f"{KEY}/")
    assert found["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert token.expires_at is not None
    assert before + 898 <= token.expires_at <= time.time() + 900  # seconds, not milliseconds


async def test_it_signs_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    class Here(CredentialProvider):
        def load(self) -> Credentials:
            threads.append(threading.current_thread())
            return Credentials(KEY, SECRET)

    found = signed(await MskIamTokenProvider("us-east-2", credentials_provider=Here()).token())
    assert "X-Amz-Security-Token" not in found
    assert threading.main_thread() not in threads
    assert len(threads) == 1


async def test_a_profile_is_used() -> None:
    found = signed(await MskIamTokenProvider("eu-west-1", profile="other").token())
    assert found["X-Amz-Credential"].startswith("AKIDOTHER/")


class Sts:
    """Replaces the STS client: a role with credentials of its own."""

    def __init__(self, session: Any, region: str) -> None:
        self.session, self.region = session, region
        self.asked: dict[str, str] = {}

    def assume_role(self, **request: str) -> dict[str, Any]:
        self.asked = request
        keys = {"AccessKeyId": "AKIDROLE", "SecretAccessKey": SECRET, "SessionToken": "of-role"}
        return {"Credentials": keys}

    def close(self) -> None:
        pass


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> list[Sts]:
    made: list[Sts] = []

    def create_client(self: Any, service: str, region_name: str) -> Sts:
        assert service == "sts"
        made.append(Sts(self, region_name))
        return made[-1]

    monkeypatch.setattr(botocore.session.Session, "create_client", create_client)
    return made


async def test_a_role_is_assumed_for_each_token(sts: list[Sts]) -> None:
    role = "arn:aws:iam::123456789012:role/flights"
    provider = MskIamTokenProvider("eu-west-1", role_arn=role, sts_region="eu-central-1")
    found = signed(await provider.token())
    assert found["X-Amz-Credential"].startswith("AKIDROLE/")
    assert found["X-Amz-Security-Token"] == "of-role"
    assert sts[0].asked == {"RoleArn": role, "RoleSessionName": "kafkaclient"}
    assert sts[0].region == "eu-central-1"
    await provider.token()
    assert len(sts) == 2


async def test_every_option_of_javas_login_module(sts: list[Sts]) -> None:
    role = "arn:aws:iam::123456789012:role/flights"
    config = ProducerConfig.build(
        {
            **IAM,
            "sasl.jaas.config": f'{MODULE} awsRoleArn="{role}" awsRoleSessionName="producer" '
            'awsRoleExternalId="x" awsStsRegion="us-west-2" awsProfileName="other";',
        }
    )
    assert config.sasl_mechanism == "OAUTHBEARER"
    await config.sasl_oauth_token_provider.token()
    assert sts[0].region == "us-west-2"
    assert sts[0].session.profile == "other"
    assert sts[0].asked == {
        "RoleArn": role,
        "RoleSessionName": "producer",
        "ExternalId": "x",
    }


# --- the region -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "region"),
    [
        ([MSK], "eu-west-1"),
        ([MSK.upper(), MSK.replace("b-1", "b-2-public")], "eu-west-1"),
        (["boot-x1y2.c1.kafka-serverless.us-east-1.amazonaws.com"], "us-east-1"),
        (["b-1.scram.c.x.c2.kafka.us-gov-west-1.amazonaws.com"], "us-gov-west-1"),
        (["b-1.c.x.c2.kafka.cn-north-1.amazonaws.com.cn"], "cn-north-1"),
        ([MSK, "localhost"], "eu-west-1"),
    ],
)
def test_the_region_is_in_the_brokers_names(hosts: list[str], region: str) -> None:
    assert MskIamTokenProvider().for_brokers(hosts).region == region


def test_a_given_region_comes_first_and_the_environment_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MskIamTokenProvider("us-east-2").for_brokers([MSK]).region == "us-east-2"
    with pytest.raises(ConfigError, match=r"bootstrap servers \(kafka.example.org\) do not show"):
        MskIamTokenProvider().for_brokers(["kafka.example.org"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert MskIamTokenProvider().for_brokers(["kafka.example.org"]).region == "ap-south-1"
    assert MskIamTokenProvider().for_brokers([MSK]).region == "eu-west-1"


def test_brokers_in_two_regions_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"several regions \(eu-west-1, us-east-1\)"):
        MskIamTokenProvider().for_brokers([MSK, MSK.replace("eu-west-1", "us-east-1")])


async def test_a_provider_that_has_met_no_client_has_no_region() -> None:
    with pytest.raises(ConfigError, match="MskIamTokenProvider has no region"):
        await MskIamTokenProvider().token()


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"profile": "p", "credentials_provider": object()}, "give one"),
        ({"role_session_name": "s"}, "role_session_name has no effect without role_arn"),
        ({"sts_region": "r"}, "sts_region has no effect without role_arn"),
    ],
)
def test_arguments_that_conflict(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        MskIamTokenProvider("eu-west-1", **arguments)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sasl.jaas.config": f"{MODULE} awsDebugCreds=true;"}, "option 1 for AWS_MSK_IAM is none"),
        ({"sasl.jaas.config": f"{MODULE} awsStsRegion=x;"}, "sts_region has no effect"),
        (
            {"sasl.jaas.config": "a.ScramLoginModule required username=a password=b;"},
            "which is for SCRAM-SHA-256 and SCRAM-SHA-512, but sasl_mechanism is AWS_MSK_IAM",
        ),
        (
            {"sasl_oauth_token_provider": MskIamTokenProvider("r")},
            "AWS_MSK_IAM does not use it",
        ),
        ({"https.ca.location": "/ca"}, "https_ca_location would have no effect"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{MODULE};"},
            "which is for AWS_MSK_IAM, but sasl_mechanism is OAUTHBEARER",
        ),
        (
            {"sasl.client.callback.handler.class": "com.example.Handler"},
            "Java classes cannot be loaded",
        ),
    ],
)
def test_options_that_conflict(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ProducerConfig.build(IAM | more)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafkaclient.aws, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r'pip install "kafkaclient\[aws\]"'):
        ProducerConfig.build(IAM)


def test_spark_takes_javas_options() -> None:
    options = {f"kafka.{name}": value for name, value in IAM.items()}
    jaas = {"kafka.sasl.jaas.config": f"{MODULE} awsProfileName=other;", "topic": "flights"}
    client = WriteOptions.parse(options | jaas, "batch").client
    # What a worker gets are these strings, from which it makes the provider itself.
    config = ProducerConfig.build(pickle.loads(pickle.dumps(client)))  # noqa: S301
    assert config.sasl_oauth_token_provider.region == "eu-west-1"
    by_path = options | {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauth.token.provider": "kafkaclient.aws:MskIamTokenProvider",
        "topic": "flights",
    }
    config = ProducerConfig.build(WriteOptions.parse(by_path, "batch").client)
    assert config.sasl_oauth_token_provider.region == "eu-west-1"


async def test_it_can_be_pickled_after_it_was_used() -> None:
    provider = MskIamTokenProvider("eu-west-1", profile="other")
    await provider.token()
    copy = pickle.loads(pickle.dumps(provider))  # noqa: S301
    assert signed(await copy.token())["X-Amz-Credential"].startswith("AKIDOTHER/")


# --- failures -------------------------------------------------------------------------------------


class Failing(CredentialProvider):
    def __init__(self, *outcomes: Any) -> None:
        super().__init__()
        self.outcomes = list(outcomes)

    def load(self) -> Any:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def refusal(status: int, code: str = "AccessDenied") -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "AssumeRole")


@pytest.mark.parametrize(
    ("outcome", "kind", "words"),
    [
        (None, AuthenticationError, "Unable to locate credentials"),
        (Credentials("", ""), AuthenticationError, "AWS Credentials can not be empty"),
        (refusal(403), AuthenticationError, "AccessDenied"),
        (refusal(400, "Throttling"), BrokerConnectionError, "Throttling"),
        (refusal(503), BrokerConnectionError, "AssumeRole"),
        (EndpointConnectionError(endpoint_url="https://sts"), BrokerConnectionError, "Could not"),
    ],
)
async def test_failures_say_whether_a_retry_may_help(
    outcome: Any, kind: type[Exception], words: str
) -> None:
    provider = MskIamTokenProvider("eu-west-1", credentials_provider=Failing(outcome))
    with pytest.raises(kind, match=words) as caught:
        await provider.token()
    assert type(caught.value) is kind
    assert SECRET not in str(caught.value)


async def test_an_unknown_profile_is_final() -> None:
    with pytest.raises(AuthenticationError, match=r"profile \(absent\) could not be found"):
        await MskIamTokenProvider("eu-west-1", profile="absent").token()


async def test_after_the_first_token_every_failure_is_retried() -> None:
    outcomes = Failing(Credentials(KEY, SECRET), None, Credentials(KEY, SECRET))
    provider = MskIamTokenProvider("eu-west-1", credentials_provider=outcomes)
    now = time.time()
    source = TokenSource(provider, lambda: now)
    await source.get()
    now += 900
    with pytest.raises(BrokerConnectionError, match="Unable to locate credentials"):
        await source.get()
    await source.get()


async def test_a_provider_for_other_brokers_waits_for_no_call_of_this_one() -> None:
    """The call is for a token of another region."""
    released = threading.Event()

    class Slow(CredentialProvider):
        def load(self) -> Credentials:
            released.wait(30)
            return Credentials(KEY, SECRET)

    provider = MskIamTokenProvider(credentials_provider=Slow())
    regions = ("eu-west-1", "us-east-1")
    try:
        tokens = asyncio.gather(
            *(provider.for_brokers([MSK.replace("eu-west-1", x)]).token() for x in regions)
        )
        await asyncio.sleep(0)
    finally:
        released.set()
    hosts = [signed(token)["host"] for token in await tokens]
    assert hosts == [f"kafka.{region}.amazonaws.com" for region in regions]


async def test_a_call_that_hangs_occupies_one_thread() -> None:
    released, calls = threading.Event(), []

    class Hanging(CredentialProvider):
        def load(self) -> Credentials:
            calls.append(1)
            released.wait(30)
            return Credentials(KEY, SECRET)

    provider = MskIamTokenProvider("eu-west-1", credentials_provider=Hanging())
    try:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await provider.token()
        waiting = asyncio.create_task(provider.token())
        await asyncio.sleep(0)
    finally:
        released.set()
    assert signed(await waiting)["X-Amz-Credential"].startswith(KEY)
    assert len(calls) == 1


async def test_a_producer_sends_the_token_and_shows_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sasl = Sasl()
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("flights", 1)
    provider = MskIamTokenProvider("eu-west-1")
    with caplog.at_level(logging.DEBUG, "kafkaclient"):
        async with Producer(
            fake.bootstrap,
            dialer=fake,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=provider,
        ) as producer:
            await producer.send_and_wait("flights", b"v")
            shown = f"{producer!r} {producer.config!r} {provider!r} {caplog.text}"
    message = sasl.messages[0]
    assert message.startswith(b"n,,\x01auth=Bearer ")
    value = message.removeprefix(b"n,,\x01auth=Bearer ").rstrip(b"\x01").decode()
    assert signed(Token(value))["host"] == "kafka.eu-west-1.amazonaws.com"
    assert len(set(sasl.messages)) == 1  # one token for all connections
    for secret in (KEY, SECRET, SESSION, value):
        assert secret not in shown


async def test_the_next_token_is_signed_before_the_first_one_ends() -> None:
    now = time.time()
    source = TokenSource(MskIamTokenProvider("eu-west-1"), lambda: now)
    first = await source.get()
    now += 700
    assert await source.get() is first
    now += 40  # 12 minutes of 15 have passed
    assert await source.get() is not first
