"""What ``send`` returns is a future to asyncio; nothing leaves it pending."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import uvloop
from aiokafka import errors as theirs

from kafkaclient import RecordMetadata as OurMetadata
from kafkaclient.aiokafka.futures import SendFuture, UnacknowledgedFuture, future_class
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.aiokafka_dropin.support import dropin

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import Delivery


def cluster() -> FakeCluster:
    fake = FakeCluster(1)
    fake.round_trip_s = 0.01
    fake.create_topic("t", 1)
    return fake


@virtual_time
async def test_every_way_to_wait() -> None:
    async with dropin(cluster()) as producer:

        async def send() -> Any:
            return await producer.send("t", b"v")

        assert asyncio.isfuture(await send())
        assert (await (await send())).offset == 1
        assert (await asyncio.wait_for(await send(), 1)).offset == 2
        assert (await asyncio.shield(await send())).offset == 3
        assert [m.offset for m in await asyncio.gather(await send(), await send())] == [4, 5]
        done, pending = await asyncio.wait({await send(), await send()})
        assert (sorted(f.result().offset for f in done), pending) == ([6, 7], set())
        assert [(await f).offset for f in asyncio.as_completed([await send()])] == [8]
        assert (await asyncio.ensure_future(await send())).offset == 9
        seen: list[Any] = []
        future = await send()
        future.add_done_callback(seen.append)
        await future
        await asyncio.sleep(0)
        assert seen == [future]
        assert future.exception() is None
        assert future.get_loop() is asyncio.get_running_loop()


@virtual_time
async def test_anyios_timeouts() -> None:
    """FastStream and FastAPI wait inside of anyio's scopes."""
    fake = cluster()
    fake.delay_produce(0, 0.5)
    async with dropin(fake) as producer:
        future = await producer.send("t", b"v")
        with anyio.move_on_after(0.05) as scope:
            await future
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(0.05):
            await producer.send_and_wait("t", b"v")
    assert len(fake.log("t", 0)) == 2


@virtual_time
async def test_to_cancel_the_future_takes_no_record_back() -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        future = await producer.send("t", b"v")
        assert future.cancel()
        assert future.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await future
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(await producer.send("t", b"w"), 0.001)
    assert [record.value for record in fake.log("t", 0)] == [b"v", b"w"]


@virtual_time
async def test_a_failed_record_raises_in_every_way() -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        fake.fail_produce("t", 0, 87, times=3)
        future = await producer.send("t", b"v")
        done, _ = await asyncio.wait([future])
        assert done == {future}
        assert isinstance(future.exception(), theirs.KafkaError)
        for _ in range(2):
            with pytest.raises(theirs.UnknownError):
                await future
        with pytest.raises(theirs.KafkaError):
            await asyncio.wait_for(await producer.send("t", b"v"), 1)


@virtual_time
async def test_a_callback_that_raises_stops_no_other() -> None:
    handled: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _l, context: handled.append(context))

    def defective(_: object) -> None:
        raise LookupError("a defect of the caller's")

    async with dropin(cluster()) as producer:
        first, second = [await producer.send("t", b"v") for _ in range(2)]
        seen: list[Any] = []
        first.add_done_callback(defective)
        first.add_done_callback(seen.append)
        second.add_done_callback(seen.append)
        assert len(await asyncio.wait_for(asyncio.gather(first, second), 1)) == 2
        await asyncio.sleep(0)
        assert seen == [first, second]
    assert [str(context["exception"]) for context in handled] == ["a defect of the caller's"]


@pytest.mark.parametrize("outcome", ["written", "failed"])
@virtual_time
async def test_a_defect_of_the_translation_ends_the_future(outcome: str) -> None:
    class Defective(SendFuture):
        __slots__ = ()

        def _translate_result(self, metadata: Any) -> Any:
            return super()._translate_result(metadata[:2])

        def _translate_error(self, _error: Any) -> Any:
            return super()._translate_error(None)  # type: ignore[arg-type]

    fake = cluster()
    async with dropin(fake) as producer:
        producer._future_of = Defective  # type: ignore[assignment]
        if outcome == "failed":
            fake.fail_produce("t", 0, 87)
        future = await producer.send("t", b"v")
        done, _ = await asyncio.wait([future], timeout=1)
        assert done == {future}
        with pytest.raises((ValueError, AttributeError)):
            await future


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_on_a_real_event_loop(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        fake = cluster()
        async with dropin(fake, linger_ms=1) as producer:
            futures = [await producer.send("t", b"v", partition=0) for _ in range(3)]
            done, pending = await asyncio.wait(futures, timeout=10)
            assert (len(done), len(pending)) == (3, 0)
            assert [(await future).offset for future in futures] == [0, 1, 2]
            fake.fail_produce("t", 0, 87)
            failed = await producer.send("t", b"v", partition=0)
            with pytest.raises(theirs.KafkaError):
                await asyncio.wait_for(asyncio.shield(failed), 10)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_the_class_follows_acks() -> None:
    kinds: list[Any] = [future_class(acks) for acks in (0, 1, -1)]
    assert kinds == [UnacknowledgedFuture, SendFuture, SendFuture]


@pytest.mark.parametrize(
    ("ours", "timestamp_type", "log_start_offset"),
    [
        (OurMetadata("t", 1, 5, 9, 0, 3), 0, 3),
        (OurMetadata("t", 1, 5, 9, 1, 0), 1, 0),
        (OurMetadata("t", 1, -1, 9, -1, -1), 0, None),
    ],
)
@virtual_time
async def test_timestamp_type_and_log_start_offset(
    ours: OurMetadata, timestamp_type: int, log_start_offset: int | None
) -> None:
    class Done(SendFuture):
        __slots__ = ()

        def _translate_result(self, _metadata: Any) -> Any:
            return super()._translate_result(ours)

    async with dropin(cluster()) as producer:
        delivery: Delivery = await producer._send("t", b"v")
        found = await Done(delivery)
    assert found == ("t", 1, ("t", 1), ours.offset, 9, timestamp_type, log_start_offset)
