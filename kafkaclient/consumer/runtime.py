"""The parts of a running consumer: what makes them, runs them, and ends them in order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkaclient.cluster.health import Health, check_brokers
from kafkaclient.cluster.waits import LOGGED_AFTER_S
from kafkaclient.consumer.commits import Commits
from kafkaclient.consumer.deserializers import Deserializing
from kafkaclient.consumer.initial_positions import InitialPositions
from kafkaclient.consumer.membership import Membership
from kafkaclient.consumer.partitions import Partitions
from kafkaclient.consumer.polls import Polls
from kafkaclient.consumer.reports import ConsumerReports
from kafkaclient.consumer.steps import PollInterval, RowFeed
from kafkaclient.errors import ConsumerStateError, safe_repr
from kafkaclient.group.commit_gate import CommitGate
from kafkaclient.group.connection import GroupConnection, GroupOffsets
from kafkaclient.metrics.consumer import ConsumerMetrics
from kafkaclient.metrics_push.points import consumer_points, labels
from kafkaclient.metrics_push.reporter import MetricsPush
from kafkaclient.reader.cluster import ReaderCluster, timestamp_of
from kafkaclient.reader.reading import Reading
from kafkaclient.time_limit import cancel_and_wait
from kafkaclient.types import LastFetch

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Mapping,
        Sequence,
        Set,
    )
    from random import Random

    from kafkaclient.config.consumer import ConsumerConfig
    from kafkaclient.consumer.records import Record, RecordStream
    from kafkaclient.consumer.subscription import RebalanceListener, Subscription
    from kafkaclient.metrics.consumer import ConsumerMetricsSnapshot
    from kafkaclient.metrics_push.points import ApplicationMetrics
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.reader.batch import FetchedBatch
    from kafkaclient.types import TopicPartition

_LAST_COMMIT_S = 10.0
_LAST_PUSH_S = 1.0


class ConsumerRuntime:
    """Made in the event loop that uses it. A part that fails ends the consumer's loop with its
    error."""

    membership_type: type[Membership] = Membership

    def __init__(
        self,
        config: ConsumerConfig,
        listener: RebalanceListener,
        *,
        dialer: Dialer | None,
        clock: Callable[[], float] | None,
        wall_clock: Callable[[], float],
        rng: Random,
        application_metrics: ApplicationMetrics,
        finish_at_once: bool,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.config = config
        self._wall_clock = wall_clock
        self._metrics = metrics = ConsumerMetrics(clock or self.loop.time)
        self.cluster = cluster = ReaderCluster(
            config, dialer=dialer, clock=clock, rng=rng, meter=metrics
        )
        self._reading = Reading(cluster, [], headers=True)
        cluster.readings.add(self._reading)
        self.gate: CommitGate | None = None
        self.group_offsets: GroupOffsets | None = None
        self._membership: Membership | None = None
        starting = asyncio.Event()
        self.reports = ConsumerReports(config.hooks)
        self.partitions = Partitions(self._reading, starting.set, self._on_rows)
        policy = config.auto_offset_reset
        self.feed = RowFeed(self._reading, self.partitions, policy, self._on_ask, self._on_step)
        self.polls = Polls(self.feed, self.partitions, cluster.now, finish=finish_at_once)
        if config.group_id is not None:
            self._make_group(config.group_id, listener, clock or self.loop.time)
        offsets = self.group_offsets
        interval_s = config.auto_commit_interval_ms / 1000 if config.enable_auto_commit else None
        self.commits = Commits(self.partitions, offsets, interval_s, cluster.now, self.reports)
        committed = None if offsets is None else offsets.committed
        self._initial_positions = InitialPositions(config, cluster, committed, wall_clock, starting)
        self._deserializing: Deserializing | None = None
        if config.key_deserializer is not None or config.value_deserializer is not None:
            self._deserializing = Deserializing(config, cluster.now, metrics.dropped, self.feed)
        self.metrics_push = MetricsPush(
            cluster.router,
            lambda: consumer_points(self.snapshot_metrics()),
            self._labels,
            application_metrics,
            enabled=config.enable_metrics_push,
            wall_clock=wall_clock,
            rng=rng,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._member_task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        """The end of the last subscription or assignment by hand."""
        self._is_by_hand = False
        """Whether partitions are assigned by hand."""

    def _make_group(
        self, group_id: str, listener: RebalanceListener, clock: Callable[[], float]
    ) -> None:
        config, cluster = self.config, self.cluster
        connection = GroupConnection(
            group_id,
            config,
            cluster.router,
            cluster.metadata,
            rebalance_timeout_s=config.max_poll_interval_ms / 1000,
            rng=cluster.rng,
        )
        shorter_ms = min(config.session_timeout_ms, config.max_poll_interval_ms)
        self.gate = CommitGate(group_id, config.group_instance_id, shorter_ms / 1000, clock)
        polls = PollInterval(
            config.max_poll_interval_ms,
            lambda: self.partitions.mark,
            lambda: self.feed.is_awaited,
            clock,
            self._metrics.taken,
        )
        self._membership = membership = self.membership_type(
            config,
            cluster,
            connection,
            self.gate,
            self.partitions,
            polls,
            listener,
            clock,
            self._metrics,
            self.reports,
        )
        self.group_offsets = GroupOffsets(
            connection,
            self.gate,
            membership.commit_refused,
            config.call_limit.seconds,
            lambda where: self.partitions.topic_id(where) or cluster.metadata.topic_id(where.topic),
        )

    async def start(self) -> None:
        """Connect. Raises as :meth:`.Metadata.start`."""
        await self.cluster.metadata.start()
        self._run(partial(self._initial_positions.run, self.partitions), "initial-positions")
        self._run(self.commits.run, "commits")
        self.metrics_push.start()

    def _run(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        task = self.loop.create_task(self._failing(work), name=f"kafkaclient-consumer-{name}")
        self._tasks.append(task)
        return task

    async def _failing(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the loop raises it
            self.feed.fail(error)

    def _on_rows(self, batch: FetchedBatch) -> None:
        partition = self.partitions[batch.topic_partition]
        self._metrics.consumed(batch.topic, *batch.size_from(partition.counted_to))
        partition.counted_to = max(partition.counted_to, batch.next_offset)
        self.reports.consumed(batch, self._metrics.waited_s)

    def _on_ask(self) -> None:
        self._metrics.asked()

    def _on_step(self) -> None:
        self._metrics.polled()
        if self._membership is not None:
            self._membership.polled()

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group, or use another subscription."""
        assert self._membership is not None
        if self._member_task is not None:
            self._membership.resubscribe(subscription)
        elif self.partitions.all:
            raise ConsumerStateError("partitions were assigned by hand: unsubscribe() ends that")
        else:
            self._is_by_hand = False
            be_member = partial(self._be_member, self._leaving, subscription)
            self._member_task = self._run(be_member, "group")

    async def _be_member(
        self, leaving: asyncio.Task[None] | None, subscription: Subscription
    ) -> None:
        if leaving is not None:
            await asyncio.wait({leaving})
        assert self._membership is not None
        await self._membership.run(subscription, self.commits)

    def unsubscribe(self) -> None:
        """Give up all partitions at once, and leave the group soon."""
        given_up, offsets = self.partitions.assigned, self.partitions.finished_offsets()
        self.partitions.remove(self.partitions.all)
        member_task, self._member_task, self._is_by_hand = self._member_task, None, False
        if self._membership is not None:
            self._membership.forget()
        leave = partial(self._leave, self._leaving, member_task, given_up, offsets)
        self._leaving = self._run(leave, "leave")

    async def _leave(
        self,
        before: asyncio.Task[None] | None,
        member_task: asyncio.Task[None] | None,
        given_up: Set[TopicPartition],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        if member_task is None or self._membership is None:
            await self.commits.commit_last("unsubscribe", _LAST_COMMIT_S, lambda: offsets)
        else:
            try:
                await self._membership.end(given_up, offsets)
            finally:
                await cancel_and_wait(member_task)
                await self._membership.leave("the consumer has unsubscribed")
        if self._is_by_hand:
            self._start_by_hand()

    def check_consumes(self) -> None:
        """Raise if nothing can come: there are neither topics nor partitions (as in Java)."""
        if self._member_task is None and not self._is_by_hand:
            raise ConsumerStateError(
                "the consumer has neither topics nor partitions: give topics, or call subscribe() "
                "or assign()"
            )

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Consume these partitions without being a member. What is finished of others is committed
        (as in Java), before new ones begin."""
        if self._member_task is not None:
            raise ConsumerStateError("the consumer subscribes to topics: the group assigns")
        before, wanted = self.partitions.all, frozenset(partitions)
        offsets = self.partitions.finished_offsets(before - wanted)
        self.partitions.remove(before - wanted)
        self.partitions.add(wanted - before)
        self._is_by_hand = True
        self.partitions.notify()
        if offsets:
            leave = partial(self._leave, self._leaving, None, frozenset(), offsets)
            self._leaving = self._run(leave, "leave")
        elif self._leaving is None or self._leaving.done():
            self._start_by_hand()

    def _start_by_hand(self) -> None:
        if self.gate is not None:
            self.gate.open_without_member()
        self.partitions.start(self.partitions.all)

    @property
    def has_assignment(self) -> bool:
        """See :meth:`.Consumer.wait_assigned`."""
        if self._member_task is None or self._membership is None:
            return self._is_by_hand
        return self._membership.has_assignment

    def ask_assignment(self) -> bool:
        """Whether there is an assignment. Like a poll, it lets a member join again that had to
        leave."""
        if self._membership is not None:
            self._membership.polled()
        return self.has_assignment

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition of the partitions holds. Raises what has ended the consumer's
        work, and ConsumerStateError when the consumer is closed."""
        while not condition():
            self.feed.check()
            if self.feed.is_over:
                raise ConsumerStateError("the consumer is closed")
            await self.partitions.changed()

    def last_fetch(self, where: TopicPartition) -> LastFetch | None:
        """See :meth:`.Consumer.last_fetch`."""
        found = self._reading.last_fetch(where)
        if found is None:
            return None
        high_watermark, last_stable, at = found
        age_s = self.cluster.now() - at
        timestamp = int((self._wall_clock() - age_s) * 1000)
        return LastFetch(high_watermark, last_stable, timestamp)

    def records(self, stream: RecordStream) -> AsyncIterator[Record[Any, Any]]:
        """The records of the stream, deserialized if the consumer has deserializers."""
        return stream if self._deserializing is None else self._deserializing.records(stream)

    async def poll(
        self, wanted: Collection[TopicPartition], timeout_s: float | None, most: int
    ) -> dict[TopicPartition, list[Record[Any, Any]]] | None:
        """As :meth:`.Polls.poll`, deserialized. Raises the error of a record if no record comes
        before it."""
        until = None if timeout_s is None else self.cluster.now() + timeout_s
        while True:
            found = await self.polls.poll(wanted, timeout_s, most)
            self.feed.loop_error = None
            if not found or self._deserializing is None:
                return found
            if given := await self._deserializing.polled(found, self.partitions):
                return given
            timeout_s = None if until is None else max(0.0, until - self.cluster.now())

    async def offsets(
        self, partitions: Sequence[TopicPartition], at: str | int
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`.Consumer.offsets`."""
        timestamp = timestamp_of(at)
        await self.cluster.find(partitions)
        found = await self.cluster.list_offsets(partitions, timestamp)
        return {tp: each.offset if each.offset >= 0 else None for tp, each in found.items()}

    def lag(self) -> dict[TopicPartition, int | None]:
        """See :meth:`.Consumer.lag`."""
        ends = self._reading.ends
        found: dict[TopicPartition, int | None] = {}
        for where in self.partitions.assigned:
            end, position = ends.get(where), self.partitions[where].position
            known = end is not None and position is not None
            found[where] = max(0, (end or 0) - (position or 0)) if known else None
        return found

    async def healthy(self, timeout_s: float) -> Health:
        """See :meth:`.Consumer.healthy`."""
        try:
            self.feed.check()
            self.check_consumes()
        except BaseException as error:  # noqa: BLE001 - it is reported
            return Health((f"the consumer cannot consume any more: {safe_repr(error)}",))
        if (ended := self.feed.loop_error) is not None:
            return Health((f"the loop has ended, and none goes on: {safe_repr(ended)}",))
        now = self.cluster.now()
        found = await check_brokers(
            self.cluster.metadata, self.cluster.router, timeout_s, now, {}, (), use="read"
        )
        problems, warnings = found.problems, found.warnings
        told = self.cluster.metadata.topic_errors()
        denials = self.partitions.denials.items()
        denied = {str(error) for where, error in denials if where.topic not in told}
        if self._membership is None or self._member_task is None:
            return Health((*problems, *sorted(denied)), warnings)
        if self._membership.denial is not None:
            denied.add(str(self._membership.denial))
        group, problems = self.config.group_id, (*problems, *sorted(denied))
        if not self._membership.is_member:
            problems += (
                f"the consumer is not in group {group}: it begins to join, or it has left because "
                "no record was asked for within max.poll.interval.ms",
            )
        elif (rebalancing_s := self._metrics.rebalancing_s) > LOGGED_AFTER_S:
            warnings += (f"group {group} has been rebalancing for {rebalancing_s:.0f} s",)
        return Health(problems, warnings)

    def snapshot_metrics(self) -> ConsumerMetricsSnapshot:
        """See :meth:`.Consumer.metrics`."""
        return self._metrics.snapshot(self.lag())

    def _labels(self) -> dict[str, str]:
        group = None if self.gate is None else self.gate.group
        return labels(
            group_id=self.config.group_id,
            group_instance_id=self.config.group_instance_id,
            group_member_id=None if group is None else group.member_id,
            client_rack=self.config.client_rack,
        )

    async def close(self) -> None:
        """Commit what is finished, leave the group, disconnect."""
        self.feed.end()
        if self._leaving is not None:
            await asyncio.wait({self._leaving})
        membership = self._membership if self._member_task is not None else None
        try:
            if membership is not None:  # its commits may wait for the member, which still runs
                await membership.give_up_all()
            else:
                self.partitions.leave(self.partitions.all)
                await self.commits.commit_before("the consumer is closed", _LAST_COMMIT_S)
        finally:
            await cancel_and_wait(*self._tasks)
            if membership is not None:
                await membership.leave()
            await self.metrics_push.close(_LAST_PUSH_S)
            await self.cluster.close()
