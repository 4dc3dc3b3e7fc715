"""Authentication of whole producers: at the start, again while records flow, and in vain."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer, Token
from kafkaclient.admin import Admin
from kafkaclient.errors import (
    AuthenticationError,
    BootstrapError,
    DeliveryTimeoutError,
    KafkaTimeoutError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kafkaclient.reader import Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster, Sasl
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.producer.support import StartProducer


PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "alice-secret",
}
RIGHT = b"\0alice\0alice-secret"


def _options(**more: Any) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in PLAIN.items()} | more


def _only(message: bytes) -> Callable[[str, bytes], str | None]:
    return lambda _, given: None if given == message else "Invalid username or password"


@virtual_time
async def test_every_connection_authenticates_once(producing: StartProducer) -> None:
    sasl = Sasl(refusal=_only(RIGHT))
    fake = FakeCluster(2, sasl=sasl)
    fake.create_topic("t", 4)
    async with producing(fake, **_options()) as producer:
        await asyncio.gather(*(producer.send_and_wait("t", b"v", partition=p) for p in range(4)))
    by_connection: dict[int, list[int]] = {}
    for request in fake.requests:
        by_connection.setdefault(request.connection, []).append(request.api_key)
    assert by_connection
    for keys in by_connection.values():
        assert keys[:3] == [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
        assert ApiKey.SASL_HANDSHAKE not in keys[3:]
    assert sasl.messages == [RIGHT] * len(by_connection)


@virtual_time
async def test_wrong_credentials_end_the_start_and_are_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sasl = Sasl(refusal=_only(b"something else"))
    fake = FakeCluster(3, sasl=sasl)
    started = now()
    producer = Producer(fake.bootstrap, dialer=fake, **_options())
    with caplog.at_level(logging.DEBUG), pytest.raises(SaslAuthenticationError) as caught:
        await producer.start()
    assert 3 * 0.8 < now() - started < 3 * 1.2
    assert caught.value.code == 58
    assert not caught.value.retriable
    assert "Invalid username or password" in str(caught.value)
    assert len(sasl.messages) == 9  # each bootstrap server was asked three times
    assert not [r for r in caplog.records if r.levelno > logging.WARNING]  # it is raised
    assert sum(r.levelno == logging.WARNING for r in caplog.records) == 1
    shown = f"{caught.value!r} {producer!r} {producer.config!r} {caplog.text}"
    assert "alice-secret" not in shown
    assert "[hidden]" in repr(producer.config)


@virtual_time
@pytest.mark.parametrize("kind", [Producer, Reader, Admin])
async def test_a_login_that_is_refused_for_a_moment_is_waited_for(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that has too many connections may say so by refusing the login."""
    sasl = Sasl(refusal=_only(b""))
    fake = FakeCluster(1, sasl=sasl)
    asyncio.get_running_loop().call_later(2, setattr, sasl, "refusal", _only(RIGHT))
    async with kind(fake.bootstrap, dialer=fake, **_options()):
        assert 2 < now() < 5
    assert not [r for r in caplog.records if r.levelno > logging.WARNING]


@virtual_time
async def test_one_refusal_beats_servers_that_cannot_be_reached() -> None:
    fake = FakeCluster(2, sasl=Sasl(refusal=_only(b"")))
    fake.stop_broker(0)
    with pytest.raises(SaslAuthenticationError):
        await Producer(fake.bootstrap, dialer=fake, **_options()).start()


@virtual_time
async def test_an_unsupported_mechanism_names_those_that_are() -> None:
    fake = FakeCluster(1, sasl=Sasl(mechanisms=("SCRAM-SHA-512", "OAUTHBEARER")))
    with pytest.raises(
        UnsupportedSaslMechanismError, match="PLAIN; it offers: SCRAM-SHA-512, OAUTHBEARER"
    ):
        await Producer(fake.bootstrap, dialer=fake, **_options()).start()


@virtual_time
async def test_a_listener_without_sasl_says_so() -> None:
    fake = FakeCluster(1)
    with pytest.raises(AuthenticationError, match="does not want SASL on this listener"):
        await Producer(fake.bootstrap, dialer=fake, **_options()).start()


@virtual_time
async def test_a_client_without_sasl_is_told_that_it_is_wanted() -> None:
    fake = FakeCluster(1, sasl=Sasl())
    started = now()
    with pytest.raises(AuthenticationError, match=r"SASL_PLAINTEXT and .*: PLAIN, OAUTHBEARER"):
        await Producer(fake.bootstrap, dialer=fake).start()
    assert now() - started < 2


