"""What a consumer's loops await, and whether they ask for records often enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.consumer.initial_positions import restart
from kafkaclient.errors import ConsumerStateError, ReaderStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.consumer.records import Rows
    from kafkaclient.reader.reading import Reading
    from kafkaclient.types import TopicPartition


def two_tasks() -> ConsumerStateError:
    return ConsumerStateError("two tasks take records from one consumer; use one loop")


class RowFeed:
    """Hands out the rows of fetched batches, to one loop at a time.

    ``on_ask`` is called when an application asks for records, ``on_step`` then and each time that
    it goes on waiting. ``policy`` is ``auto.offset.reset``.
    """

    def __init__(
        self,
        reading: Reading,
        partitions: Partitions,
        policy: str,
        on_ask: Callable[[], None],
        on_step: Callable[[], None],
    ) -> None:
        self._reading = reading
        self._partitions = partitions
        self._policy = policy
        self.on_ask = on_ask
        self._on_step = on_step
        self._failure: BaseException | None = None
        self.is_over = False
        """Whether the consumer is closed."""
        self.is_awaited = False
        """Whether an application waits for records now."""
        self.loop_error: Exception | None = None
        """What the last loop has raised. Another one that takes records, or waits for them, takes
        it back."""

    def fail(self, error: BaseException) -> None:
        """Raise the error at the next step, and at all later ones."""
        self._failure = self._failure or error
        self._reading.wake()
        self._partitions.notify()

    def end(self) -> None:
        """The consumer is closed: loops end."""
        self.is_over = True
        self._reading.close()
        self._partitions.notify()

    def check(self) -> None:
        """Raise what has ended the consumer's work."""
        if self._failure is not None:
            raise self._failure

    def go_on(self, wanted: Collection[TopicPartition]) -> None:
        """Go on with those of these partitions (empty: with all) that could not be fetched. Raises
        the consumer's failure, and what :func:`restart` raises."""
        self.check()
        for where, error in self._reading.errors.items():
            is_wanted = not wanted or where in wanted
            if is_wanted and not self._partitions[where].is_held:
                restart(self._partitions, where, error, self._policy)
        self._partitions.raise_error(wanted)

    async def next_rows(self, *, tracked: bool) -> Rows | None:
        """Further records; None when the consumer is closed. All records before are finished, apart
        from ``tracked`` ones. Raises as :meth:`wait`."""
        if self.is_awaited:
            raise two_tasks()
        self._partitions.step_past()
        self.on_ask()
        self.loop_error = None
        timeout_s: float | None = 0.0
        try:
            while not self.is_over and await self.wait(timeout_s):
                rows = self._partitions.take(tracked=tracked)
                if rows is not None:
                    return rows
                timeout_s = None
        except Exception as error:
            self.loop_error = error
            raise
        return None

    async def wait(self, timeout_s: float | None, wanted: Collection[TopicPartition] = ()) -> bool:
        """Wait until there may be records; False when the consumer is closed. Raises as
        :meth:`go_on`, and ConsumerStateError if another task waits."""
        if self.is_awaited:
            raise two_tasks()
        self._on_step()
        self.is_awaited = True
        try:
            await self._reading.wait(timeout_s)
            self.go_on(wanted)
        except ReaderStateError:
            if not self.is_over:
                raise
            return False
        else:
            return not self.is_over
        finally:
            self.is_awaited = False


_MOST_LOOK_S = 1.0
_LOOKS = 10  # per interval


class PollInterval:
    """Whether an application takes records often enough to stay in its group (KIP-62).

    ``mark`` changes with each step of a loop; ``is_awaited``: whether a loop waits for records.
    A timer reads the mark ten times per interval, and at least once per second, and calls
    ``on_taken`` if it has changed. So a step itself does nothing for it.
    """

    def __init__(
        self,
        limit_ms: int,
        mark: Callable[[], object],
        is_awaited: Callable[[], bool],
        clock: Callable[[], float],
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit_s = limit_ms / 1000
        self._mark = mark
        self._is_awaited = is_awaited
        self._clock = clock
        self._on_taken = on_taken

    async def expired(self) -> None:
        """Return when no record was asked for in ``max.poll.interval.ms``."""
        mark, since = self._mark(), self._clock()
        while self._clock() - since < self.limit_s:
            await asyncio.sleep(min(_MOST_LOOK_S, self.limit_s / _LOOKS))
            if self._is_awaited() or self._mark() != mark:
                mark, since = self._mark(), self._clock()
                self._on_taken()
