"""The parts of a running admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from kafkaclient.admin.configs import Configs
from kafkaclient.admin.groups import Groups
from kafkaclient.admin.guard import Guard
from kafkaclient.admin.limits import Limits
from kafkaclient.admin.limits_topic import TopicLimits
from kafkaclient.admin.reassignments import Reassignments
from kafkaclient.admin.topics import Requests
from kafkaclient.admin.transactions import TransactionRequests
from kafkaclient.admin.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from random import Random

    from kafkaclient.admin.limits_file import FileLimits
    from kafkaclient.admin.session import Session
    from kafkaclient.producer.producer import Producer
    from kafkaclient.wire.results import MetadataResult

__all__ = ["Opened", "Operation"]


class Opened:
    """The parts, joined. ``limits`` is as :class:`~kafkaclient.admin.Admin` takes it."""

    def __init__(
        self,
        session: Session,
        limits: FileLimits | Literal["topic"] | None,
        *,
        rng: Random,
        wall_clock: Callable[[], float],
        new_producer: Callable[[], Producer],
    ) -> None:
        self.session = session
        self.requests = Requests(session)
        self.configs = Configs(session)
        self.groups = Groups(session)
        self.guard = Guard(session, self.requests, rng)
        self.reassignments = Reassignments(session)
        self.turns = Turns(session, self.configs, wall_clock=wall_clock, rng=rng)
        self.transactions = TransactionRequests(session, session.coordinators())
        self.store: TopicLimits | FileLimits | None
        """Where limits are kept; None when there are to be none."""
        if limits == "topic":
            self.store = TopicLimits(session, self.requests, new_producer)
        else:
            self.store = limits

    async def limits(self, cluster: MetadataResult | None = None) -> Limits:
        """The limits that hold; ``cluster``: metadata of all topics, if that is at hand."""
        if self.store is None:
            return Limits()
        if isinstance(self.store, TopicLimits):
            kept = await self.store.read(cluster)
            return kept.stricter(await self.configs.limits())
        return await self.store.read()

    async def limits_and_cluster(self) -> tuple[Limits, MetadataResult]:
        """The limits, and metadata of all topics."""
        cluster = await self.session.metadata(None)
        return await self.limits(cluster), cluster


class Operation(Protocol):
    """How an operation of a running client begins."""

    def __call__(
        self, what: str, timeout_s: float | None = None
    ) -> AbstractAsyncContextManager[Opened]:
        """The parts, and the time limit of :meth:`.Session.limit`. Raises AdminStateError when
        the client is not running."""
        ...
