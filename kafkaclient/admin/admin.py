"""The admin client: what applications and the command line call."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from kafkaclient.admin.description import ClusterDescription, LimitsReport, report, seen_by
from kafkaclient.admin.guard import existing, settled_outcomes, usage_of
from kafkaclient.admin.opened import Opened
from kafkaclient.admin.reassign.quotas import ReplicationQuotas
from kafkaclient.admin.reassign.reassigner import Reassigner
from kafkaclient.admin.reassign.throttled import ThrottledReassignment
from kafkaclient.admin.session import Session
from kafkaclient.admin.topics import TopicDescription, described
from kafkaclient.admin.transaction_api import TransactionAdmin
from kafkaclient.cluster.client import Client
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import AdminStateError, ConfigError, KafkaError, UnsupportedVersionError
from kafkaclient.producer.producer import Producer
from kafkaclient.topic_names import check_topic_name
from kafkaclient.wire.admin import DescribeQuorumCall
from kafkaclient.wire.codec import NewTopic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from kafkaclient.admin.configs import ConfigResource
    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.limits_file import FileLimits
    from kafkaclient.admin.reassign.plan import ReassignmentPlan
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import ConfigEntry
    from kafkaclient.wire.groups import DescribedGroup
    from kafkaclient.wire.reassignments import OngoingReassignment
    from kafkaclient.wire.results import MetadataResult, TopicInfo

__all__ = ["Admin"]


class Admin(TransactionAdmin, Client):
    """Looks after a cluster: topics, configurations, partition limits (KIP-578), transactions.

    ::

        async with Admin("localhost:9092") as admin:
            await admin.create_topic("flights", partitions=6, replication_factor=3)

    Parameters: bootstrap servers, or a mapping of options under Kafka's dotted names, and options
    by keyword, as with the producer; besides the producer's own (those about connections and
    security count) there is ``default_api_timeout_ms`` (default 60,000): what every call ends
    within, unless it is given ``timeout_s``. ``limits`` says where partition limits are kept: by
    default in a topic of the cluster; a :class:`~kafkaclient.admin.FileLimits`, or None to heed no
    limits at all. ``dialer``, ``clock`` (monotonic seconds), ``wall_clock`` (seconds since the
    epoch) and ``rng`` (choice of brokers, pauses) are seams for tests.

    No call ever creates a topic by asking for it. Every call raises AdminTimeoutError when its time
    is over, AdminStateError when this client has not been started or is closed,
    AuthenticationError, and UnsupportedVersionError for brokers that are too old; what else is with
    each. Making an admin client does no I/O.

    Raises:
        ConfigError: an option is unknown, unusable or in conflict with another.
    """

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *,
        limits: FileLimits | Literal["topic"] | None = "topic",
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Any,
    ) -> None:
        self.config = AdminConfig.build(bootstrap_or_mapping, options)
        if isinstance(limits, str) and limits != "topic":
            raise ConfigError(f"limits={limits!r}: give 'topic', FileLimits(path), or None")
        self._limits = limits
        self._dialer = dialer
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng or Random()
        self._open: Opened | None = None
        measured_by = clock or _loop_time
        self.reassigner = Reassigner(self._operation, measured_by, self._rng)
        """Moves replicas, step by step; :meth:`throttled` has the steps joined."""
        self.replication_quotas = ReplicationQuotas(self._operation, measured_by)
        """Throttles of replication, apart from any plan."""

    def __repr__(self) -> str:
        return f"<Admin {self.config.client_id!r} {'running' if self._open else 'not running'}>"

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach the cluster. Raises BootstrapError when no bootstrap server answers in time."""
        if self._open is not None:
            return
        session = Session(self.config, dialer=self._dialer, clock=self._clock, rng=self._rng)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        self._open = Opened(
            session,
            self._limits,
            rng=self._rng,
            wall_clock=self._wall_clock,
            new_producer=self._new_producer,
        )

    async def close(self) -> None:
        """Close the connections; calls under way end with AdminStateError."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.session.close()

    async def _end(self) -> None:
        await self.close()

    # --- topics: to see -----------------------------------------------------------------------

    async def list_topics(
        self, *, internal: bool = True, timeout_s: float | None = None
    ) -> list[str]:
        """The names of all topics that this client may describe, in order."""
        topics = await self.describe_topics(timeout_s=timeout_s)
        return [topic.name for topic in topics.values() if internal or not topic.internal]

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, TopicDescription]:
        """Topics by name, in order; None for all. Raises UnknownTopicError for one that does not
        exist, InvalidTopicError for a name that no topic can have, AuthorizationError for one that
        this client may not describe."""
        wanted = None if names is None else tuple(dict.fromkeys(names))
        for name in wanted or ():
            check_topic_name(name)
        async with self._operation("describing topics", timeout_s) as opened:
            told = await opened.session.metadata(wanted)
        return {info.name: described(info) for info in sorted(told.topics, key=lambda t: t.name)}

    async def describe_topic(
        self, name: str, *, timeout_s: float | None = None
    ) -> TopicDescription:
        """One topic; raises as :meth:`describe_topics`."""
        return (await self.describe_topics([name], timeout_s=timeout_s))[name]

    # --- topics: to change --------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        replica_assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Create a topic. Numbers left out are the cluster's (``num.partitions``,
        ``default.replication.factor``); ``replica_assignment`` has the replicas of each partition,
        the preferred leader first, instead of numbers.

        Raises TopicExistsError; InvalidTopicError for a name that no topic can have;
        PolicyViolationError when partition limits or a policy of the cluster do not allow it;
        PartitionLimitRaceError when it was created and somebody else took
        the same room at the same time; the controller's BrokerError for what it refuses;
        AuthorizationError.
        """
        topic = NewTopic(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            dict(configs or {}),
            dict(enumerate(map(tuple, replica_assignment or ()))),
        )
        results = await self.create_topics(
            [topic], validate_only=validate_only, timeout_s=timeout_s
        )
        _raise(results[name])

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Create topics; by name None, or what :meth:`create_topic` raises. Each is created as a
        whole or not at all; when there is not room for all, the earlier ones get it."""
        wanted = list({topic.name: topic for topic in topics}.values())
        async with self._operation("creating topics", timeout_s) as opened:
            limits, cluster = await opened.limits_and_cluster()
            if limits.any:
                return await opened.guard.create(
                    wanted, limits, cluster, validate_only=validate_only
                )
            outcomes = await opened.requests.create(wanted, validate_only=validate_only)
            return settled_outcomes(outcomes, existing(cluster) if validate_only else frozenset())

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic with all its records. Raises UnknownTopicError, AuthorizationError, or the
        controller's BrokerError."""
        _raise((await self.delete_topics([name], timeout_s=timeout_s))[name])

    async def delete_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete topics with all their records; by name None, or what :meth:`delete_topic`
        raises."""
        async with self._operation("deleting topics", timeout_s) as opened:
            return await opened.requests.delete(names)

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        replica_assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Let a topic have ``total`` partitions; ``replica_assignment`` has the replicas of those
        that are added. Keys may belong to other partitions afterwards. More than 5,000 are added in
        steps, of which those done stand when a later one fails.

        Raises UnknownTopicError, and as :meth:`create_topic`.
        """
        check_topic_name(name)
        async with self._operation(f"adding partitions to topic {name!r}", timeout_s) as opened:
            failures = 0
            limits, cluster = await opened.limits_and_cluster()
            while (topic := _topic_of(cluster, name)) is None:
                await opened.requests.check_known(name)
                failures += 1
                await opened.session.pause(failures)
                limits, cluster = await opened.limits_and_cluster()
            await opened.guard.extend(
                topic,
                total,
                replica_assignment or (),
                limits,
                cluster,
                validate_only=validate_only,
            )

    # --- configurations -----------------------------------------------------------------------

    async def describe_configs(
        self,
        resource: ConfigResource,
        keys: Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """The configuration of a topic, a broker or all brokers, by key; ``keys`` None for all
        keys. Sensitive values are None. Raises the broker's error, ConfigError for a broker that is
        not up."""
        async with self._operation(f"describing {resource}", timeout_s) as opened:
            return await opened.configs.describe(resource, keys)

    async def alter_configs(
        self,
        resource: ConfigResource,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the operation's name
        *,
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change some keys and leave the others alone (KIP-339): all changes or none. ``delete``
        brings a key's default back; ``append`` and ``subtract`` are for lists. Raises the broker's
        error, ConfigError for a key named twice, none at all, or a broker that is not up."""
        async with self._operation(f"configuring {resource}", timeout_s) as opened:
            await opened.configs.alter(
                resource,
                set=set or {},
                delete=delete,
                append=append or {},
                subtract=subtract or {},
                validate_only=validate_only,
            )

    # --- the cluster --------------------------------------------------------------------------

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """The brokers that are up, what they host, and the controllers."""
        async with self._operation("describing the cluster", timeout_s) as opened:
            cluster = await opened.session.metadata(None)
            try:
                quorum = await opened.session.call(DescribeQuorumCall())
            except UnsupportedVersionError:
                return seen_by(cluster, None)  # a cluster with ZooKeeper
        return seen_by(cluster, quorum)

    # --- groups -------------------------------------------------------------------------------

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> DescribedGroup:
        """A consumer group of the classic protocol, with its members. One that does not exist has
        the state ``Dead``. Raises AuthorizationError, or the coordinator's BrokerError."""
        async with self._operation(f"describing group {group!r}", timeout_s) as opened:
            return await opened.groups.describe(group)

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """What a group has committed; a partition without an offset is left out. Raises as
        :meth:`describe_group`."""
        async with self._operation(f"reading the offsets of group {group!r}", timeout_s) as opened:
            return await opened.groups.committed(group, partitions)

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Set what a group without members has committed. Raises AuthorizationError, or the
        coordinator's BrokerError, such as UNKNOWN_MEMBER_ID when it has members."""
        async with self._operation(f"setting the offsets of group {group!r}", timeout_s) as opened:
            await opened.groups.alter_offsets(group, offsets)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where partitions end for those who read committed records; one that does not exist or has
        no leader now is left out. Raises AuthorizationError, or the leader's BrokerError."""
        async with self._operation("looking for the ends of partitions", timeout_s) as opened:
            return await opened.groups.ends(partitions)

    # --- moves --------------------------------------------------------------------------------

    async def list_partition_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """The moves of replicas under way. Raises the controller's BrokerError."""
        async with self._operation("listing reassignments", timeout_s) as opened:
            return await opened.reassignments.ongoing()

    async def alter_partition_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin to give partitions other replicas, the preferred leader first; None cancels a move.
        By partition None, or the controller's error.

        Raises PolicyViolationError, and begins nothing, if a broker would gain replicas above
        ``max.broker.partitions`` while the moves are under way; PartitionLimitRaceError when they
        have begun and somebody else took the same room at the same time; UnknownTopicError.
        """
        wanted = {partition: None if r is None else tuple(r) for partition, r in moves.items()}
        async with self._operation("reassigning partitions", timeout_s) as opened:
            limits, cluster = await opened.limits_and_cluster()
            opened.reassignments.check(wanted, limits, cluster)
            results = await opened.reassignments.alter(wanted, cluster)
            begun = {p: wanted[p] for p, error in results.items() if error is None}
            await opened.reassignments.check_room(begun, limits, cluster)
            return results

    def throttled(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        *,
        bytes_per_second: int | None,
        additional: bool = False,
        skip_dead: bool = False,
        on_rollback: Callable[[ReassignmentPlan], None] | None = None,
    ) -> ThrottledReassignment:
        """Give partitions other replicas within a quota for each broker (KIP-73; None: no quota)::

            async with admin.throttled(plan, bytes_per_second=10_000_000) as moves:
                async for progress in moves.progress():
                    print(progress.sum_replica_lag, progress.time_left_s)

        Entering the block throttles the replicas concerned, then has them begin to move. Leaving it
        waits until all have arrived, then restores the throttles that there were before. Leaving it
        by an exception, as when it is cancelled, cancels the moves that have not arrived, and then
        restores the throttles, too.

        Entering raises as :meth:`Reassigner.begin`, which has the other parameters; leaving raises
        ReassignmentError for partitions that the controller refused, or that somebody else sent
        elsewhere, and for throttles that could not be restored.
        """
        return ThrottledReassignment(
            self.reassigner,
            self.replication_quotas,
            plan,
            bytes_per_second,
            additional=additional,
            skip_dead=skip_dead,
            on_rollback=on_rollback,
        )

    # --- partition limits ---------------------------------------------------------------------

    async def limits(self, *, timeout_s: float | None = None) -> Limits:
        """The partition limits that hold for this client."""
        async with self._operation("reading the partition limits", timeout_s) as opened:
            return await opened.limits()

    async def set_limits(
        self, changes: Mapping[str, str | int | None], *, timeout_s: float | None = None
    ) -> Limits:
        """Set limits by their names in KIP-578 (None or ``off``: no limit), leave the others; what
        holds afterwards. Nothing that exists is touched.

        Raises ConfigError for what is no limit; KafkaError when somebody else has set another
        value at the same time, which then holds.
        """
        async with self._operation("setting partition limits", timeout_s) as opened:
            if opened.store is None:
                raise AdminStateError("this admin client was made with limits=None")
            return await opened.store.change(changes)

    async def check_limits(self, *, timeout_s: float | None = None) -> LimitsReport:
        """The limits beside what is used of them. Topics that this client may not describe are
        missing from it."""
        async with self._operation("checking the partition limits", timeout_s) as opened:
            limits, cluster = await opened.limits_and_cluster()
        return report(limits, usage_of(cluster))

    # ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _operation(self, what: str, timeout_s: float | None = None) -> AsyncIterator[Opened]:
        """The parts, for an operation with a time limit; raises as :meth:`.Session.limit`."""
        opened = self._open
        if opened is None:
            raise AdminStateError(f"{what}: the admin client is not running: start it first")
        async with opened.session.limit(what, timeout_s):
            yield opened

    def _new_producer(self) -> Producer:
        options = self.config.for_producer() | {
            "allow_auto_create_topics": False,
            "linger_ms": 0,
        }
        return Producer(options, dialer=self._dialer, clock=self._clock, rng=self._rng)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _topic_of(cluster: MetadataResult, name: str) -> TopicInfo | None:
    """If the broker that told of the cluster knows it."""
    return next((each for each in cluster.topics if each.name == name and each.partitions), None)


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise error
