"""The futures that :class:`~kafkaclient.SyncProducer` returns."""

from __future__ import annotations

import logging
import threading
from asyncio import _get_running_loop
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar

from kafkaclient.errors import ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Outcome(Protocol):
    """A :class:`~kafkaclient.Delivery` or :class:`~kafkaclient.BulkDelivery` that is done. It
    reports a failure when it is freed before anybody has read it."""

    def result(self) -> Any: ...
    def exception(self) -> BaseException | None: ...


class Home:
    """What the futures of one producer thread share."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection inside may free, and so use, another future.
        self.lock: threading.RLock = threading.RLock()
        self.left_behind: bool = False
        """Whether this is a forked child, where the thread does not run."""

    def forked(self) -> None:
        self.lock = threading.RLock()  # the thread may have held the other
        self.left_behind = True


class SendFuture(Future[T]):
    """The outcome of a ``send`` or ``send_many``, as a ``concurrent.futures.Future``.

    :meth:`cancel` returns False: the record is sent. If the record fails, and the future is freed
    before its outcome was read (:meth:`result`, :meth:`exception`, :meth:`add_done_callback`), the
    failure is counted, logged and given to ``on_error``, as with :class:`~kafkaclient.Delivery`.
    Callbacks run in the producer's thread, which sends nothing meanwhile.
    """

    # A script creates many futures that it never waits for. So the constructor does not call the
    # base class: the base class's attributes are made with its Condition, when they are first used.
    _state = PENDING
    _made: threading.Condition | None = None
    _outcome: Outcome
    _observed = False

    def __init__(self, home: Home) -> None:
        self._home = home

    # asyncio and concurrent.futures may read these two of a future that is done.
    @property
    def _result(self) -> Any:
        failed = not self.done() or self._outcome.exception() is not None
        return None if failed else self._outcome.result()

    @_result.setter
    def _result(self, _: object) -> None:
        """The base class sets it: it is in the outcome."""

    @property
    def _exception(self) -> BaseException | None:
        return self._outcome.exception() if self.done() else None

    @_exception.setter
    def _exception(self, _: object) -> None:
        """The base class sets it: it is in the outcome."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        if self._made is None:
            with self._home.lock:
                if self._made is None:
                    self._waiters: list[Any] = []
                    self._done_callbacks: list[Callable[[Any], object]] = []
                    self._made = threading.Condition()
        return self._made

    def __repr__(self) -> str:
        return f"<SendFuture {self._outcome!r}>" if self.done() else "<SendFuture pending>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("the future of a record cannot be copied or pickled")

    def cancel(self) -> bool:
        """Returns False: a record cannot be taken back."""
        return False

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._state == FINISHED

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
        if self.done():
            self._outcome.exception()  # it counts as read

    def _awaited(self, timeout: float | None) -> Outcome:
        if not self.done():
            if self._home.left_behind:
                raise ProducerStateError(
                    "the record belongs to the process that sent it; a forked child does not learn "
                    "its outcome"
                )
            if _get_running_loop() is not None:
                raise ProducerStateError(
                    "the future has no outcome yet, and this thread runs an event loop, which must "
                    "not wait: await asyncio.wrap_future(future)"
                )
            with self._condition:
                if not self.done() and not (self._condition.wait(timeout) and self.done()):
                    raise TimeoutError
        return self._outcome

    def _finish(self, outcome: Outcome) -> None:
        """Wake those that wait, and call the callbacks."""
        self._outcome = outcome
        error = outcome.exception() if self._observed or self._waiters else None
        if error is None:
            self.set_result(None)  # type: ignore[arg-type] # result() reads the outcome
        else:
            self.set_exception(error)


def finish(home: Home, outcomes: Sequence[tuple[SendFuture[Any], Outcome]]) -> None:
    """Give futures their outcomes, in the producer's thread."""
    waited = []
    with home.lock:
        for future, outcome in outcomes:
            if future._made is None:  # nobody waits, and there are no callbacks
                future._outcome = outcome
                future._state = FINISHED
            else:
                waited.append((future, outcome))
    for future, outcome in waited:
        try:
            future._finish(outcome)
        except BaseException:  # noqa: BLE001 - a callback's; concurrent.futures has logged its other exceptions
            _log.exception("a callback of a record's future failed")
