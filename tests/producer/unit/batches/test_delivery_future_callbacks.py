"""Callbacks of the future of a delivery, and subclasses that translate its outcome."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.producer.unit.batches.future_form import LOST, Form, turns, wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.types import RecordMetadata


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
