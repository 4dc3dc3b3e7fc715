"""The state of a running admin client."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from kafkaclient.admin.announcements import Announcements
from kafkaclient.admin.configs import Configs
from kafkaclient.admin.controller import Reassignments, TopicRequests
from kafkaclient.admin.limits_guard import LimitsGuard
from kafkaclient.admin.limits_store import TopicLimits
from kafkaclient.errors import AdminStateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from random import Random

    from kafkaclient.admin.limits_store import FileLimits
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.producer.producer import Producer


class RunningAdmin:
    """The session of a started admin client, and an object for each group of requests. ``limits``
    is the argument of :class:`~kafkaclient.admin.Admin`."""

    def __init__(
        self,
        session: AdminSession,
        limits: FileLimits | Literal["topic"] | None,
        *,
        rng: Random,
        wall_clock: Callable[[], float],
        new_producer: Callable[[], Producer],
    ) -> None:
        self.session = session
        self.configs = Configs(session)
        self.topics = TopicRequests(session)
        self.reassignments = Reassignments(session)
        self.announcements = Announcements(session, self.configs, wall_clock=wall_clock, rng=rng)
        store = (
            TopicLimits(session, self.topics, self.configs, new_producer)
            if limits == "topic"
            else limits
        )
        self.guard = LimitsGuard(session, self.topics, store, rng)


class Runnable:
    """Base of :class:`~kafkaclient.admin.Admin` and of its groups of methods."""

    _running: RunningAdmin | None = None

    @asynccontextmanager
    async def _operation(
        self, what: str, timeout_s: float | None = None
    ) -> AsyncIterator[RunningAdmin]:
        """The running client, within the time limit of :meth:`.AdminSession.limit`. Raises
        AdminStateError if the client is not running, or is used in another event loop."""
        if self._running is None:
            raise AdminStateError(f"{what}: the admin client is not running: start it first")
        self._running.session.check_home(what)
        async with self._running.session.limit(what, timeout_s):
            yield self._running


Operation: TypeAlias = "Callable[..., AbstractAsyncContextManager[RunningAdmin]]"
"""``async with operation("describing topics", timeout_s) as running``, as in :class:`Runnable`."""
