"""A delivery as an asyncio future: the same in both forms, in both event loops, and the same as
asyncio's own futures except where a task that awaits is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import pickle
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import KafkaError, ProducerStateError
from kafkaclient.types import RecordMetadata
from tests.forms import load_form

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOST = KafkaError("lost")


class Form:
    """One form of the modules, and an event loop of one kind."""

    def __init__(self, *, compiled: bool, new_loop: Callable[[], Any]) -> None:
        load = partial(load_form, compiled=compiled)
        self.batch_result = load("kafkaclient.producer.batches.delivery").BatchResult
        self.future = load("kafkaclient.producer.batches.delivery_future").DeliveryFuture
        self.new_loop = new_loop
        self.reported: list[Any] = []
        """The contexts that the event loop's exception handler was called with."""

    def sent(self, count: int, loop: Any = None, unseen: Any = None) -> tuple[Any, list[Any]]:
        """The result of a batch, and the deliveries of its records."""
        batch_result = self.batch_result("t", unseen)
        batch_result.partition, batch_result.loop = 3, loop
        deliveries = []
        for n in range(count):
            batch_result.count += 1
            deliveries.append(batch_result.delivery_for_last(1000 + n))
        return batch_result, deliveries

    def split(self, batch_result: Any) -> list[Any]:
        """Split a batch, each record into a batch of its own."""
        parts = []
        for _ in range(batch_result.count):
            part = self.batch_result("t", batch_result.on_unseen)
            part.partition, part.loop, part.count = 3, batch_result.loop, 1
            parts.append(part)
        batch_result.split_into(list(range(batch_result.count)), parts)
        return parts

    def run(self, main: Callable[[Any], Coroutine[Any, Any, None]], *, debug: bool = True) -> None:
        """Run ``main(loop)``."""

        async def reporting() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: self.reported.append(context))
            await main(loop)

        with asyncio.Runner(loop_factory=self.new_loop, debug=debug) as runner:
            runner.run(reporting())


@pytest.fixture(params=["compiled", "pure"])
def form(request: pytest.FixtureRequest, new_loop: Any) -> Form:
    return Form(compiled=request.param == "compiled", new_loop=new_loop)


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Any:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").new_event_loop
    return asyncio.new_event_loop


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def wait(awaitable: Any) -> Any:
    return await awaitable


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


# --- cancelling ---------------------------------------------------------------------------------


def test_cancelling_harms_no_other(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, (delivery, _) = form.sent(2, loop)
        future, other = form.future(delivery), form.future(delivery)
        called: list[Any] = []
        future.add_done_callback(called.append)
        ended = asyncio.create_task(wait(future))
        patient = asyncio.gather(wait(delivery), wait(other), asyncio.shield(other))
        await turns()
        assert future.cancel("enough")
        assert not future.cancel()
        assert (future.done(), future.cancelled(), called) == (True, True, [])
        for read in (future.result, future.exception):
            with pytest.raises(asyncio.CancelledError, match="enough"):
                read()
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await future
        await turns()
        assert called == [future]
        assert ended.cancelled(), "as with asyncio's futures"
        assert not any(w.done() for w in (delivery, other, patient))
        batch_result.resolve(7)
        assert [metadata.offset for metadata in await patient] == [7, 7, 7]
        assert (future.cancelled(), called) == (True, [future])
        assert "cancelled" in repr(future)

    form.run(main)
    assert not form.reported


@pytest.mark.parametrize("timeout", [0, 0.001])
def test_a_timeout_of_wait_for(form: Form, timeout: float) -> None:
    """Before Python 3.12 it cancels the future, and waits until the future is done."""

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = form.future(delivery)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, timeout)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(form.future(delivery)), timeout)
        assert not delivery.done()
        batch_result.resolve(7)
        assert (await delivery).offset == 7

    form.run(main)


