"""The futures of ``SyncProducer`` with the standard library."""

from __future__ import annotations

import asyncio
import copy
import threading
from concurrent.futures import FIRST_EXCEPTION, as_completed, wait
from inspect import isfunction
from types import SimpleNamespace
from typing import Any

import pytest

from kafkaclient import SyncProducer
from kafkaclient.errors import (
    PolicyViolationError,
    ProducerClosedError,
    ProducerStateError,
)
from kafkaclient.sync.futures import FutureCondition, FutureState, SendFuture
from tests.sync.support import POLICY_VIOLATION, one_topic, running, stalled, values


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_callback_that_raises_holds_up_no_other_future(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise error

    fake = one_topic()
    with running(fake, linger_ms=100) as producer:
        producer.send_and_wait("t", b"0")
        fake.stall_broker(0)
        first = producer.send("t", b"1")
        first.add_done_callback(fail)
        second = producer.send("t", b"2")
        second.add_done_callback(lambda _: None)
        fake.resume_broker(0)
        assert second.result(20).offset == 2
        assert producer.send_and_wait("t", b"3").offset == 3
    assert "a callback of a record's future failed" in caplog.text


def test_futures_work_with_what_the_standard_library_has() -> None:
    fake = one_topic()
    called: list[str] = []
    with running(fake) as producer:
        futures = [producer.send("t", b"%d" % n) for n in range(10)]
        assert wait(futures, 10).not_done == set()
        assert set(as_completed(futures, 10)) == set(futures)
        fake.stall_broker(0)
        future = producer.send("t", b"x")
        assert not future.cancel()
        assert not future.cancelled()
        future.add_done_callback(lambda _: called.append(threading.current_thread().name))
        fake.resume_broker(0)
        future.result(10)
        producer.flush()
        assert called[0].startswith("kafkaclient-")
        future.add_done_callback(lambda f: called.append(f"{f.result().offset}"))
        assert called[1] == "10"
        assert "offset=10" in repr(future)
        with pytest.raises(TypeError):
            copy.copy(future)
        with pytest.raises(TypeError):
            copy.copy(producer)


def test_the_first_failure_ends_a_wait_for_it() -> None:
    fake, producer = stalled(max_request_size=1000, max_block_ms=500)
    pending, failing = producer.send("t", b"x"), producer.send("unknown", b"x")
    found = wait([pending, failing], 10, return_when=FIRST_EXCEPTION)
    assert found.done == {failing}
    fake.resume_broker(0)
    producer.close()


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_newer_versions_of_asyncio_can_await_the_future(
    done: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read the fields of a concurrent future that is done (python/cpython#134173)."""

    def copy_state(source: Any, dest: asyncio.Future[Any]) -> None:
        if dest.cancelled():
            return
        assert source._state == "FINISHED"
        result, exception = source._result, source._exception
        if exception is not None:
            dest.set_exception(exception)
        else:
            dest.set_result(result)

    monkeypatch.setattr(asyncio.futures, "_copy_future_state", copy_state)
    fake, unseen = one_topic(), []
    if fails:
        fake.fail_produce("t", 0, POLICY_VIOLATION)
    producer = SyncProducer(fake.bootstrap, dialer=fake, on_error=unseen.append)
    future = producer.send("t", b"x")
    if done:
        await asyncio.to_thread(producer.flush)
    waited = asyncio.wait_for(asyncio.wrap_future(future), 5)
    if fails:
        with pytest.raises(PolicyViolationError):
            await waited
    else:
        assert (await waited).offset == 0
    assert await asyncio.to_thread(producer.close) == 0
    assert unseen == []


def test_a_callback_that_would_wait_gets_a_clear_error() -> None:
    fake = one_topic()
    told: list[BaseException | None] = []
    with running(fake) as producer:

        def send_again(_: object) -> None:
            again = producer.send("t", b"2")
            try:
                again.result()
            except ProducerStateError as error:
                told.append(error)

        producer.send("t", b"1").add_done_callback(send_again)
        producer.flush()
    assert len(told) == 1
    assert values(fake) == [b"1", b"2"]


def _acquired_by_a_thread_that_has_ended(lock: Any) -> None:
    """As a signal handler that raises in the middle of ``concurrent.futures.wait`` leaves it."""
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()


def test_entering_the_lock_of_a_future_is_one_call_in_c() -> None:
    """So a signal handler cannot raise between the lock and the block of a ``with``."""
    assert not isfunction(FutureCondition.__enter__)
    assert not isfunction(FutureCondition.__exit__)


def test_a_future_that_stays_locked_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaclient.sync.futures._LOCKED_S", 0.05)
    fake = one_topic()
    with running(fake, linger_ms=200) as producer:
        producer.send_and_wait("t", b"0")
        fake.stall_broker(0)
        locked, free = producer.send("t", b"1"), producer.send("t", b"2")
        _acquired_by_a_thread_that_has_ended(locked._condition)
        fake.resume_broker(0)
        assert free.result(20).offset == 2
        assert locked.result(20).offset == 1
        assert producer.send_and_wait("t", b"3").offset == 3


def test_an_event_that_stays_locked_holds_up_no_future(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaclient.sync.futures._LOCKED_S", 0.05)
    fake = one_topic()
    with running(fake, linger_ms=200) as producer:
        producer.send_and_wait("t", b"0")
        fake.stall_broker(0)
        future = producer.send("t", b"1")
        event = threading.Event()
        _acquired_by_a_thread_that_has_ended(event._cond)  # type: ignore[attr-defined]
        with future._condition:
            future._waiters.append(SimpleNamespace(event=event, add_result=lambda _: event.set()))
        fake.resume_broker(0)
        assert future.result(20).offset == 1
        assert producer.send_and_wait("t", b"2").offset == 2


def test_a_wait_ends_in_time_and_can_be_repeated() -> None:
    _, producer = stalled(max_request_size=1000)
    future = producer.send("t", b"x")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            future.result(0.01)
    assert wait([future], 0.01).not_done == {future}
    producer.close(0)
    assert isinstance(future.exception(0), ProducerClosedError)


def test_in_a_forked_child_a_future_of_the_parent_is_not_waited_for() -> None:
    state = FutureState()
    future: SendFuture[Any] = SendFuture(state)
    state.forked()
    assert wait([future], 5).done == {future}
    assert list(as_completed([future], 5)) == [future]
    with pytest.raises(ProducerStateError, match="forked child"):
        future.result()
