"""A fake cluster of three brokers, and an admin client on it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin import Admin
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorate a test so that it runs in virtual time, with ``admin`` started."""

    wanted = inspect.signature(test).parameters
    given = dict.fromkeys(["new_admin", *(name for name in wanted if name != "admin")])

    @virtual_time
    @functools.wraps(test)
    async def run(**fixtures: Any) -> None:
        async with fixtures["new_admin"]() as admin:
            fixtures["admin"] = admin
            await test(**{name: fixtures[name] for name in wanted})

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in given]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster(3, partitions=2)


@pytest.fixture
def new_admin(fake: FakeCluster) -> Callable[..., Admin]:
    def make(**options: Any) -> Admin:
        wall_clock = options.pop("wall_clock", lambda: asyncio.get_running_loop().time())
        options = {"limits": "topic", "rng": Random(1), "wall_clock": wall_clock, **options}
        return Admin(fake.bootstrap, dialer=fake, **options)

    return make


@pytest.fixture
async def admin(new_admin: Callable[..., Admin]) -> AsyncIterator[Admin]:
    async with new_admin() as client:
        yield client


@pytest.fixture
def fake_virtual(fake: FakeCluster, new_admin: Callable[..., Admin]) -> tuple[FakeCluster, Admin]:
    """The fake, and a client to be started in virtual time."""
    return fake, new_admin()
