"""A member's connections to its group's coordinator."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.cluster.coordinator import Coordinators
from kafkaclient.cluster.metadata import Metadata
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.waits import Waits
from kafkaclient.wire.transactions import CoordinatorKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kafkaclient.config import ClientConfig
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.wire.api import Call

    class _Answer(Protocol):
        @property
        def error_code(self) -> int: ...

    T = TypeVar("T", bound=_Answer)

_WAITING = "group-rebalance"
_MARGIN_S = 5.0  # on top of the rebalance timeout, as in Java


class GroupConnection:
    """Calls the group's coordinator, wherever it is, until it answers.

    JoinGroup and SyncGroup are answered when all members have joined or the leader has assigned. A
    broker answers a connection's requests in order, so these two have a connection of their own.
    """

    def __init__(
        self,
        group_id: str,
        config: ClientConfig,
        *,
        rebalance_timeout_s: float,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        rng: Random | None = None,
    ) -> None:
        self.group_id = group_id
        self._rebalance_timeout_s = rebalance_timeout_s
        clock = clock or asyncio.get_running_loop().time
        rng = rng or Random()
        self._router = Router(config, dialer, clock=clock, rng=rng)
        waits = Waits(clock)
        self._metadata = Metadata(
            config, self._router, clock=clock, rng=rng, waits=waits, right="Read"
        )
        self._coordinators = Coordinators(
            self._router,
            config=config,
            rng=rng,
            waits=waits,
            on_unknown=self._metadata.request_refresh,
        )

    async def start(self) -> None:
        """Connect. Raises :class:`~kafkaclient.errors.BootstrapError` after ``max.block.ms``."""
        await self._metadata.start()

    async def call(self, call: Call[T]) -> T:
        """The coordinator's answer. Retries until there is one; the caller may set a time limit.

        Raises an error that a retry cannot help, such as AuthorizationError.
        """
        return await self._coordinators.call(CoordinatorKind.GROUP, self.group_id, call)

    async def wait(self, call: Call[T]) -> T:
        """As :meth:`call`, for a call whose answer depends on other members."""
        answered = False
        try:
            answer = await self._coordinators.call(
                CoordinatorKind.GROUP,
                self.group_id,
                call,
                timeout_s=self._rebalance_timeout_s + _MARGIN_S,
                purpose=_WAITING,
            )
            answered = True
        finally:
            if not answered:  # the next call must not wait behind this one
                self._router.release(_WAITING)
        return answer

    async def close(self) -> None:
        await self._metadata.stop()
        await self._router.close()
