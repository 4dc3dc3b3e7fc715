"""A throttled reassignment as an async context manager."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from kafkaclient.errors import AdminStateError, KafkaError, ReassignmentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from kafkaclient.admin.reassign.outcome import Begun
    from kafkaclient.admin.reassign.plan import ReassignmentPlan
    from kafkaclient.admin.reassign.progress import Progress
    from kafkaclient.admin.reassign.quotas import ReplicationQuotas
    from kafkaclient.admin.reassign.reassigner import Reassigner
    from kafkaclient.types import TopicPartition

__all__ = ["ThrottledReassignment"]

_log = logging.getLogger(__name__)


class ThrottledReassignment:
    """A reassignment within a quota; see ``Admin.throttled``."""

    def __init__(
        self,
        reassigner: Reassigner,
        quotas: ReplicationQuotas,
        plan: Mapping[TopicPartition, Sequence[int]],
        bytes_per_second: int | None,
        *,
        additional: bool,
        skip_dead: bool,
        on_rollback: Callable[[ReassignmentPlan], None] | None,
    ) -> None:
        self._reassigner = reassigner
        self._quotas = quotas
        self._plan = plan
        self._quota = bytes_per_second
        self._additional = additional
        self._skip_dead = skip_dead
        self._on_rollback = on_rollback
        self._begun: Begun | None = None
        self._easing: asyncio.Task[None] | None = None

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
                await self._rethrottle(begun, self._quota)
            yield progress

    async def _rethrottle(self, begun: Begun, quota: int) -> None:
        try:
            await self._reassigner.rethrottle(begun, quota)
        except KafkaError as error:
            _log.warning("a broker that came back up has no quota yet, retrying: %s", error)

    async def __aenter__(self) -> Self:
        self._begun = await self._reassigner.begin(
            self._plan,
            self._quota,
            additional=self._additional,
            skip_dead=self._skip_dead,
            on_rollback=self._on_rollback,
        )
        if self._begun.throttled:
            self._easing = asyncio.create_task(self._reassigner.ease_arrivals(self._begun))
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_exc: object) -> None:
        begun = self.begun
        if exc_type is not None:
            try:
                await self._stop_easing()
            finally:
                await self._undo(begun)
            return
        try:
            try:
                async for _ in self.progress():
                    pass
            finally:
                await self._stop_easing()
            lifted = await self._reassigner.finish(begun)
        except BaseException:
            await self._undo(begun)
            raise
        failures = await self._reassigner.failures(begun)
        if failures or lifted.failures:
            raise _error(failures, lifted.failures)

    async def _stop_easing(self) -> None:
        """Stop the task of :meth:`Reassigner.ease_arrivals` first: it edits the lists of throttled
        replicas, which finish and undo remove."""
        if self._easing is not None:
            self._easing.cancel()
            await asyncio.wait({self._easing})

    async def _undo(self, begun: Begun) -> None:
        for error in await self._reassigner.undo(begun):
            _log.warning("undoing a reassignment failed: %s", error)


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
