"""The futures that :class:`~kafkaclient.SyncProducer` returns, and how threads wait for them."""

from __future__ import annotations

import logging
import math
import threading
from asyncio import _get_running_loop
from concurrent.futures import CancelledError, Future
from concurrent.futures._base import FINISHED, PENDING
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar

from kafkaclient.errors import ProducerClosedError, ProducerStateError
from kafkaclient.time_limit import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# --- Calls that wait for the producer's thread ----------------------------------------------------

T = TypeVar("T")

NOT_RESPONDING = "the producer's thread does not respond"


def within(call: Future[T], seconds: float | None) -> T:
    """The result of a call in the producer's thread. After ``seconds`` the call is cancelled, and
    TimeoutError raised."""
    try:
        return call.result(seconds)
    except TimeoutError:
        call.cancel()
        raise
    except CancelledError:  # the thread has ended
        raise ProducerClosedError("nothing was done: the SyncProducer is closed") from None


def check_may_wait(what: str, timeout: float | None = None) -> None:
    """Raise ProducerStateError if the calling thread must not wait, TypeError if ``timeout`` is not
    a number, ValueError if it is NaN."""
    if _get_running_loop() is not None:
        raise ProducerStateError(
            f"{what}: the call waits, and this thread runs an event loop, which would stand still; "
            "use kafkaclient.Producer in it, or asyncio.to_thread"
        )
    if timeout is not None:
        if not isinstance(timeout, (int, float)):
            raise TypeError(f"{what}: timeout must be a number of seconds, not {timeout!r}")
        if math.isnan(timeout):
            raise ValueError(f"{what}: timeout must be a number of seconds, not NaN")


# --- The futures that ``SyncProducer`` returns ----------------------------------------------------


_log = logging.getLogger(__name__)

_LOCKED_S = 1.0
"""Seconds that the producer's thread waits for locks that other threads hold, for each batch."""


_SLEEP_S = 1.0
"""Seconds after which a waiting thread wakes, to run signal handlers: a signal that comes in the
moment before a lock is waited for does not end the wait."""

_RLock: Any = type(threading.RLock())  # a class in C


