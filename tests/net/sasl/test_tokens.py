from __future__ import annotations

import asyncio

import pytest

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.net.sasl.tokens import Token, TokenSource


class Provider:
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
        BrokerConnectionError, match="the provider Provider raised RuntimeError: down"
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
