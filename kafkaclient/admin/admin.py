"""The admin client that applications and the command line call."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Literal, Self

from kafkaclient.admin.coordinators import GroupAdmin, TransactionAdmin
from kafkaclient.admin.description import (
    ClusterDescription,
    TopicDescription,
    describe_cluster,
    description_of,
    live_brokers,
)
from kafkaclient.admin.limits import LimitsReport, Usage, limits_report
from kafkaclient.admin.partitions import PartitionAdmin
from kafkaclient.admin.reassign.reassigner import Reassigner
from kafkaclient.admin.reassign.throttled_reassignment import (
    ReplicationQuotas,
    ThrottledReassignment,
)
from kafkaclient.admin.running import RunningAdmin
from kafkaclient.admin.session import AdminSession
from kafkaclient.config.reader import AdminConfig
from kafkaclient.errors import AdminStateError, ConfigError, KafkaError, UnsupportedVersionError
from kafkaclient.producer.producer import Producer
from kafkaclient.topic_names import check_topic_name, several
from kafkaclient.wire.admin import DescribeQuorumCall
from kafkaclient.wire.topics import NewPartitions, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from kafkaclient.admin.configs import ConfigResource
    from kafkaclient.admin.limits import Limits
    from kafkaclient.admin.limits_store import FileLimits
    from kafkaclient.admin.reassign.plan import ReassignmentPlan
    from kafkaclient.config.keywords import AdminKeywords
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import ConfigEntry, OngoingReassignment


class Admin(TransactionAdmin, GroupAdmin, PartitionAdmin):
    """Manages a cluster: topics, configurations, partition limits (KIP-578), transactions.

    ::

        async with Admin("localhost:9092") as admin:
            await admin.create_topic("flights", partitions=6, replication_factor=3)

    The first argument is the bootstrap servers, or a mapping of options under Kafka's dotted names.
    Options are also given by keyword: the producer's options for connections and security, and
    ``default_api_timeout_ms`` (default 60,000), the time limit of a call without ``timeout_s``.
    ``limits`` is where the partition limits that this client enforces are stored: ``"topic"`` for a
    topic of the cluster (as the command line does), a :class:`~kafkaclient.admin.FileLimits` for a
    file, or None (default) to enforce no limits.
    Tests replace ``dialer``, ``clock`` (monotonic seconds), ``wall_clock`` (seconds since the
    epoch) and ``rng`` (choice of brokers, pauses).

    The constructor does no I/O. Describing a topic never creates the topic. Every call may raise
    AdminTimeoutError, AdminStateError (the client is not started, is closed, or belongs to another
    event loop), AuthenticationError and UnsupportedVersionError (a broker is too old). The
    docstring of a call lists its other errors.

    Raises:
        ConfigError: an option is unknown, unusable or in conflict with another.
    """

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *,
        limits: FileLimits | Literal["topic"] | None = None,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Unpack[AdminKeywords],
    ) -> None:
        self.config: AdminConfig = AdminConfig.build(bootstrap_or_mapping, options)
        if isinstance(limits, str) and limits != "topic":
            raise ConfigError(f"limits={limits!r}: give 'topic', FileLimits(path), or None")
        self._limits = limits
        self._dialer = dialer
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng or Random()
        measured_by = clock or _loop_time
        self.reassigner: Reassigner = Reassigner(self._operation, measured_by, self._rng)
        """The single steps of a reassignment; :meth:`throttled` runs all of them."""
        self.replication_quotas: ReplicationQuotas = ReplicationQuotas(self._operation, measured_by)
        """Replication throttles that do not belong to a plan."""

    def __repr__(self) -> str:
        return f"<Admin {self.config.client_id!r} {'running' if self._running else 'not running'}>"

    # --- start and close ----------------------------------------------------------------------

    async def start(
        self,
        *,
        timeout_s: float | None = None,
        on_failure: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """Connect to the cluster. Raises BootstrapError if no bootstrap server answers within
        ``timeout_s`` seconds (default: ``default.api.timeout.ms``), or all of them refuse
        connections for ``bootstrap.connect.timeout.ms``.

        ``on_failure`` is called with the error of each failed attempt before the next attempt. If
        it raises, the client is not started.
        """
        if self._running is not None:
            return
        session = AdminSession(self.config, dialer=self._dialer, clock=self._clock, rng=self._rng)
        try:
            await session.start(timeout_s, on_failure)
        except BaseException:
            await session.close()
            raise
        self._running = RunningAdmin(
            session,
            self._limits,
            rng=self._rng,
            wall_clock=self._wall_clock,
            new_producer=self._new_producer,
        )

    async def close(self) -> None:
        """Close the connections. Pending calls raise AdminStateError. So does this call, if it is
        made in another event loop than :meth:`start`."""
        running = self._running
        if running is not None:
            running.session.check_home("close")
            self._running = None
            await running.session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- describing topics --------------------------------------------------------------------

    async def list_topics(
        self, *, internal: bool = True, timeout_s: float | None = None
    ) -> list[str]:
        """The names of all topics that this client may describe, sorted."""
        topics = await self.describe_topics(timeout_s=timeout_s)
        return [topic.name for topic in topics.values() if internal or not topic.internal]

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, TopicDescription]:
        """Descriptions by topic name, sorted; ``names=None`` describes all topics. Raises
        UnknownTopicError, InvalidTopicError for an illegal name, and AuthorizationError for a named
        topic that this client may not describe."""
        wanted = None if names is None else several(names, "names")
        for name in wanted or ():
            check_topic_name(name)
        async with self._operation("describing topics", timeout_s) as running:
            cluster = await running.session.metadata(wanted)
        topics, live = sorted(cluster.topics, key=lambda t: t.name), live_brokers(cluster)
        return {info.name: description_of(info, live) for info in topics}

    async def describe_topic(
        self, name: str, *, timeout_s: float | None = None
    ) -> TopicDescription:
        """The description of one topic. Raises as :meth:`describe_topics`."""
        return (await self.describe_topics([name], timeout_s=timeout_s))[name]

    # --- changing topics ----------------------------------------------------------------------

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
        """Create a topic. ``partitions`` and ``replication_factor`` default to the cluster's
        ``num.partitions`` and ``default.replication.factor``. ``replica_assignment`` replaces both:
        it lists the replicas of each partition, the preferred leader first.

        Raises TopicExistsError; InvalidTopicError for an illegal name; PolicyViolationError if
        partition limits or a policy of the cluster forbid the topic; PartitionLimitRaceError if the
        topic was created, but a concurrent change used the same capacity; AuthorizationError; or
        the controller's BrokerError.
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
        """Create topics. Returns by name None, or the error that :meth:`create_topic` raises: check
        each value, because nothing is raised for a topic that was not created. A topic is created
        completely or not at all. If the limits do not allow all topics, the first ones are created.
        Raises ConfigError if a topic is given twice."""
        wanted = list(topics)
        counts = Counter(topic.name for topic in wanted)
        if twice := sorted(name for name, count in counts.items() if count > 1):
            raise ConfigError(f"creating topics: {', '.join(twice)} given twice; nothing was sent")
        async with self._operation("creating topics", timeout_s) as running:
            return await running.guard.create(wanted, validate_only=validate_only)

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic and its records. Raises UnknownTopicError, AuthorizationError, or the
        controller's BrokerError."""
        _raise((await self.delete_topics([name], timeout_s=timeout_s))[name])

    async def delete_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete topics and their records. Returns by name None, or the error that
        :meth:`delete_topic` raises: check each value, because nothing is raised for a topic
        that was not deleted."""
        wanted = several(names, "names")
        async with self._operation("deleting topics", timeout_s) as running:
            return await running.topics.delete(wanted)

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        replica_assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Increase the number of partitions of a topic to ``total``. ``replica_assignment`` lists
        the replicas of each new partition. A key may map to another partition afterwards. More than
        5,000 partitions are added in several requests: partitions already added stay if a later
        request fails.

        Raises UnknownTopicError, and as :meth:`create_topic`.
        """
        check_topic_name(name)
        step = NewPartitions(name, total, tuple(map(tuple, replica_assignment or ())))
        async with self._operation(f"adding partitions to topic {name!r}", timeout_s) as running:
            await running.guard.extend(step, validate_only=validate_only)

    # --- configurations -----------------------------------------------------------------------

    async def describe_configs(
        self,
        resource: ConfigResource,
        keys: Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """The configuration of a topic, a broker or all brokers, by key. ``keys=None`` returns all
        keys. Sensitive values are None. Raises the broker's error, or ConfigError if the broker is
        down."""
        wanted = None if keys is None else several(keys, "keys")
        async with self._operation(f"describing {resource}", timeout_s) as running:
            return await running.configs.describe(resource, wanted)

    async def describe_topic_configs(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
        """The configurations of several topics in one request for 500 topics: by name, as
        :meth:`describe_configs`, or the error that it raises."""
        wanted = several(names, "names")
        async with self._operation("describing configurations of topics", timeout_s) as running:
            return await running.configs.describe_topics(wanted)

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
        """Change the named keys only (KIP-339): all changes or none. ``delete`` restores a key's
        default; ``append`` and ``subtract`` change lists. Raises the broker's error, or ConfigError
        if a key is named twice, no key is named, or the broker is down."""
        restored = several(delete, "delete")
        async with self._operation(f"configuring {resource}", timeout_s) as running:
            await running.configs.alter(
                resource,
                set=set,
                delete=restored,
                append=append,
                subtract=subtract,
                validate_only=validate_only,
            )

    # --- the cluster --------------------------------------------------------------------------

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """The brokers that are up, the number of their replicas, and the controllers. Without the
        right to Describe the cluster the controllers are None."""
        async with self._operation("describing the cluster", timeout_s) as running:
            session = running.session
            cluster = await session.metadata(None)

            async def attempt() -> ClusterDescription:
                return describe_cluster(cluster, await session.once(DescribeQuorumCall()))

            try:
                return await session.until_answered(attempt)
            except UnsupportedVersionError:
                return describe_cluster(cluster, None)  # a ZooKeeper cluster

    # --- reassignments ------------------------------------------------------------------------

    async def list_partition_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """The ongoing reassignments, by partition. Raises the controller's BrokerError."""
        async with self._operation("listing reassignments", timeout_s) as running:
            return await running.reassignments.ongoing()

    async def alter_partition_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start the reassignment of partitions to the given replicas, the preferred leader first;
        None cancels a partition's reassignment. Returns by partition None, or the controller's
        error.

        Raises PolicyViolationError, and starts nothing, if a broker would exceed
        ``max.broker.partitions`` during the reassignment; PartitionLimitRaceError if the
        reassignment started, but a concurrent change used the same capacity; UnknownTopicError.
        """
        wanted = {partition: None if r is None else tuple(r) for partition, r in moves.items()}
        async with self._operation("reassigning partitions", timeout_s) as running:
            limits, cluster = await running.guard.limits_and_cluster()
            running.guard.check_moves(wanted, limits, cluster)
            results = await running.reassignments.alter(wanted)
            begun = {p: wanted[p] for p, error in results.items() if error is None}
            await running.guard.check_race_of_moves(begun, limits, cluster)
            return results

    def throttled(
        self,
        plan: Mapping[TopicPartition, Sequence[int]],
        *,
        bytes_per_second: int | None,
        additional: bool = False,
        skip_dead: bool = False,
        allow_fewer_in_sync: bool = False,
        on_rollback: Callable[[ReassignmentPlan], None] | None = None,
    ) -> ThrottledReassignment:
        """Reassign partitions within a quota per broker (KIP-73; None: no quota)::

            async with admin.throttled(plan, bytes_per_second=10_000_000) as moves:
                async for progress in moves.progress():
                    print(progress.sum_replica_lag, progress.time_left_s)

        Entering the block throttles the replicas, then starts the reassignment. Leaving the block
        waits until the reassignment is complete, then restores the earlier throttles. If an
        exception or a cancellation leaves the block, the reassignments that are not complete are
        cancelled, and the earlier throttles are restored.

        Entering raises as :meth:`Reassigner.begin`, which documents the other parameters. Leaving
        raises ReassignmentError for a partition that the controller refused, for a partition whose
        reassignment another client cancelled or changed, and for a throttle that could not be
        restored.
        """
        return ThrottledReassignment(
            self.reassigner,
            self.replication_quotas,
            plan,
            bytes_per_second,
            additional=additional,
            skip_dead=skip_dead,
            allow_fewer_in_sync=allow_fewer_in_sync,
            on_rollback=on_rollback,
        )

    # --- partition limits ---------------------------------------------------------------------

    async def limits(self, *, timeout_s: float | None = None) -> Limits:
        """The partition limits that this client enforces; without ``Admin(limits=...)`` none."""
        async with self._operation("reading the partition limits", timeout_s) as running:
            return await running.guard.limits()

    async def set_limits(
        self, changes: Mapping[str, str | int | None], *, timeout_s: float | None = None
    ) -> Limits:
        """Set the named limits of KIP-578 (None or ``off``: no limit) and return all limits.
        Existing partitions are not affected.

        Raises ConfigError for an unknown name or an unusable value, KafkaError if a concurrent
        change of another client set a different value, which is then in force.
        """
        async with self._operation("setting partition limits", timeout_s) as running:
            if running.guard.store is None:
                raise AdminStateError(
                    "cannot set limits: this admin client has limits=None; give Admin(..., "
                    "limits='topic')"
                )
            return await running.guard.store.change(changes)

    async def check_limits(self, *, timeout_s: float | None = None) -> LimitsReport:
        """The partition limits, and their usage by topics that this client may describe."""
        async with self._operation("checking the partition limits", timeout_s) as running:
            limits, cluster = await running.guard.limits_and_cluster()
        return limits_report(limits, Usage.of(cluster))

    # ------------------------------------------------------------------------------------------

    def _new_producer(self) -> Producer:
        options = self.config.for_producer() | {"allow_auto_create_topics": False, "linger_ms": 0}
        return Producer(options, dialer=self._dialer, clock=self._clock, rng=self._rng)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise error
