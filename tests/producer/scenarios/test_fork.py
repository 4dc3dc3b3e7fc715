"""A forked child cannot use its parent's producer, and cannot disturb it."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import ProducerStateError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.fake import delay
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.producer.support import OverTcp, StartProducer


pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work()`` returns, or raises, in a forked child."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told: Any = work()
        except BaseException as error:  # noqa: BLE001
            told = AssertionError(f"in the child: {error!r}")
        os.write(theirs, pickle.dumps(told))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pickle.loads(pipe.read())  # noqa: S301
    os.waitpid(child, 0)
    if isinstance(told, AssertionError):
        raise told
    return told


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(ProducerStateError) as caught:
        call()
    return str(caught.value)


async def test_every_use_in_a_child_raises_a_clear_error(
    over_tcp: type[OverTcp], producing: StartProducer
) -> None:
    fake = one_topic(2, brokers=2)
    async with over_tcp(fake) as dialer, Producer(fake.bootstrap, dialer=dialer) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        producer.send_nowait("t", b"2", partition=0)  # its batch stays open, its tap too

        def use() -> list[str]:
            calls: list[Callable[[], Any]] = [
                lambda: producer.send_nowait("t", b"child", partition=0),
                lambda: asyncio.run(producer.send("t", b"child", partition=0)),
                lambda: asyncio.run(producer.send_and_wait("t", b"child")),
                lambda: asyncio.run(producer.send_many("t", [b"child"])),
                lambda: asyncio.run(producer.flush()),
                lambda: asyncio.run(producer.partitions_for("t")),
                lambda: asyncio.run(producer.start()),
                producer.metrics,
                producer.load,
            ]
            return [*map(refusal, calls), repr(producer)]

        for told in in_child(use):
            assert "belongs to the process that started it" in told
        assert in_child(lambda: asyncio.run(producer.stop())) == 0
        await producer.flush()
    assert [record.value for record in fake.log("t", 0)] == [b"1", b"2"]


@pytest.mark.parametrize("uvloop", [False, True])
def test_nothing_a_child_does_reaches_the_brokers(uvloop: bool, over_tcp: type[OverTcp]) -> None:
    """Not what it writes, closes or collects; nor what its copy of the event loop goes on with."""
    factory = pytest.importorskip("uvloop").new_event_loop if uvloop else asyncio.new_event_loop
    fake = one_topic(2, brokers=2)

    async def main() -> None:
        async with over_tcp(fake) as dialer, Producer(fake.bootstrap, dialer=dialer) as producer:
            for partition in (0, 1):
                await producer.send_and_wait("t", b"1", partition=partition)
            links = [*inspect(producer).router._links.values()]
            connections = [link.connection for link in links if link.connection]
            requests = len(fake.requests_of(ApiKey.PRODUCE))
            fake.control(ApiKey.PRODUCE, delay(0.2))
            on_its_way = await producer.send("t", b"2", partition=0)

            def disturb() -> int:
                for connection in connections:
                    connection._transport.write(b"\0\0\0\x08stray.. ")
                    connection.abort()
                with pytest.raises(OSError, match="forked child"):
                    asyncio.run(dialer.tcp.dial("127.0.0.1", 1, asyncio.Protocol))
                producer.__dict__.clear()
                gc.collect()
                return len(connections)

            assert in_child(disturb) > 1
            await on_its_way
            for partition in (0, 1):
                await producer.send_and_wait("t", b"3", partition=partition)
            assert not any(connection.closed for connection in connections)
            assert len(fake.requests_of(ApiKey.PRODUCE)) == requests + 3
        assert [record.value for record in fake.log("t", 0)] == [b"1", b"2", b"3"]

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


async def test_a_connection_ends_with_the_parent_though_a_child_lives_on(
    over_tcp: type[OverTcp],
) -> None:
    fake = one_topic(2, brokers=2)
    async with over_tcp(fake) as dialer:
        async with Producer(fake.bootstrap, dialer=dialer) as producer:
            await producer.send_and_wait("t", b"1", partition=0)
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
        try:
            async with asyncio.timeout(20):
                while fake.connections(0) + fake.connections(1):
                    await asyncio.sleep(0.01)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)  # noqa: ASYNC222 - it was killed


async def test_a_child_makes_a_producer_of_its_own(over_tcp: type[OverTcp]) -> None:
    fake = one_topic(2, brokers=2)

    async def own() -> str:
        cluster = one_topic(2, brokers=2)
        async with over_tcp(cluster) as dialer, Producer(cluster.bootstrap, dialer=dialer) as own:
            return repr(await own.send_and_wait("t", b"1"))

    async with over_tcp(fake) as dialer, Producer(fake.bootstrap, dialer=dialer) as producer:
        await producer.send_and_wait("t", b"1")
        assert "offset=0" in in_child(lambda: asyncio.run(own()))
