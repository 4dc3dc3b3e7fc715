"""Cancelling the future of a delivery, or what awaits the future, harms no other waiter."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from tests.producer.unit.batches.future_form import Form, turns, wait


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


def test_in_anyio(form: Form) -> None:
    """anyio recognizes the cancellations that it has asked for by their message."""

    async def main(loop: Any) -> None:
        batch_result, (delivery,) = form.sent(1, loop)
        future = form.future(delivery)
        with pytest.raises(TimeoutError), anyio.fail_after(0.001):
            await future
        with anyio.move_on_after(0.001) as scope:
            await future
        assert scope.cancelled_caught
        assert not future.done()
        batch_result.resolve(7)
        assert (await future).offset == 7

    form.run(main)