class FutureCondition(_RLock):  # type: ignore[misc]
    """What the standard library uses of a future's ``_condition``.

    A signal handler that raises, such as Ctrl-C, can leave a ``threading.Condition`` locked for
    ever: its ``__enter__`` is Python code, and ends in the middle. ``with condition:`` is one
    call in C.
    """

    def __init__(self) -> None:
        self._sleepers: list[Any] = []

    def sleep(self, is_done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until ``is_done()``. It becomes true before :meth:`notify_all`. Raises TimeoutError
        after ``timeout`` seconds (None: no limit)."""
        sleeper = threading.Lock()
        sleeper.acquire()
        with self:
            if is_done():
                return
            self._sleepers.append(sleeper)
        try:
            deadline = None if timeout is None else monotonic() + timeout
            while not (sleeper.acquire(timeout=_slice(deadline)) or is_done()):
                if deadline is not None and monotonic() >= deadline:
                    raise TimeoutError
        finally:
            with self:
                if sleeper in self._sleepers:
                    self._sleepers.remove(sleeper)

    def notify_all(self) -> None:
        """Wake the threads in :meth:`sleep`."""
        with self:
            for sleeper in self._sleepers:
                sleeper.release()
            self._sleepers.clear()


class ThreadFuture(Future[T]):
    """A future of the producer's thread. A signal handler that raises in a thread that waits for it
    does not stop the producer's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._condition: Any = FutureCondition()

    def result(self, timeout: float | None = None) -> T:
        self._condition.sleep(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._condition.sleep(self.done, timeout)
        return super().exception(0)


class Outcome(Protocol):
    """A :class:`~kafkaclient.Delivery` or :class:`~kafkaclient.BulkDelivery` that is done. It
    reports a failure when it is freed before anybody has read it."""

    def result(self) -> Any: ...
    def exception(self) -> BaseException | None: ...


class FutureState:
    """What the futures of one producer thread share."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection inside may free, and so use, another future.
        self.lock: threading.RLock = threading.RLock()
        self.in_forked_child: bool = False
        """Whether this is a forked child, where the thread does not run."""

    def forked(self) -> None:
        self.lock = threading.RLock()  # the thread may have held the other
        self.in_forked_child = True


class SendFuture(Future[T]):
    """The outcome of a ``send`` or ``send_many``, as a ``concurrent.futures.Future``.

    :meth:`cancel` returns False: the record is sent. If the record fails, and the future is freed
    before its outcome was read (:meth:`result`, :meth:`exception`, :meth:`add_done_callback`), the
    failure is counted, logged and given to ``on_error``, as with :class:`~kafkaclient.Delivery`.
    Callbacks run in the producer's thread, which sends nothing meanwhile.
    """

    # A script creates many futures that it never waits for. So the constructor does not call the
    # base class: what a waiting thread or a callback needs is made when it is first used.
    _gate: FutureCondition | None = None
    """For threads in :meth:`result` and :meth:`exception`. Locked by ``with`` only."""
    _waitable: FutureCondition | None = None
    """For the base class's callbacks, ``concurrent.futures.wait`` and ``as_completed``. A thread
    that is interrupted in one of these two functions leaves it locked."""
    _outcome: Outcome | None = None
    _observed = False

    def __init__(self, state: FutureState) -> None:
        self._shared = state

    @property
    def _state(self) -> str:  # type: ignore[override]
        """What the base class, ``wait`` and ``as_completed`` read. In a forked child, a future of
        the parent has ended: it raises."""
        done = self._outcome is not None or self._shared.in_forked_child
        return FINISHED if done else PENDING

    # asyncio and concurrent.futures may read these two of a future that is done.
    @property
    def _result(self) -> Any:  # type: ignore[override]
        outcome = self._outcome
        failed = outcome is None or outcome.exception() is not None
        return None if outcome is None or failed else outcome.result()

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return None if self._outcome is None else self._outcome.exception()

    @property
    def _condition(self) -> FutureCondition:  # type: ignore[override]
        if self._waitable is None:
            with self._shared.lock:
                if self._waitable is None:
                    self._waiters: list[Any] = []
                    self._done_callbacks: list[Callable[[Any], object]] = []
                    self._waitable = FutureCondition()
        return self._waitable

    def __repr__(self) -> str:
        return f"<SendFuture {self._outcome!r}>" if self.done() else "<SendFuture pending>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("the future of a record cannot be copied or pickled")

    def cancel(self) -> bool:
        """Returns False: a record cannot be taken back."""
        return False

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> T:
        """Where the record was written; waits for it.

        Raises:
            KafkaError: the record failed.
            TimeoutError: it has no outcome after ``timeout`` seconds (None: no limit but the
                producer's own ``max.block.ms`` and ``delivery.timeout.ms``).
            ProducerStateError: a forked child waits for its parent's record, or the call waits in a
                thread that runs an event loop: use ``asyncio.wrap_future`` there.
        """
        found: T = self._awaited(timeout).result()
        return found

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the record failed with; None: it was written. Waits and raises as
        :meth:`result`."""
        return self._awaited(timeout).exception()

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn(future)`` in the producer's thread once there is an outcome; at once if there
        is one already."""
        self._observed = True
        super().add_done_callback(fn)
        if self._outcome is not None:
            self._outcome.exception()  # it counts as read

    def _awaited(self, timeout: float | None) -> Outcome:
        if self._outcome is None:
            if self._shared.in_forked_child:
                raise ProducerStateError(
                    "the record belongs to the process that sent it; a forked child does not learn "
                    "its outcome"
                )
            if _get_running_loop() is not None:
                raise ProducerStateError(
                    "the future has no outcome yet, and this thread runs an event loop, which must "
                    "not wait: await asyncio.wrap_future(future)"
                )
            with self._shared.lock:
                gate = self._gate = self._gate or FutureCondition()
            gate.sleep(self.done, timeout)
        assert self._outcome is not None
        return self._outcome

    def _finish(self, outcome: Outcome, deadline: float) -> None:
        """Set the outcome, wake all that wait, and call the callbacks.

        Waits for locks until ``deadline``. Then the thread that holds them was interrupted in
        ``concurrent.futures.wait`` or ``as_completed``, and does not wait any more.
        """
        waitable = self._condition
        locked = waitable.acquire(timeout=_until(deadline))
        try:
            self._outcome = outcome
            if self._gate is not None:
                self._gate.notify_all()
            error = outcome.exception() if self._observed or self._waiters else None
            for waiter in self._waiters:
                if _can_be_woken(waiter, deadline):
                    (waiter.add_result if error is None else waiter.add_exception)(self)
        finally:
            if locked:
                waitable.release()
        self._invoke_callbacks()  # type: ignore[attr-defined] # the base class's


def _can_be_woken(waiter: Any, deadline: float) -> bool:
    """Whether the event of a ``concurrent.futures.wait`` can be set: a thread that was interrupted
    in ``wait`` may have left it locked."""
    condition = getattr(getattr(waiter, "event", None), "_cond", None)
    if condition is not None:
        if not condition.acquire(timeout=_until(deadline)):
            return False
        condition.release()
    return True


def _slice(deadline: float | None) -> float:
    return _SLEEP_S if deadline is None else min(_until(deadline), _SLEEP_S)


def _until(deadline: float) -> float:
    return max(0.0, deadline - monotonic())


def finish(state: FutureState, outcomes: Sequence[tuple[SendFuture[Any], Outcome]]) -> None:
    """Give futures their outcomes, in the producer's thread."""
    waited = []
    with state.lock:
        for future, outcome in outcomes:
            if future._gate is None and future._waitable is None:  # nobody waits
                future._outcome = outcome
            else:
                waited.append((future, outcome))
    deadline = monotonic() + _LOCKED_S
    for future, outcome in waited:
        try:
            future._finish(outcome, deadline)
        except BaseException:  # noqa: BLE001 - a callback's; concurrent.futures has logged its other exceptions
            _log.exception("a callback of a record's future failed")
