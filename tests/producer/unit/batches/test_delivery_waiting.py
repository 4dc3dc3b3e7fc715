"""Tasks that await deliveries, and coroutines that are run by hand."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kafkaclient.errors import KafkaError, ProducerStateError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.types import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Any:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").new_event_loop
    return asyncio.new_event_loop


def sent(count: int, loop: Any = None) -> tuple[Any, list[Any]]:
    """The result of a batch, and the deliveries of its records."""
    batch_result = BatchResult("t")
    batch_result.partition, batch_result.loop = 3, loop
    deliveries = []
    for n in range(count):
        batch_result.count += 1
        deliveries.append(delivery_for_last(batch_result, 1000 + n))
    return batch_result, deliveries


def run(new_loop: Callable[[], Any], main: Any, *, debug: bool = True) -> Any:
    with asyncio.Runner(loop_factory=new_loop, debug=debug) as runner:
        return runner.run(main)


async def wait(delivery: Any) -> RecordMetadata:
    metadata: RecordMetadata = await delivery
    return metadata


@pytest.mark.parametrize("debug", [False, True])
def test_in_tasks(new_loop: Any, debug: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batch_result, (first, second) = sent(2, loop)
        shielded = asyncio.shield(first)
        cancelled = asyncio.create_task(wait(first))
        timed_out = asyncio.create_task(asyncio.wait_for(second, 0))
        patient = asyncio.gather(
            first, first, second, wait(second), asyncio.wait_for(first, 60), shielded
        )
        await asyncio.sleep(0)
        cancelled.cancel("enough")
        for victim, error in ((cancelled, asyncio.CancelledError), (timed_out, TimeoutError)):
            with pytest.raises(error) as raised:
                await victim
            if victim is cancelled:
                assert raised.value.args == ("enough",)
        assert not first.done()
        batch_result.resolve(7)
        outcomes = await patient
        assert [metadata.offset for metadata in outcomes] == [7, 7, 8, 8, 7, 7]
        assert outcomes[2] == RecordMetadata("t", 3, 8, 1001, 0)
        assert {type(metadata) for metadata in outcomes} == {RecordMetadata}
        assert (await first, await second) == (outcomes[0], outcomes[2])

    run(new_loop, main(), debug=debug)


def test_in_anyio(new_loop: Any) -> None:
    """anyio recognizes the cancellations that it has asked for by their message."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        batch_result, (delivery, other) = sent(2, loop)
        with pytest.raises(TimeoutError), anyio.fail_after(0.001):
            await delivery
        with anyio.move_on_after(0.001) as scope:
            await delivery
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(wait, delivery)
            await asyncio.sleep(0)
            group.cancel_scope.cancel()
        assert not delivery.done()
        batch_result.resolve(7)
        assert [(await each).offset for each in (delivery, other)] == [7, 8]

    run(new_loop, main())


def test_outside_of_tasks(new_loop: Any) -> None:
    loop = new_loop()
    try:
        batch_result, (delivery,) = sent(1, loop)
        loop.call_soon(batch_result.resolve, 5)
        assert loop.run_until_complete(delivery).offset == 5
        assert loop.run_until_complete(delivery).offset == 5
    finally:
        loop.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no eager task factory")
def test_in_eager_tasks(new_loop: Any) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        eager: Any = partial(asyncio.Task, eager_start=True)
        loop.set_task_factory(lambda loop, coro, **_: eager(coro, loop=loop))
        batch_result, (first, second) = sent(2, loop)
        tasks = [loop.create_task(wait(delivery)) for delivery in (first, second)]
        assert batch_result.waiting == 2, "they wait without a turn of the event loop"
        batch_result.resolve(0)
        done = loop.create_task(wait(first))
        assert done.done()
        assert [m.offset for m in await asyncio.gather(*tasks)] == [0, 1]

    run(new_loop, main())


def test_cancelled_between_the_outcome_and_the_wake(new_loop: Any) -> None:
    """The cancellation wins, as with asyncio's futures; the other task has its result."""

    async def main() -> None:
        batch_result, (first, second) = sent(2, asyncio.get_running_loop())
        cancelled, patient = (asyncio.create_task(wait(d)) for d in (first, second))
        await asyncio.sleep(0)
        batch_result.resolve(0)
        cancelled.cancel()
        assert (await patient).offset == 1
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        assert first.result().offset == 0

    run(new_loop, main())


def test_cancelled_after_a_split(new_loop: Any) -> None:
    async def main() -> None:
        batch_result, deliveries = sent(2, asyncio.get_running_loop())
        tasks = [asyncio.create_task(wait(delivery)) for delivery in deliveries]
        await asyncio.sleep(0)
        parts = [BatchResult("t"), BatchResult("t")]
        for part in parts:
            part.count = 1
        batch_result.split_into([0, 1], parts)
        assert [part.waiting for part in parts] == [1, 1]
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        assert [part.waiting for part in parts] == [0, 1]
        parts[1].resolve(9)
        assert (await tasks[1]).offset == 9

    run(new_loop, main())


