"""A consumer in its group: which protocol it uses, and what becomes of its partitions."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.consumer.group_topics import GroupTopics
from kafkaclient.consumer.partitions import listed
from kafkaclient.consumer.subscription import ends_in_silence, in_listener
from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    ConsumerStateError,
    KafkaError,
    UnsupportedVersionError,
    safe_repr,
)
from kafkaclient.group.classic import ClassicProtocol
from kafkaclient.group.heartbeat_member import HeartbeatMember, HeartbeatOptions
from kafkaclient.group.member import Member, MemberOptions
from kafkaclient.time_limit import cancel_and_wait, time_limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Set

    from kafkaclient.config.consumer import ConsumerConfig
    from kafkaclient.consumer.commits import Commits
    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.consumer.reports import ConsumerReports
    from kafkaclient.consumer.steps import PollInterval
    from kafkaclient.consumer.subscription import RebalanceListener, Subscription
    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.group.connection import GroupConnection
    from kafkaclient.group.member import GroupMember
    from kafkaclient.metrics.consumer import ConsumerMetrics
    from kafkaclient.reader.cluster import ReaderCluster
    from kafkaclient.types import ConsumerGroupMetadata, TopicPartition

_log = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 5.0
_COMMIT_TIMEOUT_S = 10.0
_CLOSING_S = 30.0  # the listener may take at most this long when the consumer is closed
_FIRST_LOOK_S = 1.0  # for topics that do not exist yet; the pause doubles up to metadata.max.age.ms
_LOOK_AGAIN_S = 2.0  # other members wait for it
# A coordinator's answers if it has no KIP-848, or the group's classic members cannot be taken over.
_CLASSIC_ONLY = frozenset(
    {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Membership:
    """The :class:`~kafkaclient.group.classic.Assignee` of a consumer's member. It makes a new
    member each time that the consumer joins: at the start, and after it had to leave because the
    application was busy with a record for too long."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ReaderCluster,
        connection: GroupConnection,
        gate: CommitGate,
        partitions: Partitions,
        polls: PollInterval,
        listener: RebalanceListener,
        clock: Callable[[], float],
        metrics: ConsumerMetrics,
        reports: ConsumerReports,
    ) -> None:
        self._config = config
        self._reports = reports
        self._metrics = metrics
        self.rebalance_began = metrics.rebalance_began
        self._group_topics = GroupTopics(
            cluster, connection.group_id, internal=not config.exclude_internal_topics
        )
        self._connection = connection
        self._gate = gate
        self._partitions = partitions
        self._polls = polls
        self._listener = listener
        self._clock = clock
        self._subscription: Subscription | None = None
        self._told: Subscription | None = None
        """The subscription that the group knows."""
        self.has_assignment = False
        """Whether the group has assigned partitions, maybe none, for the last subscription, and
        the member has not been lost since."""
        self.denial: KafkaError | None = None
        """Why a topic of the subscription may not be described, as of the last look."""
        self._commits: Commits | None = None
        self._member: GroupMember | None = None
        self._is_classic = config.group_protocol == "classic"
        self._polled = asyncio.Event()
        self._look = asyncio.Event()
        self._losing: asyncio.Task[None] | None = None
        self._is_closing = False
        self._giving_up: Set[TopicPartition] = frozenset()
        """Partitions whose revocation the listener is being told of."""

    @property
    def protocol(self) -> str:
        return "classic" if self._is_classic else "consumer"

    @property
    def is_member(self) -> bool:
        """Whether the consumer is in its group, or joins it: not before the topics were looked up,
        nor after it had to leave."""
        return self._member is not None

    def commit_refused(self, code: int, group: ConsumerGroupMetadata) -> None:
        """The coordinator has refused a commit."""
        if self._member is not None:
            self._member.commit_refused(code, group)

    def polled(self) -> None:
        """A loop asks for records: join, if the consumer had to leave."""
        self._polled.set()

    def resubscribe(self, subscription: Subscription) -> None:
        """Use another subscription from now on."""
        self._subscription, self.has_assignment = subscription, False
        self._look.set()

    async def run(self, subscription: Subscription, commits: Commits) -> None:
        """Be in the group, until cancelled; then it is left. Raises what ends a member."""
        self._subscription, self._commits = subscription, commits
        self.has_assignment = False
        while True:
            await self._join()
            await self._polled.wait()

    async def give_up_all(self) -> None:
        """The consumer is closed: commit what is finished. What is in hand is not waited for."""
        self._is_closing = True
        if partitions := self._partitions.all - self._giving_up:
            self._partitions.leave(partitions)
            await self._give_up(partitions)

    def forget(self) -> None:
        """The consumer has unsubscribed."""
        self._told, self.has_assignment = None, False

    async def end(
        self, partitions: Set[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """The consumer has unsubscribed from these partitions: commit what was finished."""
        assert self._commits is not None
        if partitions:
            told = frozenset(partitions)
            self._reports.revoked(told)
            await self._tell(self._listener.on_revoked, told)
        await self._commits.commit_last("unsubscribe", _COMMIT_TIMEOUT_S, lambda: offsets)

    async def leave(self, reason: str = "the consumer is closed") -> None:
        """Leave the group, after :meth:`run` was cancelled."""
        await self._leave(reason)
        if self._losing is not None:
            await asyncio.gather(self._losing, return_exceptions=True)

    async def _join(self) -> None:
        """Be a member until the application takes too long."""
        if not self._is_classic:
            try:
                return await self._stay(self._heartbeat_member(), _never)
            except (UnsupportedVersionError, BrokerError) as error:
                fits = isinstance(error, UnsupportedVersionError) or error.code in _CLASSIC_ONLY
                if self._config.group_protocol == "consumer" or not fits:
                    raise
                _log.info(
                    "group %s uses the classic protocol: %s", self._connection.group_id, error
                )
                self._is_classic = True
                self._gate.refuse_waiting()
                self.lost(self._partitions.all)  # of a group that went back to classic members
        return await self._be_classic()

    async def _be_classic(self) -> None:
        config = self._config
        protocol = ClassicProtocol(
            config.partition_assignment_strategy,
            self._topics,
            self._group_topics.counts,
            self._look_again,
            self,
        )
        options = MemberOptions(
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            group_instance_id=config.group_instance_id,
        )
        member = Member(self._connection, protocol, options, self._gate, self._clock)
        await self._stay(member, protocol.topics_changed)

    def _heartbeat_member(self) -> HeartbeatMember:
        config = self._config
        options = HeartbeatOptions(
            rebalance_timeout_ms=config.max_poll_interval_ms,
            group_instance_id=config.group_instance_id,
            rack=config.client_rack or None,
            assignor=config.group_remote_assignor,
        )
        return HeartbeatMember(
            self._connection,
            options,
            self._gate,
            self._clock,
            lambda: (self._topics(), self._subscribed.pattern),
            lambda ids: self._group_topics.names(ids, self._subscribed),
            self,
        )

    async def _stay(
        self, member: GroupMember, topics_changed: Callable[[], Awaitable[bool]]
    ) -> None:
        """Run the member until it must leave. Raises what ends it."""
        await self._learn_topics()
        self._metrics.joining()
        self._member = member
        expiry = asyncio.create_task(self._polls.expired(), name="kafkaclient-poll-interval")
        work = (member.run(), self._watch_topics(member, topics_changed))
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.wait({expiry, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await cancel_and_wait(expiry, *tasks)
        _log.warning(
            "group %s: no record was asked for in %g s (max.poll.interval.ms), so this member "
            "leaves, and others get its partitions. It joins again when the next record is asked "
            "for. If records take that long, raise max.poll.interval.ms",
            *(self._connection.group_id, self._polls.limit_s),
        )
        self._polled.clear()  # join again when a record is asked for after this
        self._gate.refuse_waiting()
        self.lost(self._partitions.all)
        await self._leave("max.poll.interval.ms has expired")

    async def _leave(self, reason: str) -> None:
        member, self._member = self._member, None
        if member is not None:
            await member.leave(reason, _LEAVE_TIMEOUT_S)

    # --- topics ---------------------------------------------------------------------------------

    @property
    def _subscribed(self) -> Subscription:
        assert self._subscription is not None
        return self._subscription

    async def _learn_topics(self) -> bool:
        """Look for the topics of the subscription. Whether other ones match its pattern now."""
        return await self._group_topics.learn(self._subscribed, match=self._is_classic)

    async def _look_again(self) -> None:
        """Match the pattern before the group rebalances: another member may have found a new topic,
        for which the group need not rebalance once more (as in Java)."""
        if self._matches:
            with suppress(TimeoutError, KafkaError):  # the next look tells of it
                async with time_limit(_LOOK_AGAIN_S):
                    await self._learn_topics()

    @property
    def _matches(self) -> bool:
        """Whether this client matches the pattern of the subscription."""
        return self._is_classic and self._subscribed.pattern is not None

    def _topics(self) -> Collection[str]:
        self._told = self._subscribed
        return self._told.topics

    async def _watch_topics(
        self, member: GroupMember, topics_changed: Callable[[], Awaitable[bool]]
    ) -> None:
        """Join again when the subscription has changed. In a classic group also when other topics
        match its pattern, and as the leader when topics of the group have other partitions than at
        the last assignment; with KIP-848 the coordinator looks for these."""
        longest_s = self._config.look_every_s
        pause_s = min(_FIRST_LOOK_S, longest_s)
        has_changed = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._look.wait()
            pause_s = min(2 * pause_s, longest_s)
            has_changed |= self._look.is_set()
            self._look.clear()
            try:
                if has_changed:
                    await self._learn_topics()
                    has_changed = False
                    member.request_rejoin("the subscription has changed")
                elif self._matches:
                    if await self._learn_topics():
                        member.request_rejoin("other topics match the pattern")
                elif self._is_classic:
                    await self._group_topics.check(self._subscribed)
                    self.denial = None
                if await topics_changed():
                    member.request_rejoin("topics of the group have other partitions")
                    pause_s = min(_FIRST_LOOK_S, longest_s)
            except AuthorizationError as error:
                self.denied(error)
                pause_s = min(_FIRST_LOOK_S, longest_s)
            except KafkaError as error:
                if not error.retriable:
                    raise
                _log.info("the topics of the group could not be looked at: %s", error)

    # --- partitions -----------------------------------------------------------------------------

    def rebalance_ended(self) -> None:
        self._metrics.rebalance_ended()
        self.has_assignment = self._told is self._subscription
        self.denial = None
        self._partitions.notify()

    async def added(self, partitions: Set[TopicPartition]) -> None:
        times_lost = self._gate.times_lost
        while (losing := self._losing) is not None:
            await asyncio.wait({losing})
            losing.result()
            if losing is self._losing:
                break
        if self._is_closing or times_lost != self._gate.times_lost:
            return
        _log.info("group %s: %s added", self._connection.group_id, listed(partitions))
        self._partitions.add(partitions, self._subscribed.is_new, self._subscribed.first_id)
        told = frozenset(partitions)
        self._reports.assigned(told)
        await self._tell(self._listener.on_assigned, told)
        self._partitions.start(partitions)

    async def revoked(self, partitions: Set[TopicPartition]) -> None:
        if self._is_closing:
            return  # they are being given up
        _log.info("group %s: %s revoked", self._connection.group_id, listed(partitions))
        self._partitions.leave(partitions)
        with suppress(TimeoutError):
            async with time_limit(self._polls.limit_s):
                await self._partitions.wait_finished(partitions)
        await self._give_up(partitions)

    async def _give_up(self, partitions: Set[TopicPartition]) -> None:
        assert self._commits is not None
        self._giving_up |= partitions
        told = frozenset(partitions)
        self._reports.revoked(told)
        try:
            await self._tell(self._listener.on_revoked, told)
        finally:
            self._giving_up -= partitions
            what = "the consumer is closed" if self._is_closing else "partitions are revoked"
            await self._commits.commit_before(what, _COMMIT_TIMEOUT_S, partitions)
            self._partitions.remove(partitions)

    def denied(self, error: BrokerError) -> None:
        self.denial = error
        self._partitions.complain(error)

    def lost(self, partitions: Set[TopicPartition]) -> None:
        self.has_assignment = False
        if not partitions:
            return
        self._metrics.membership_lost()
        self._metrics.joining()
        _log.warning(
            "group %s: %s lost; other members may have them",
            *(self._connection.group_id, listed(partitions)),
        )
        self._partitions.remove(partitions)
        told = frozenset(partitions)
        self._reports.lost(told)
        self._losing = asyncio.create_task(self._tell_lost(self._losing, told))

    async def _tell_lost(
        self, before: asyncio.Task[None] | None, partitions: frozenset[TopicPartition]
    ) -> None:
        if before is not None:
            await before
        await self._tell(self._listener.on_lost, partitions)

    async def _tell(
        self,
        method: Callable[[frozenset[TopicPartition]], Awaitable[None] | None],
        partitions: frozenset[TopicPartition],
    ) -> None:
        limit_s = self._polls.limit_s
        if self._is_closing:
            limit_s = min(limit_s, _CLOSING_S)
        token = in_listener.set(True)
        try:
            waiting = method(partitions)
            if waiting is not None:
                try:
                    async with time_limit(limit_s) as limit:
                        await waiting
                except TimeoutError:
                    if not limit.expired():
                        raise
                    _log.error("a rebalance listener took longer than %g s; cancelled", limit_s)
        except BaseException as error:
            if not ends_in_silence(error):
                raise
            raise ConsumerStateError(f"a rebalance listener raised {safe_repr(error)}") from error
        finally:
            in_listener.reset(token)


async def _never() -> bool:
    return False