def test_a_gather_that_is_cancelled(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, deliveries = form.sent(2, loop)
        for return_exceptions in (False, True):
            futures = list(map(form.future, deliveries))
            gathered = asyncio.gather(*futures, return_exceptions=return_exceptions)
            gathered.cancel("enough")
            with pytest.raises(asyncio.CancelledError):
                await gathered
            assert all(future.cancelled() for future in futures)
        futures = list(map(form.future, deliveries))
        futures[0].cancel()
        gathered = asyncio.gather(*futures, return_exceptions=True)
        await turns()
        batch_result.resolve(7)
        cancelled, metadata = await gathered
        assert isinstance(cancelled, asyncio.CancelledError)
        assert metadata.offset == 8

    form.run(main)


def test_cancelling_a_task_does_not_cancel_the_future_that_it_awaits(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = form.future(delivery)
        cancelled, patient = (asyncio.create_task(wait(future)) for _ in range(2))
        await turns()
        cancelled.cancel()
        await turns()
        assert cancelled.cancelled()
        assert not future.done()
        batch_result.resolve(7)
        assert (await patient).offset == 7

    form.run(main)


def test_what_waits_no_more_is_forgotten(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, (delivery, _) = form.sent(2, loop)
        future = form.future(delivery)
        future.add_done_callback(print)
        assert batch_result.waiting == 1
        assert future.remove_done_callback(print) == 1
        assert batch_result.waiting == 0
        task = asyncio.create_task(wait(future))
        await turns()
        assert batch_result.waiting == 1
        task.cancel()
        await turns()
        assert batch_result.waiting == 0
        future.add_done_callback(form.reported.append)
        future.cancel()
        assert batch_result.waiting == 0
        batch_result.resolve(0)
        await turns()
        assert form.reported == [future]

    form.run(main)


# --- callbacks ----------------------------------------------------------------------------------


def test_callbacks_run_in_order_and_in_their_context(form: Form) -> None:
    variable = contextvars.ContextVar("variable", default="none")

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = form.future(delivery)
        called: list[tuple[int, str]] = []

        def note(n: int, noted: Any) -> None:
            assert noted is future
            called.append((n, variable.get()))

        own = contextvars.copy_context()
        own.run(variable.set, "own")
        variable.set("current")
        future.add_done_callback(partial(note, 1))
        future.add_done_callback(partial(note, 2), context=own)
        variable.set("later")
        batch_result.resolve(0)
        assert called == []
        future.add_done_callback(partial(note, 3), context=own)
        future.add_done_callback(partial(note, 4))
        await asyncio.sleep(0)
        assert called == [(1, "current"), (2, "own"), (3, "own"), (4, "later")]

    form.run(main)


def test_removed_callbacks(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future, other = form.future(delivery), form.future(delivery)
        called: list[Any] = []
        for callback in (called.append, print, called.append):
            future.add_done_callback(callback)
        other.add_done_callback(called.append)
        assert future.remove_done_callback(called.append) == 2
        assert future.remove_done_callback(called.append) == 0
        assert future.remove_done_callback(print) == 1
        (part,) = form.split(batch_result)
        part.resolve(0)
        await turns()
        assert called == [other]

    form.run(main)


@pytest.mark.parametrize("end", ["resolve", "fail", "cancel", "afterwards"])
def test_a_callback_that_fails_strands_no_other(form: Form, end: str) -> None:
    def defect(_: Any) -> None:
        raise RuntimeError("a defect of the application")

    async def main(loop: Any) -> None:
        batch_result, deliveries = form.sent(2, loop)
        future, other = map(form.future, deliveries)
        called: list[Any] = []
        if end == "afterwards":
            batch_result.resolve(0)
        future.add_done_callback(defect)
        future.add_done_callback(called.append)
        other.add_done_callback(called.append)
        waiting = [asyncio.create_task(wait(f)) for f in (future, other, deliveries[0])]
        await turns()
        if end == "cancel":
            future.cancel()
        batch_result.fail(LOST) if end == "fail" else batch_result.resolve(0)
        await asyncio.wait(waiting)
        await turns()
        assert called == [future, other]
        assert [str(context["exception"]) for context in form.reported] == [
            "a defect of the application"
        ]
        for task in waiting:
            assert task.cancelled() or task.exception() is None or end == "fail"

    form.run(main)


def test_a_program_that_is_told_to_end_may_go_on(form: Form) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    loop = form.new_loop()
    batch_result, deliveries = form.sent(2, loop)
    first, second = map(form.future, deliveries)
    called: list[Any] = []
    first.add_done_callback(interrupt)
    first.add_done_callback(called.append)
    second.add_done_callback(called.append)
    loop.call_soon(batch_result.resolve, 0)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(turns(10))
    loop.run_until_complete(turns(10))
    loop.close()
    assert set(called) == {first, second}


# --- translated outcomes ------------------------------------------------------------------------


def translating(form: Form, result: Callable[[Any], Any], error: Callable[[Any], Any]) -> Any:
    class Translated(form.future):  # type: ignore[misc, name-defined]
        __slots__ = ()

        def _translate_result(self, metadata: RecordMetadata) -> Any:
            return result(metadata)

        def _translate_error(self, error_: KafkaError) -> Any:
            return error(error_)

    return Translated


def test_a_translation_is_made_once_and_only_when_it_is_read(form: Form) -> None:
    translated: list[Any] = []

    def result(metadata: RecordMetadata) -> str:
        translated.append(metadata)
        return f"at {metadata.offset}"

    def error(given: KafkaError) -> Exception:
        translated.append(given)
        return OSError(str(given))

    async def main(loop: Any) -> None:
        kind = translating(form, result, error)
        batch_result, deliveries = form.sent(3, loop)
        futures = list(map(kind, deliveries))
        task = asyncio.create_task(wait(futures[1]))
        await turns()
        batch_result.resolve(7)
        assert await task == await futures[1] == futures[1].result() == "at 8"
        assert futures[1].exception() is None
        assert [metadata.offset for metadata in translated] == [8]
        batch_result, (delivery,) = form.sent(1, loop)
        future = kind(delivery)
        batch_result.fail(LOST)
        with pytest.raises(OSError, match="lost") as raised:
            await future
        assert future.exception() is raised.value
        assert len(translated) == 2
        assert delivery.exception() is LOST

    form.run(main)


@pytest.mark.parametrize("failed", [False, True])
def test_a_defect_of_a_translation_is_the_outcome(
    form: Form, failed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing stays pending: what waits gets the defect, and the log says where it is."""

    def defect(given: Any) -> Any:
        raise ZeroDivisionError("a defect of the translation")

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = translating(form, defect, defect)(delivery)
        users = [
            asyncio.gather(future),
            asyncio.shield(future),
            asyncio.create_task(asyncio.wait_for(future, 60)),
            asyncio.create_task(wait(future)),
        ]
        await turns()
        batch_result.fail(LOST) if failed else batch_result.resolve(0)
        outcomes = await asyncio.wait_for(asyncio.gather(*users, return_exceptions=True), 5)
        assert {type(outcome) for outcome in outcomes} == {ZeroDivisionError}
        assert type(future.exception()) is ZeroDivisionError

    form.run(main)
    assert not form.reported
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize("ended", [asyncio.CancelledError, StopIteration])
def test_a_translation_cannot_pretend_an_end(
    form: Form, ended: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio would take such an error for the end of a task or of a generator, and wait on."""

    def defect(_given: Any) -> Any:
        raise ended

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = translating(form, defect, defect)(delivery)
        users = [asyncio.gather(future), asyncio.shield(future), asyncio.create_task(wait(future))]
        await turns()
        batch_result.resolve(0)
        outcomes = await asyncio.wait_for(asyncio.gather(*users, return_exceptions=True), 5)
        assert {type(outcome) for outcome in outcomes} == {RuntimeError}

    form.run(main)
    assert len(caplog.records) == 1


def test_it_is_made_of_a_delivery(form: Form) -> None:
    for other in (None, 5, form.future(form.sent(1)[1][0])):
        with pytest.raises(TypeError, match="made of a Delivery"):
            form.future(other)
    unmade = form.future.__new__(form.future)
    for method in ("done", "result", "exception", "cancel", "get_loop"):
        with pytest.raises(AttributeError):
            getattr(unmade, method)()


def test_an_error_must_be_translated_to_an_exception(form: Form) -> None:
    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = translating(form, str, lambda _: None)(delivery)
        batch_result.fail(LOST)
        with pytest.raises(TypeError, match="not to an exception"):
            await future

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
        with pytest.raises(ValueError, match="loop"):
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
