from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from kafkaclient.errors import AuthenticationError, BrokerConnectionError
from kafkaclient.net.tokens import Token, TokenSource


class Provider:
    """A token for ``life`` seconds."""

    def __init__(self, life: float | None = 100.0) -> None:
        self.now = 1000.0
        self.life = life
        self.asked = 0
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None

    def clock(self) -> float:
        return self.now

    async def token(self) -> Token:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Token(f"t{self.asked}", None if self.life is None else self.now + self.life)


async def test_a_token_serves_for_four_fifths_of_its_life() -> None:
    provider = Provider()
    source = TokenSource(provider, provider.clock)
    first = await source.get()
    provider.now += 79.9
    assert await source.get() is first
    provider.now += 0.2
    assert (await source.get()).value == "t2"


async def test_a_token_without_an_end_is_asked_for_again_after_minutes() -> None:
    provider = Provider(life=None)
    source = TokenSource(provider.token, provider.clock)
    await source.get()
    provider.now += 239
    await source.get()
    assert provider.asked == 1
    provider.now += 2
    await source.get()
    assert provider.asked == 2


async def test_a_token_that_has_ended_already_is_not_kept() -> None:
    provider = Provider(life=-5)
    source = TokenSource(provider, provider.clock)
    await source.get()
    await source.get()
    assert provider.asked == 2


async def test_one_asks_for_all_and_may_be_cancelled() -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    source = TokenSource(provider, provider.clock)
    tasks = [asyncio.create_task(source.get()) for _ in range(4)]
    await asyncio.sleep(0)
    assert provider.asked == 1
    tasks[0].cancel()
    await asyncio.sleep(0)
    provider.gate.set()
    tokens = await asyncio.gather(*tasks[1:])
    assert provider.asked == 2  # the next in line asked anew
    assert {token.value for token in tokens} == {"t2"}
    assert tasks[0].cancelled()


async def test_a_failure_is_not_remembered() -> None:
    provider = Provider()
    provider.error = RuntimeError("down")
    source = TokenSource(provider, provider.clock)
    with pytest.raises(
        BrokerConnectionError, match=f"the provider {__name__}:Provider raised RuntimeError: down"
    ):
        await source.get()
    provider.error = None
    assert (await source.get()).value == "t2"


async def test_a_refused_token_is_not_offered_again() -> None:
    provider = Provider()
    source = TokenSource(provider, provider.clock)
    first = await source.get()
    source.drop(Token("another"))
    assert await source.get() is first
    source.drop(first)
    assert (await source.get()).value == "t2"


async def test_after_the_first_token_a_refusal_is_retried() -> None:
    """What a running program logs in with may be away for a moment."""
    provider = Provider()
    provider.error = AuthenticationError("no credentials")
    source = TokenSource(provider, provider.clock)
    with pytest.raises(AuthenticationError):
        await source.get()
    provider.error = None
    first = await source.get()
    provider.now += 90
    provider.error = AuthenticationError("no credentials")
    with pytest.raises(BrokerConnectionError, match="AuthenticationError: no credentials"):
        await source.get()
    provider.error = None
    assert await source.get() is not first


async def test_what_is_said_about_a_missing_token() -> None:
    provider = Provider()
    source = TokenSource(provider, provider.clock)
    path = f"{__name__}:Provider"
    assert source.missing is None
    provider.error = BrokerConnectionError("HTTP 500")
    with pytest.raises(BrokerConnectionError):
        await source.get()
    assert source.missing == f"the token provider {path} failed: HTTP 500"
    provider.gate = asyncio.Event()
    waiting = asyncio.create_task(source.get())
    await asyncio.sleep(0)
    nothing = f"the token provider {path} has not returned a token"
    assert source.missing == f"{nothing}; before, the token provider {path} failed: HTTP 500"
    waiting.cancel()
    await asyncio.wait({waiting})
    assert source.missing.startswith(nothing)
    provider.error = None
    provider.gate.set()
    await source.get()
    assert source.missing is None


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        (Provider(), f"{__name__}:Provider"),
        (Provider().token, f"{__name__}:Provider.token"),
        (partial(Provider.token, Provider()), f"{__name__}:Provider.token"),
    ],
)
def test_a_provider_is_named_by_its_path(provider: Any, path: str) -> None:
    assert TokenSource(provider).provider == path


async def _source(expires_at: Any) -> tuple[TokenSource, list[int]]:
    asked: list[int] = []

    async def provide() -> Token:
        asked.append(1)
        return Token("secret-token", expires_at)

    return TokenSource(provide, lambda: 1000.0), asked


@pytest.mark.parametrize(
    ("expires_at", "calls"),
    [
        (datetime.fromtimestamp(1100, UTC), 1),
        (datetime.fromtimestamp(1100, timezone(timedelta(hours=5))), 1),
        (datetime.fromtimestamp(900, UTC), 2),  # it has ended
        (1100, 1),
        (float("inf"), 1),
    ],
)
async def test_times_at_which_a_token_ends(expires_at: Any, calls: int) -> None:
    source, asked = await _source(expires_at)
    await source.get()
    await source.get()
    assert len(asked) == calls


@pytest.mark.parametrize(
    ("expires_at", "words"),
    [
        (datetime(2030, 1, 1), "a datetime without a time zone: give a datetime with one"),  # noqa: DTZ001
        ("2030-01-01", "expires_at is a str: give seconds since the epoch, or a datetime"),
        (1_900_000_000_000, "expires_at=1900000000000 is in milliseconds: give seconds"),
    ],
)
async def test_what_is_no_time_at_which_a_token_ends(expires_at: Any, words: str) -> None:
    source, _ = await _source(expires_at)
    with pytest.raises(AuthenticationError, match=words) as caught:
        await source.get()
    assert "_source.<locals>.provide" in str(caught.value)
    assert "secret-token" not in str(caught.value)


async def test_a_provider_that_raises_cancelled_error_is_named() -> None:
    """This error in the place of a failure says nothing about the task that asks."""

    async def cancelled() -> Token:
        raise asyncio.CancelledError

    source = TokenSource(cancelled)
    with pytest.raises(BrokerConnectionError, match="cancelled raised CancelledError"):
        await source.get()


async def test_a_cancelled_request_for_a_token_is_cancelled() -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    asking = asyncio.create_task(TokenSource(provider).get())
    while not provider.asked:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