def test_each_waiter_is_freed_when_it_is_woken(new_loop: Any) -> None:
    async def main() -> list[bool]:
        batch_result, deliveries = sent(4, asyncio.get_running_loop())
        tasks: list[weakref.ref[Any]] = []
        freed = []

        async def look_back(n: int) -> None:
            await deliveries[n]
            freed.append(all(task() is None for task in tasks[:n]))

        for n in range(4):
            tasks.append(weakref.ref(asyncio.create_task(look_back(n))))
            await asyncio.sleep(0)
        batch_result.resolve(0)
        while len(freed) < 4:
            await asyncio.sleep(0)
        return freed

    gc.disable()
    try:
        assert run(new_loop, main(), debug=False) == [True] * 4
    finally:
        gc.enable()


def test_an_error_gathers_no_frames(new_loop: Any) -> None:
    async def main() -> None:
        batch_result, (delivery,) = sent(1, asyncio.get_running_loop())
        tasks = [asyncio.create_task(wait(delivery)) for _ in range(20)]
        await asyncio.sleep(0)
        batch_result.fail(KafkaError("refused"))
        depths = set()
        for _ in range(20):
            for awaitable in (delivery, tasks.pop()):
                with pytest.raises(KafkaError, match="refused") as caught:
                    await awaitable
                depths.add(len(caught.traceback))
        assert max(depths) < 8
        assert batch_result.error.__traceback__ is None

    run(new_loop, main())


# --- the wrong event loop -----------------------------------------------------------------------


def test_another_event_loop(new_loop: Any) -> None:
    """In the same thread and in another one; nothing is registered there."""
    home = new_loop()
    batch_result, (delivery,) = sent(1, home)

    async def elsewhere() -> None:
        with pytest.raises(ProducerStateError, match="only in the event loop"):
            await delivery
        with pytest.raises(ProducerStateError, match="only in the event loop"):
            delivery.add_done_callback(print)
        assert not batch_result.waiting

    async def at_home() -> None:
        done: list[BaseException | None] = []

        def other_thread() -> None:
            try:
                run(new_loop, elsewhere())
                done.append(None)
            except BaseException as error:  # noqa: BLE001 - it is looked at below
                done.append(error)

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        assert done == [None]

    run(new_loop, elsewhere())
    home.run_until_complete(at_home())
    batch_result.resolve(0)
    assert run(new_loop, wait(delivery)).offset == 0, "the outcome is known everywhere"
    home.close()


def test_without_an_event_loop() -> None:
    batch_result, (delivery,) = sent(1)
    with pytest.raises(RuntimeError, match="no running event loop"):
        wait(delivery).send(None)
    batch_result.resolve(4)
    with pytest.raises(StopIteration) as stopped:
        wait(delivery).send(None)
    assert stopped.value.value.offset == 4


# --- run by hand --------------------------------------------------------------------------------


def test_by_hand(new_loop: Any) -> None:
    """Code that runs coroutines itself may resume them with a value, and look at what they give."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        batch_result, (delivery,) = sent(1, loop)
        direct, nested = delivery.__await__(), wait(delivery)
        waiters = [direct.send(None), nested.send(None)]
        assert [w._asyncio_future_blocking for w in waiters] == [True, True]
        assert [w.get_loop() for w in waiters] == [loop, loop]
        assert batch_result.waiting == 2
        batch_result.resolve(5)
        await asyncio.sleep(0)
        for resumed in (direct, nested):
            with pytest.raises(StopIteration) as stopped:
                resumed.send("a value")
            assert stopped.value.value.offset == 5
        called: list[Any] = []
        waiters[0].add_done_callback(called.append, context=None)
        assert called == []
        await asyncio.sleep(0)
        assert called == [waiters[0]], "it had been woken before"

    run(new_loop, main())


@pytest.mark.parametrize("end", ["throw", "close", "drop", "resume"])
@pytest.mark.parametrize("nested", [False, True])
def test_ended_by_hand(new_loop: Any, end: str, nested: bool) -> None:
    async def main() -> None:
        batch_result, (delivery,) = sent(1, asyncio.get_running_loop())
        waiting: Any = wait(delivery) if nested else delivery.__await__()
        waiting.send(None)
        if end == "throw":
            with pytest.raises(LookupError, match="mine"):
                waiting.throw(LookupError("mine"))
        elif end == "close":
            waiting.close()
        elif end == "resume":
            with pytest.raises(asyncio.InvalidStateError, match="still on its way"):
                waiting.send(None)
        del waiting
        assert batch_result.waiting == (end == "resume")
        batch_result.resolve(5)
        assert not batch_result.waiting
        assert (await delivery).offset == 5

    run(new_loop, main())


def test_a_task_that_is_freed_is_forgotten(new_loop: Any) -> None:
    """The garbage collector ends a coroutine that nothing refers to but its own waiter."""

    class Mark:
        pass

    async def holding(mark: Mark, delivery: Any) -> None:
        with suppress(GeneratorExit):
            await delivery
        del mark

    async def main() -> None:
        mark = Mark()
        ref = weakref.ref(mark)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        batch_result, (delivery,) = sent(1, loop)
        task = asyncio.create_task(holding(mark, delivery))
        await asyncio.sleep(0)
        del task, mark, delivery, batch_result
        gc.collect()
        assert ref() is None

    run(new_loop, main(), debug=False)
