"""The futures that :class:`~kafkaclient.SyncProducer` returns."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar

from kafkaclient.errors import ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PENDING, _FINISHED = "PENDING", "FINISHED"  # the states of concurrent.futures


class Unread(Protocol):
    """A delivery that reports a failure when it is freed before anybody has read the outcome."""

    def exception(self) -> BaseException | None: ...


class Home:
    """What the futures of one producer thread share."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection inside may free, and so use, another future.
        self.lock = threading.RLock()
        self.left_behind = False
        """Whether this is a forked child, where the thread does not run."""


class SendFuture(Future[T]):
    """The outcome of a ``send`` or ``send_many``, as a ``concurrent.futures.Future``.

    :meth:`cancel` returns False: the record is sent. If the record fails, and the future is freed
    before its outcome was read (:meth:`result`, :meth:`exception`, :meth:`add_done_callback`), the
    failure is counted, logged and given to ``on_error``, as with :class:`~kafkaclient.Delivery`.
    Callbacks run in the producer's thread, which sends nothing meanwhile.
    """

    # A Condition costs more than everything else about a future, and most futures of a script are
    # never waited for. So the base class's attribute is made when it is first used.

    def __init__(self, home: Home) -> None:
        self._home = home
        self._made: threading.Condition | None = None
        self._unread: Unread | None = None
        self._observed = False
        self._state = _PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Any], object]] = []

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        made = self._made
        if made is None:
            with self._home.lock:
                made = self._made
                if made is None:
                    made = self._made = threading.Condition()
        return made

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("the future of a record cannot be copied or pickled")

    def cancel(self) -> bool:
        """Returns False: a record cannot be taken back."""
        return False

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> T:
        """Where the record was written; waits for it.

        Raises:
            KafkaError: the record failed.
            TimeoutError: it has no outcome after ``timeout`` seconds (None: no limit but the
                producer's own ``max.block.ms`` and ``delivery.timeout.ms``).
            ProducerStateError: a forked child waits for its parent's record.
        """
        self._observe()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the record failed with; None: it was written. Waits and raises as
        :meth:`result`."""
        self._observe()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn(future)`` in the producer's thread once there is an outcome; at once if there
        is one already."""
        self._observed = True
        super().add_done_callback(fn)
        self._mark_read()

    def _observe(self) -> None:
        self._observed = True
        self._mark_read()
        if self._home.left_behind and self._state != _FINISHED:
            raise ProducerStateError(
                "the record belongs to the process that sent it; a forked child does not learn "
                "its outcome"
            )

    def _mark_read(self) -> None:
        unread, self._unread = self._unread, None
        if unread is not None:
            unread.exception()

    def settle(self, result: T | None, error: BaseException | None = None) -> None:
        """Set the outcome; called in the producer's thread, once."""
        with self._home.lock:
            if self._made is None:  # nobody waits, and there are no callbacks
                self._result, self._exception = result, error
                self._state = _FINISHED
                return
        if error is None:
            self.set_result(result)  # type: ignore[arg-type]
        else:
            self.set_exception(error)

    def settle_unread(self, error: BaseException, delivery: Unread) -> None:
        """:meth:`settle` with an error that ``delivery`` reports unless somebody reads it."""
        self._unread = delivery
        self.settle(None, error)
        if self._observed:
            self._mark_read()