@virtual_time
async def test_credentials_refused_later_keep_records_until_they_are_mended(
    producing: StartProducer,
) -> None:
    """Who rotates a password does so in two places, one after the other."""
    sasl = Sasl(refusal=_only(RIGHT))
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("t", 1)
    async with producing(fake, **_options()) as producer:
        await producer.send_and_wait("t", b"before")
        sasl.refusal = _only(b"\0alice\0new-secret")
        fake.drop_connections()
        delivery = await producer.send("t", b"meanwhile")
        before = len(sasl.messages)
        await asyncio.sleep(30)
        assert not delivery.done()
        assert len(sasl.messages) - before < 20  # no storm: accounts get locked
        sasl.refusal = _only(RIGHT)
        await delivery
    assert [record.value for record in fake.log("t", 0)] == [b"before", b"meanwhile"]


@virtual_time
async def test_credentials_refused_later_for_good_are_the_cause_of_the_timeout(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    sasl = Sasl(refusal=_only(RIGHT))
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("t", 1)
    async with producing(fake, **_options(delivery_timeout_ms=31_000)) as producer:
        await producer.send_and_wait("t", b"before")
        sasl.refusal = _only(b"")
        fake.drop_connections()
        with pytest.raises(DeliveryTimeoutError, match="Invalid username or password") as caught:
            await producer.send_and_wait("t", b"meanwhile")
        assert isinstance(caught.value.__cause__, SaslAuthenticationError)
        with pytest.raises(SaslAuthenticationError):  # at once, not after max.block.ms
            async with asyncio.timeout(15):
                await producer.send("unheard-of", b"v")
    told = [r for r in caplog.records if r.levelno == logging.ERROR and "refused the" in r.message]
    assert 1 <= len(told) <= 2  # once per connection that is wanted
    assert "alice-secret" not in caplog.text


@virtual_time
async def test_one_broker_that_refuses_does_not_speak_for_those_that_may_answer(
    producing: StartProducer,
) -> None:
    """A broker with a wrong certificate must not fail what waits for others that are paused."""
    refused = False

    def refusal(_mechanism: str, _message: bytes) -> str | None:
        return "not here" if refused else None

    fake = FakeCluster(2, sasl=Sasl(refusal=refusal))
    async with producing(fake, **_options(max_block_ms=60_000)) as producer:
        refused = True
        fake.stall_broker(1, swallow_dials=True)
        fake.drop_connections()
        fake.create_topic("t", 1, assignments=[[1]])
        sending = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(8)
        assert not sending.done()
        refused = False
        fake.resume_broker(1)
        await (await sending)


# --- again (KIP-368) ----------------------------------------------------------------------------


def _wall_clock() -> float:
    return 1_000_000.0 + asyncio.get_running_loop().time()


@virtual_time
async def test_sessions_are_renewed_between_requests_and_nothing_is_lost(
    producing: StartProducer,
) -> None:
    """The fake closes a connection on any request between SaslHandshake and the end of
    authentication, and on any after the session's end."""
    loop = asyncio.get_running_loop()
    asked: list[float] = []

    async def provide() -> Token:
        asked.append(loop.time())
        await asyncio.sleep(0.01)
        return Token(f"token-{len(asked)}", _wall_clock() + 1.0)

    sasl = Sasl(lifetime_s=1.0)
    fake = FakeCluster(1, sasl=sasl)
    fake.round_trip_s = 0.004
    delay_s = 0.015
    fake.delay_produce(0, delay_s)
    fake.create_topic("t", 5)
    async with producing(
        fake,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provide,
        wall_clock=_wall_clock,
        linger_ms=0,
    ) as producer:
        deliveries = []
        while loop.time() < 5:
            for partition in range(5):
                value = b"%d" % len(deliveries)
                deliveries.append(await producer.send("t", value, partition=partition))
            await asyncio.sleep(0.02)
        await asyncio.gather(*deliveries)
        dialled = {request.connection for request in fake.requests}
    written = [int(r.value) for p in range(5) for r in fake.log("t", p)]
    assert sorted(written) == list(range(len(deliveries)))
    assert len(dialled) == 3  # bootstrap, control, produce: none was ever closed and made anew
    renewals = [r.at for r in fake.requests_of(ApiKey.SASL_HANDSHAKE)]
    produce = next(r.connection for r in fake.requests_of(ApiKey.PRODUCE))
    times = [r.at for r in fake.requests_of(ApiKey.SASL_HANDSHAKE) if r.connection == produce]
    gaps = [b - a for a, b in pairwise(times)]
    behind = [
        request.at
        for request in fake.requests_of(ApiKey.PRODUCE)
        if any(0 <= at - request.at < delay_s for at in times)
    ]
    assert behind  # the renewal began while these were still to be answered
    assert len(renewals) > len(dialled)
    assert gaps
    assert all(0.84 < gap < 0.98 for gap in gaps)
    # One token for all connections that renew at about the same time, and never one too old.
    assert len(asked) <= len(times) + 1
    assert all(b - a >= 0.8 for a, b in pairwise(asked))


@virtual_time
async def test_renewals_are_more_than_a_second_apart_as_brokers_want_it(
    producing: StartProducer,
) -> None:
    fake = FakeCluster(1, sasl=Sasl(lifetime_s=1.1))
    fake.create_topic("t", 1)
    async with producing(fake, **_options()) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(5)
    by_connection: dict[int, list[float]] = {}
    for request in fake.requests_of(ApiKey.SASL_HANDSHAKE):
        by_connection.setdefault(request.connection, []).append(request.at)
    longest = max(by_connection.values(), key=len)
    assert len(longest) >= 4
    assert all(1.0 < b - a < 1.1 for a, b in pairwise(longest))


@virtual_time
async def test_a_refused_renewal_closes_the_connection_and_names_the_cause(
    producing: StartProducer,
) -> None:
    sasl = Sasl(refusal=_only(RIGHT), lifetime_s=2.0)
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("t", 1)
    async with producing(fake, **_options(delivery_timeout_ms=31_000)) as producer:
        await producer.send_and_wait("t", b"v")
        sasl.refusal = _only(b"")
        await asyncio.sleep(2)
        with pytest.raises(DeliveryTimeoutError, match="refused the credentials"):
            await producer.send_and_wait("t", b"v")


@virtual_time
async def test_renewals_do_not_keep_an_idle_connection_alive(producing: StartProducer) -> None:
    sasl = Sasl(lifetime_s=2.0)
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("t", 1)
    async with producing(fake, **_options(connections_max_idle_ms=9_000)) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(5)
        assert fake.connections(0) > 0
        await asyncio.sleep(10)
        assert fake.connections(0) == 0
        await producer.send_and_wait("t", b"v")


# --- tokens -------------------------------------------------------------------------------------


def _oauth(provider: Any, **more: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
        **more,
    }


@virtual_time
async def test_the_token_and_its_extensions_are_sent(producing: StartProducer) -> None:
    class Provider:
        async def token(self) -> Token:
            return Token("abc.def.ghi", time.time() + 60, {"logicalCluster": "lkc-1"})

    sasl = Sasl()
    fake = FakeCluster(1, sasl=sasl)
    async with producing(fake, **_oauth(Provider())):
        pass
    assert sasl.messages == [
        b"n,,\x01auth=Bearer abc.def.ghi\x01logicalCluster=lkc-1\x01\x01"
    ] * len(sasl.messages)


@virtual_time
async def test_extensions_of_the_options_are_sent_with_each_token(
    producing: StartProducer,
) -> None:
    """A token's own extension comes first."""

    async def provide() -> Token:
        return Token("abc", None, {"identityPoolId": "pool-2"})

    sasl = Sasl()
    fake = FakeCluster(1, sasl=sasl)
    given = {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
    async with producing(fake, **_oauth(provide, sasl_oauthbearer_extensions=given)):
        pass
    assert set(sasl.messages) == {
        b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01"
    }


@virtual_time
async def test_a_refused_token_with_extensions_is_requested_again(
    producing: StartProducer,
) -> None:
    asked = 0

    async def provide() -> Token:
        nonlocal asked
        asked += 1
        return Token(f"token-{asked}")

    sasl = Sasl()
    fake = FakeCluster(1, sasl=sasl)
    fake.create_topic("t", 1)
    options = _oauth(provide, sasl_oauthbearer_extensions="a=b")
    async with producing(fake, **options) as producer:
        sasl.refusal = lambda _, message: "expired" if b"token-1" in message else None
        await producer.send_and_wait("t", b"v")
    assert asked == 2


async def _send_before_and_after_a_session(
    producing: StartProducer, provide: Callable[[], Awaitable[Token]]
) -> None:
    fake = FakeCluster(1, sasl=Sasl(lifetime_s=100.0))
    fake.create_topic("t", 1)
    options = _oauth(provide, wall_clock=_wall_clock, connections_max_idle_ms=-1)
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(105)
        await producer.send_and_wait("t", b"v")


@virtual_time
async def test_a_provider_that_hangs_at_a_renewal_ends_the_session_and_is_named(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    asked: list[float] = []

    async def provide() -> Token:
        asked.append(loop.time())
        if len(asked) == 2:
            await asyncio.sleep(3600)
        return Token("abc", _wall_clock() + 100)

    with caplog.at_level(logging.WARNING):
        await _send_before_and_after_a_session(producing, provide)
    assert "returned none in time; the connection is closed" in caplog.text
    assert f"needs a token, and the provider {__name__}:test_a_provider_that_hangs" in caplog.text
    assert len(asked) == 3


@virtual_time
async def test_a_provider_that_fails_at_a_renewal_is_asked_at_equal_pauses_and_named(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own time limit is not taken for the end of the session."""
    loop = asyncio.get_running_loop()
    began, asked = loop.time(), defaultdict[Any, list[float]](list)

    async def provide() -> Token:
        at = loop.time() - began
        asked[asyncio.current_task()].append(at)
        if 1 < at < 102:
            raise KafkaTimeoutError("the identity provider is slow")
        return Token("abc", _wall_clock() + 100)

    with caplog.at_level(logging.WARNING):
        await _send_before_and_after_a_session(producing, provide)
    renewals = [times for times in asked.values() if len(times) > 1]  # one for each connection
    assert renewals
    for times in renewals:
        pauses = [after - before for before, after in pairwise(times)]
        assert 10 <= len(times) <= 21
        assert max(pauses) == pytest.approx(min(pauses))
    assert "the identity provider is slow; retrying" in caplog.text
    assert "the identity provider is slow; the connection is closed" in caplog.text
    assert "returned none in time" not in caplog.text


@virtual_time
async def test_a_provider_that_fails_for_a_while_is_asked_again(producing: StartProducer) -> None:
    asked = 0

    async def provide() -> Token:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise OSError("the identity provider is down")
        return Token("abc")

    fake = FakeCluster(1, sasl=Sasl())
    async with producing(fake, **_oauth(provide)):
        assert asked == 4


@virtual_time
async def test_a_provider_that_keeps_failing_is_the_cause_of_the_timeout() -> None:
    async def provide() -> Token:
        raise OSError("the identity provider is down")

    fake = FakeCluster(1, sasl=Sasl())
    with pytest.raises(BootstrapError, match="the identity provider is down") as caught:
        await Producer(fake.bootstrap, dialer=fake, **_oauth(provide, max_block_ms=5000)).start()
    assert "Check the credentials" in str(caught.value)
    assert "Check the addresses" not in str(caught.value)


@virtual_time
@pytest.mark.parametrize("fails_first", [False, True])
@pytest.mark.parametrize("client", [Producer, Admin])
async def test_a_short_limit_names_the_provider_as_well(client: Any, fails_first: bool) -> None:
    asked = []

    async def provide() -> Token:
        asked.append(1)
        if fails_first and len(asked) == 1:
            raise OSError("the identity provider is down")
        await asyncio.sleep(3600)
        raise AssertionError

    fake = FakeCluster(1, sasl=Sasl())
    name = "max_block_ms" if client is Producer else "default_api_timeout_ms"
    with pytest.raises(BootstrapError) as caught:
        await client(fake.bootstrap, dialer=fake, **_oauth(provide), **{name: 500}).start()
    text = str(caught.value)
    assert f"within 0.5 s ({name.replace('_', '.')}): the token provider {__name__}:" in text
    assert "provide has not returned a token" in text
    assert ("OSError: the identity provider is down" in text) is fails_first


@virtual_time
@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("just text", "returned a str, not a kafkaclient.Token"),
        (Token(""), "the token is empty"),
        (Token("secret token"), "characters that no bearer token has"),
        (Token("secret", None, {"auth": "x"}), "'auth' cannot be the name"),
        (AuthenticationError("this client may not have one"), "may not have one"),
    ],
)
async def test_a_provider_that_is_wrong_ends_the_start_at_once(result: Any, words: str) -> None:
    async def provide() -> Token:
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    fake = FakeCluster(1, sasl=Sasl())
    with pytest.raises(AuthenticationError, match=words) as caught:
        await Producer(fake.bootstrap, dialer=fake, **_oauth(provide)).start()
    assert "secret" not in str(caught.value)


@virtual_time
async def test_a_function_that_is_not_async_is_no_provider() -> None:
    fake = FakeCluster(1, sasl=Sasl())
    with pytest.raises(AuthenticationError, match="the token provider is not async"):
        await Producer(fake.bootstrap, dialer=fake, **_oauth(lambda: Token("abc"))).start()


@virtual_time
async def test_a_hanging_provider_is_named(producing: StartProducer) -> None:
    async def provide() -> Token:
        await asyncio.sleep(3600)
        raise AssertionError

    fake = FakeCluster(1, sasl=Sasl())
    options = _oauth(provide, max_block_ms=60_000)
    with pytest.raises(
        BootstrapError, match=r"the token provider .*provide has not returned a token\. Check"
    ):
        await Producer(fake.bootstrap, dialer=fake, **options).start()
