"""What a consumer's loops await, and whether they ask for records often enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.consumer.initial_positions import restart
from kafkaclient.errors import ConsumerStateError, ReaderStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.consumer.records import Rows
    from kafkaclient.reader.reading import Reading


class Steps:
    """Hands out the rows of fetched batches, to one loop at a time.

    ``on_step`` is called when a loop asks for records. ``policy`` is ``auto.offset.reset``.
    """

    def __init__(
        self,
        reading: Reading,
        partitions: Partitions,
        policy: str,
        on_step: Callable[[], None],
    ) -> None:
        self._reading = reading
        self._partitions = partitions
        self._policy = policy
        self._on_step = on_step
        self._failure: BaseException | None = None
        self._is_over = False
        self.is_awaited = False
        """Whether a loop waits for records now."""

    def fail(self, error: BaseException) -> None:
        """Raise the error at the next step, and at all later ones."""
        self._failure = self._failure or error
        self._reading.wake()

    def end(self) -> None:
        """The consumer is closed: loops end."""
        self._is_over = True
        self._reading.close()

    async def next_rows(self, *, tracked: bool) -> Rows | None:
        """Further records; None when the consumer is closed. All records before are finished, apart
        from ``tracked`` ones. Raises the consumer's failure, and what :func:`restart` raises."""
        if self.is_awaited:
            raise ConsumerStateError("two tasks take records from one consumer; use one loop")
        self._partitions.step_past()
        self._on_step()
        self.is_awaited = True
        try:
            timeout_s: float | None = 0.0
            while not self._is_over:
                await self._reading.wait(timeout_s)
                if self._failure is not None:
                    raise self._failure
                for where, error in self._reading.errors.items():
                    restart(self._partitions, where, error, self._policy)
                rows = self._partitions.take(tracked=tracked)
                if rows is not None:
                    return rows
                timeout_s = None
        except ReaderStateError:
            if not self._is_over:
                raise
        finally:
            self.is_awaited = False
        return None


_MOST_LOOK_S = 1.0
_LOOKS = 10  # per interval


class PollInterval:
    """Whether an application takes records often enough to stay in its group (KIP-62).

    ``mark`` changes with each step of a loop; ``is_awaited``: whether a loop waits for records.
    A timer reads the mark ten times per interval, and at least once per second. So a step itself
    does nothing for it.
    """

    def __init__(
        self,
        limit_ms: int,
        mark: Callable[[], object],
        is_awaited: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self.limit_s = limit_ms / 1000
        self._mark = mark
        self._is_awaited = is_awaited
        self._clock = clock

    async def expired(self) -> None:
        """Return when no record was asked for in ``max.poll.interval.ms``."""
        mark, since = self._mark(), self._clock()
        while self._clock() - since < self.limit_s:
            await asyncio.sleep(min(_MOST_LOOK_S, self.limit_s / _LOOKS))
            if self._is_awaited() or self._mark() != mark:
                mark, since = self._mark(), self._clock()
