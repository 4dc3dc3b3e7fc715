"""A delivery as an asyncio future: the same in both event loops, and the same as
asyncio's own futures except where a task that awaits is cancelled."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest

from kafkaclient.errors import KafkaError, ProducerStateError
from kafkaclient.types import RecordMetadata
from tests.producer.unit.batches.future_form import LOST, Form, turns, wait

# --- what uses futures --------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True])
def test_asyncio_uses_it_as_a_future(form: Form, debug: bool) -> None:
    async def main(loop: Any) -> None:
        batch_result, deliveries = form.sent(2, loop)
        first, second = map(form.future, deliveries)
        assert asyncio.isfuture(first)
        assert not asyncio.isfuture(deliveries[0])
        assert asyncio.ensure_future(first) is first
        assert asyncio.wrap_future(first) is first
        assert first.get_loop() is loop
        waiting = [
            asyncio.gather(first, second, first),
            asyncio.create_task(asyncio.wait_for(first, 60)),
            asyncio.shield(second),
            asyncio.create_task(wait(first)),
            asyncio.create_task(wait(deliveries[1])),
        ]
        both = asyncio.create_task(asyncio.wait({first, second}))
        earliest = next(asyncio.as_completed([second]))
        await turns()
        assert not any(w.done() for w in (*waiting, first, both))
        batch_result.resolve(7, -1, 2)
        outcomes = await asyncio.gather(*waiting)
        one, two = RecordMetadata("t", 3, 7, 1000, 0, 2), RecordMetadata("t", 3, 8, 1001, 0, 2)
        assert outcomes == [[one, two, one], one, two, one, two]
        assert type(outcomes[1]) is RecordMetadata
        assert await both == ({first, second}, set())
        assert await earliest == two
        assert (first.result(), await first, first.exception()) == (one, one, None)
        assert first.done()
        assert not first.cancelled()
        assert not first.cancel()
        assert first.result() == one

    form.run(main, debug=debug)
    assert not form.reported


def test_run_until_complete(form: Form) -> None:
    loop = form.new_loop()
    try:
        batch_result, (delivery,) = form.sent(1, loop)
        future = form.future(delivery)
        loop.call_soon(batch_result.resolve, 5)
        assert loop.run_until_complete(future).offset == 5
        assert loop.run_until_complete(future).offset == 5
        assert loop.run_until_complete(form.future(delivery)).offset == 5
    finally:
        loop.close()


def test_a_failure(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = form.future(delivery)
        with pytest.raises(asyncio.InvalidStateError):
            future.result()
        with pytest.raises(asyncio.InvalidStateError):
            future.exception()
        users = [
            asyncio.gather(future),
            asyncio.shield(future),
            asyncio.create_task(asyncio.wait_for(future, 60)),
            asyncio.create_task(wait(future)),
        ]
        await turns()
        batch_result.fail(LOST)
        outcomes = await asyncio.gather(*users, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["lost"] * 4
        error = future.exception()
        assert error is future.exception(), "as with asyncio's futures"
        assert error is not LOST, "it would keep the frames of all callers"
        with pytest.raises(KafkaError, match="lost") as raised:
            await future
        assert raised.value is error

    form.run(main)
    assert not form.reported


def test_code_that_resumes_the_future_by_hand(form: Form) -> None:
    """As ``asyncio.Future.__await__`` does: yield the future itself to the task."""

    class ByHand:
        def __init__(self, future: Any) -> None:
            self.future = future

        def __await__(self) -> Any:
            self.future._asyncio_future_blocking = True
            yield self.future
            return self.future.result()

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        task = asyncio.create_task(wait(ByHand(form.future(delivery))))
        await turns()
        batch_result.resolve(5)
        assert (await task).offset == 5

    form.run(main)


# --- failures that are not read -----------------------------------------------------------------


@pytest.mark.parametrize("use", ["drop", "callback", "cancel", "result", "exception", "await"])
def test_a_failure_that_is_not_read_is_reported(form: Form, use: str) -> None:
    unseen: list[int] = []

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop, lambda *given: unseen.append(given[2]))
        future = form.future(delivery)
        del delivery
        task = None
        if use == "callback":
            future.add_done_callback(lambda _: None)
        elif use == "cancel":
            future.cancel()
        elif use == "await":
            task = asyncio.create_task(wait(future))
            await turns()
        batch_result.fail(LOST)
        if task is not None:
            await asyncio.wait([task])
            assert task.exception() is not None
        elif use == "result":
            with pytest.raises(KafkaError):
                future.result()
        elif use == "exception":
            assert future.exception() is not None
        await turns()
        del future, task
        gc.collect()

    form.run(main, debug=False)
    assert unseen == ([1] if use in ("drop", "callback", "cancel") else [])


# --- the object ---------------------------------------------------------------------------------


def test_it_cannot_be_copied(form: Form) -> None:
    _, (delivery,) = form.sent(1)
    future = form.future(delivery)
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            make(future)


def test_it_is_freed_with_what_it_is_part_of(form: Form) -> None:
    """Also after its error was raised: the traceback leads back to the future."""

    class Mark:
        pass

    async def main(loop: Any) -> None:
        refs = []
        for fails in (False, True):
            mark = Mark()
            batch_result, (delivery,) = form.sent(1, loop)
            future = form.future(delivery)
            future.add_done_callback(lambda _, held=(mark, future): None)
            refs += [weakref.ref(mark), weakref.ref(future)]
            if fails:
                await turns()
                batch_result.fail(LOST)

                def read(future: Any, _mark: Mark = mark) -> None:
                    with pytest.raises(KafkaError):
                        future.result()

                read(future)
                await turns()
                del read
            del mark, batch_result, delivery, future
        gc.collect()
        assert [ref() for ref in refs] == [None] * 4

    form.run(main, debug=False)


def test_another_event_loop(form: Form) -> None:
    home = form.new_loop()
    batch_result, (delivery,) = form.sent(1, home)
    future = form.future(delivery)

    async def elsewhere(loop: Any) -> None:
        with pytest.raises(ProducerStateError, match="only in the event loop"):
            await future
        with pytest.raises(ProducerStateError, match="only in the event loop"):
            future.add_done_callback(print)
        # wait_for awaits it itself from Python 3.12 on.
        with pytest.raises((ValueError, ProducerStateError), match="loop"):
            await asyncio.wait_for(future, 1)
        assert not batch_result.waiting

    form.run(elsewhere)
    thread = threading.Thread(target=form.run, args=(elsewhere,))
    thread.start()
    thread.join()
    batch_result.resolve(0)

    async def read(loop: Any) -> None:
        assert (await future).offset == 0, "the outcome is known everywhere"

    form.run(read)
    home.close()


def test_without_an_event_loop(form: Form) -> None:
    batch_result, (delivery,) = form.sent(1)
    future = form.future(delivery)
    with pytest.raises(RuntimeError, match="no running event loop"):
        future.add_done_callback(print)
    with pytest.raises(RuntimeError, match="no running event loop"):
        future.get_loop()
    batch_result.resolve(4)
    assert future.result().offset == 4
