"""The fixtures of the producer's tests; support.py has what they return."""

from __future__ import annotations

from asyncio import BaseEventLoop
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.testing.fake import FakeCluster
from tests.producer.support import (
    Bench,
    Look,
    OverTcp,
    outcomes_of,
    start_producer,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.producer.support import Outcomes, StartProducer, Values


@pytest.fixture(scope="module", autouse=True)
def asyncio_debug(request: pytest.FixtureRequest) -> Iterator[None]:
    """A call of an event loop in a thread that does not run it raises RuntimeError, as in asyncio's
    debug mode. That mode is slow, because it keeps a traceback of every handle and future: only
    modules with ``ASYNCIO_DEBUG = True`` have it."""
    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "ASYNCIO_DEBUG", False):
            patch.setenv("PYTHONASYNCIODEBUG", "1")
        for name in ("call_soon", "call_at"):
            patch.setattr(BaseEventLoop, name, _in_its_thread(getattr(BaseEventLoop, name)))
        yield


def _in_its_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    def checked(loop: BaseEventLoop, *args: Any, **options: Any) -> Any:
        loop._check_thread()  # type: ignore[attr-defined]
        return method(loop, *args, **options)

    return checked


@pytest.fixture
def producing() -> StartProducer:
    """``async with producing(fake, **options) as producer``: see :func:`start_producer`."""
    return start_producer


@pytest.fixture
def transacting() -> StartProducer:
    """``async with transacting(fake) as producer``: one with the transactional id "tx"."""
    return partial(start_producer, transactional_id="tx")


@pytest.fixture
def outcomes() -> Outcomes:
    """``await outcomes(deliveries)``: see :func:`outcomes_of`."""
    return outcomes_of


@pytest.fixture
def values() -> Values:
    """``values(fake, "t", 0)``: see :func:`values_of`."""
    return values_of


@pytest.fixture(params=[pytest.param(False, id="v1"), pytest.param(True, id="v2")])
def fake(request: pytest.FixtureRequest) -> FakeCluster:
    """A cluster with a topic ``t`` of six partitions. A test with this fixture runs twice: with
    transactions v1 (its id ends in ``[v1]``) and with transactions v2 (``[v2]``)."""
    cluster = FakeCluster(transactions_v2=request.param)
    cluster.round_trip_s = 0.001
    cluster.create_topic("t", 6, 3)
    return cluster


@pytest.fixture
def look() -> Look:
    return Look()


@pytest.fixture
def bench() -> type[Bench]:
    """``bench(leaders, **AccumulatorSettings)``: see :class:`Bench`."""
    return Bench


@pytest.fixture
def over_tcp() -> type[OverTcp]:
    """``async with over_tcp(fake) as dialer``: see :class:`OverTcp`."""
    return OverTcp
