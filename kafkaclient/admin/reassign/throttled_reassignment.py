"""``Admin.throttled``: a reassignment with a quota as an async context manager."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.admin.description import known_brokers, live_brokers, partitions_of
from kafkaclient.admin.reassign.clearing import clear_throttles, throttled_brokers, unthrottle_early
from kafkaclient.admin.reassign.cluster_reader import ClusterReader
from kafkaclient.admin.reassign.plan import bootstrap_map
from kafkaclient.admin.reassign.throttle import ThrottleConfigs, check_rate
from kafkaclient.errors import AdminStateError, ConfigError, KafkaError, ReassignmentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from kafkaclient.admin.reassign.outcome import Begun, Lifted, Throttles
    from kafkaclient.admin.reassign.progress import Progress
    from kafkaclient.admin.reassign.reassigner import Reassigner
    from kafkaclient.admin.running import Operation
    from kafkaclient.types import TopicPartition


_log = logging.getLogger(__name__)


class ThrottledReassignment:
    """A reassignment within a quota; see ``Admin.throttled``. ``options`` are the further arguments
    of :meth:`Reassigner.begin`."""

    def __init__(
        self,
        reassigner: Reassigner,
        quotas: ReplicationQuotas,
        plan: Mapping[TopicPartition, Sequence[int]],
        bytes_per_second: int | None,
        **options: Any,
    ) -> None:
        self._reassigner = reassigner
        self._quotas = quotas
        self._plan = plan
        self._options = options
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
        self._begun = await self._reassigner.begin(self._plan, self._quota, **self._options)
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


# --- Replication quotas (KIP-73) that do not belong to a plan -------------------------------------


class ReplicationQuotas:
    """Shows, changes and removes throttles, and throttles brokers that are far behind. It is
    ``Admin.replication_quotas``, and needs a running admin client.

    Throttles are marked in the cluster, together with the throttles that they replaced
    (:mod:`kafkaclient.admin.reassign.throttle`). ``timeout_s`` limits each call.
    """

    def __init__(self, operation: Operation, clock: Callable[[], float]) -> None:
        self._operation = operation
        self._clock = clock

    async def describe(self, *, timeout_s: float | None = None) -> Throttles:
        """All throttles in the cluster, also those of other tools. The rates of a broker that is
        down are not known: it is a failure if it has replicas."""
        async with self._operation("describing throttles", timeout_s) as running:
            cluster = await running.session.metadata(None)
            names = (topic.name for topic in cluster.topics)
            found = await ThrottleConfigs(running).describe(names, known_brokers(cluster))
        return replace(
            found, topics={name: each for name, each in found.topics.items() if each.any}
        )

    async def set_rate(
        self,
        bytes_per_second: int,
        brokers: Iterable[int] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[int, KafkaError | None]:
        """Change the quota of ``brokers``, or of all brokers with a throttle of this package or a
        throttled reassignment of any tool. Returns by broker None, or the error if the quota was
        not changed."""
        check_rate(bytes_per_second)
        async with (
            self._operation("changing the quota", timeout_s) as running,
            running.announcements.setting(timeout_s) as seen,
        ):
            live = live_brokers(await running.session.metadata(()))
            throttle = ThrottleConfigs(running)
            ongoing = {} if brokers is not None else await running.reassignments.ongoing()
            topics, _ = await throttle.topics((p.topic for p in ongoing), seen=seen)
            moving = throttled_brokers(topics, ongoing) if brokers is None else set(brokers)
            wanted = {*live, *moving} if brokers is None else moving
            present, failures = await throttle.brokers(wanted, seen=seen)
            ours = [node for node, now in present.items() if now.marks or node in moving]
            failures |= await throttle.set_rate(ours, bytes_per_second, live, seen=seen)
        return dict(sorted({**dict.fromkeys(ours), **failures}.items()))

    async def bootstrap(
        self, brokers: Iterable[int], bytes_per_second: int, *, timeout_s: float | None = None
    ) -> dict[int, KafkaError]:
        """Throttle the replication to brokers that are empty or far behind (KIP-73, question 2).
        Returns the brokers that have no rate because they are down: call this again when they are
        up. The throttle stays until the brokers are in sync, and :meth:`clear` is called or a
        reassignment is verified."""
        joining = frozenset(brokers)
        check_rate(bytes_per_second)
        async with (
            self._operation("throttling brokers", timeout_s) as running,
            running.announcements.setting(timeout_s) as seen,
        ):
            cluster = await running.session.metadata(None)
            present = {p: view.replicas for p, view in partitions_of(cluster).items()}
            moves = bootstrap_map(joining, present)
            if not moves:
                raise ConfigError(f"brokers {sorted(joining)} have no replicas to throttle")
            live = live_brokers(cluster)
            return await ThrottleConfigs(running).set_moves(
                moves, bytes_per_second, live, seen=seen
            )

    async def behind(
        self, brokers: Iterable[int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """The partitions that have a replica on these brokers which is not in sync, and how many
        records these replicas lack (KIP-73's SumReplicaLag is the sum); None if a broker is down or
        does not answer."""
        joining = frozenset(brokers)
        async with self._operation("describing replicas", timeout_s) as running:
            views = partitions_of(await running.session.metadata(None))
            behind = {p: joining & (set(v.replicas) - set(v.isr)) for p, v in views.items()}
            present = {p: views[p].replicas for p, nodes in behind.items() if nodes}
            if not present:
                return {}
            reader = ClusterReader(running, self._clock)
            lags = (await reader.measure(bootstrap_map(joining, present))).lags
        own = {p: [lags.get((p, node)) for node in behind[p]] for p in present}
        return {p: None if None in each else sum(filter(None, each)) for p, each in own.items()}

    async def ease_arrivals(self, brokers: Iterable[int]) -> None:
        """Unthrottle the replicas of these brokers shortly before they are in sync, as long as this
        coroutine runs. The quota then does not delay records with ``acks=all``."""
        joining = frozenset(brokers)
        async with self._operation("describing replicas") as running:
            views = partitions_of(await running.session.metadata(None))
        moves = bootstrap_map(joining, {p: view.replicas for p, view in views.items()})
        await unthrottle_early(self._operation, self._clock, moves)

    async def clear(
        self, *, everyone: bool = False, keep_needed: bool = True, timeout_s: float | None = None
    ) -> Lifted:
        """Remove all throttles of this package, and restore the throttles that they replaced.
        Throttles of ongoing reassignments and of replicas that are not in sync stay, unless
        ``keep_needed`` is false. ``everyone`` also deletes the throttles of other tools; during a
        reassignment it needs ``keep_needed=False``. The result contains the failures."""
        async with self._operation("removing throttles", timeout_s) as running:
            return await clear_throttles(running, everyone=everyone, keep_needed=keep_needed)
