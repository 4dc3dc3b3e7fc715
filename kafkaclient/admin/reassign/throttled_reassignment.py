"""``Admin.throttled``: a reassignment as an async context manager. Ctrl-C ends in :mod:`.undo`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from kafkaclient.errors import AdminStateError, KafkaError, ReassignmentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from kafkaclient.admin.reassign.outcome import Begun, Lifted
    from kafkaclient.admin.reassign.progress import Progress
    from kafkaclient.admin.reassign.quotas import ReplicationQuotas
    from kafkaclient.admin.reassign.reassigner import Reassigner
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)


class ThrottledReassignment:
    """A reassignment within a quota; see ``Admin.throttled``. ``begin`` starts it, with the quota
    as its argument."""

    def __init__(
        self,
        reassigner: Reassigner,
        quotas: ReplicationQuotas,
        begin: Callable[[int | None], Awaitable[Begun]],
        bytes_per_second: int | None,
    ) -> None:
        self._reassigner = reassigner
        self._quotas = quotas
        self._begin = begin
        self._quota = bytes_per_second
        self._begun: Begun | None = None
        self._unthrottling: asyncio.Task[None] | None = None
        self.left: dict[str, KafkaError] = {}
        """What could not be undone or removed at the end, as in ``the throttle of broker 1``."""

    @property
    def begun(self) -> Begun:
        """The reassignments that have started, those that failed, and the earlier replicas. Raises
        AdminStateError outside of the block."""
        if self._begun is None:
            raise AdminStateError("the reassignment has not started: use it in `async with`")
        return self._begun

    async def set_quota(self, bytes_per_second: int) -> dict[int, KafkaError | None]:
        """Change the quota; see :meth:`ReplicationQuotas.set_rate`."""
        self._quota = bytes_per_second
        return await self._quotas.set_rate(bytes_per_second)

    async def progress(self, *, every_s: float = 1.0) -> AsyncGenerator[Progress, None]:
        """The progress every ``every_s`` seconds until the reassignment is complete. Sets the quota
        on brokers that come back up."""
        begun = self.begun
        own = {partition: begun.moves[partition] for partition in begun.started}
        async for progress in self._reassigner.progress(own, every_s=every_s):
            if begun.unthrottled and self._quota is not None:
                try:
                    await self._reassigner.rethrottle(begun, self._quota)
                except KafkaError as error:
                    _log.warning("a broker that came back up has no quota yet, retrying: %s", error)
            yield progress

    async def __aenter__(self) -> Self:
        self._begun = await self._begin(self._quota)
        if self._begun.throttled:
            self._unthrottling = asyncio.create_task(self._reassigner.ease_arrivals(self._begun))
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_exc: object) -> None:
        begun = self.begun
        cleared: Lifted | None = None
        try:
            try:
                if exc_type is None:
                    async for _ in self.progress():
                        pass
            finally:
                # The task edits the lists of throttled replicas: end it before they are cleared.
                if self._unthrottling is not None:
                    self._unthrottling.cancel()
                    await asyncio.wait({self._unthrottling})
            if exc_type is None:
                cleared = await self._reassigner.finish(begun)
        finally:
            if cleared is None:
                self.left = await self._reassigner.undo(begun)
                for what, error in self.left.items():
                    _log.warning("not undone, `reassign cancel` undoes it: %s: %s", what, error)
        if cleared is None:
            return
        self.left = cleared.left
        failures = await self._reassigner.failures(begun)
        if failures or cleared.failures:
            raise _error(failures, cleared.failures)


def _error(
    failures: Mapping[TopicPartition, KafkaError], throttles: Mapping[str, KafkaError]
) -> ReassignmentError:
    words = [str(error) for error in (*failures.values(), *throttles.values())]
    more = f"; and {len(words) - 5} more" if len(words) > 5 else ""
    what = []
    if failures:
        what.append(f"{len(failures)} partitions did not get the replicas of the plan")
    if throttles:
        left = ", ".join(throttles)
        what.append(f"throttles were not removed ({left}): run kafkaclient throttle clear")
    error = ReassignmentError(f"{'; '.join(what)}: {'; '.join(words[:5])}{more}")
    error.failures = dict(failures)
    return error
