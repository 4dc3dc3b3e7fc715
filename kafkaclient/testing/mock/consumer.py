"""``MockConsumer``, the public class: a consumer that gets its records and rebalances from a test.

It is the consumer itself, on a fake cluster of one broker. Only its membership is another one: the
test assigns the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias, get_args

from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.consumer.consumer import Consumer
from kafkaclient.consumer.membership import Membership
from kafkaclient.consumer.runtime import ConsumerRuntime
from kafkaclient.consumer.subscription import check_topics_are_named
from kafkaclient.errors import ConsumerStateError
from kafkaclient.hooks import FinishedCommit, Hooks
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.mock.records import Script
from kafkaclient.topic_names import several_partitions
from kafkaclient.types import Key_co, TopicPartition, Value_co

if TYPE_CHECKING:
    from collections.abc import Iterable, Set
    from typing import Unpack

    from kafkaclient.config.keywords import ConsumerKeywords
    from kafkaclient.consumer.subscription import RebalanceListener, Subscription
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import HeadersLike, OffsetAndMetadata

MockConsumerCall: TypeAlias = Literal["start", "poll", "commit"]
"""What :meth:`MockConsumer.fail` can let fail. ``poll``: taking records, by whatever method."""

_FETCH_WAIT_MS = 10  # a partition that is added meanwhile waits for the Fetch in flight


class MockConsumer(Consumer[Key_co, Value_co]):
    """A consumer for unit tests, without brokers and threads (Java: ``MockConsumer``).

    It has the methods and options of :class:`~kafkaclient.Consumer`, and reads what the test adds::

        consumer = MockConsumer(group_id="billing", topics=["orders"])
        consumer.add_record("orders", b"7", key=b"ann")
        async with consumer:
            await bill_one(consumer)  # awaits getone(), commit(), ...
        assert consumer.commits[-1] == {TopicPartition("orders", 0): 1}

    Bootstrap servers may be left out, and are not used, nor is the login. ``auto.offset.reset`` is
    ``earliest`` by default. Topics exist once they are named, with ``partitions``: the number for
    every topic, or for topics by name (others have one).

    A subscription gets all partitions of its topics, with ``assign_all=False`` none;
    :meth:`rebalance` and :meth:`lose` change that. ``max.poll.interval.ms`` does not count.
    :attr:`cluster` is the :class:`~kafkaclient.testing.FakeCluster` behind it, for all that this
    class has no method for: deleted records, failing fetches, offsets of the group.
    """

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *misplaced: Never,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
        partitions: int | Mapping[str, int] = 1,
        assign_all: bool = True,
        **options: Unpack[ConsumerKeywords[Key_co, Value_co]],
    ) -> None:
        check_topics_are_named(self, bootstrap_or_mapping, misplaced, options)
        self.cluster: FakeCluster = FakeCluster(1)
        self.commits: list[Mapping[TopicPartition, int | OffsetAndMetadata]] = []
        """What was committed, commit by commit; each offset is that of the next record."""
        self._partition_counts = partitions
        self._created: set[str] = set()
        self._assign_all = assign_all
        self._script = Script(get_args(MockConsumerCall))
        given_options: Mapping[str, Any] = options
        mapping = bootstrap_or_mapping if isinstance(bootstrap_or_mapping, Mapping) else {}
        super().__init__(
            {"bootstrap.servers": "mock:9092", **mapping},
            topics=topics,
            pattern=pattern,
            listener=listener,
            dialer=self.cluster,
            **{name: each for name, each in given_options.items() if name != "bootstrap_servers"},
        )
        given = {name.replace("_", ".") for name in (*mapping, *options)}
        self.config: ConsumerConfig = self.config.replace(
            bootstrap_servers=ConsumerConfig.build(self.cluster.bootstrap).bootstrap_servers,
            security_protocol="PLAINTEXT",
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            hooks=(*self.config.hooks, _Recorder(self.commits)),
            **({} if "auto.offset.reset" in given else {"auto_offset_reset": "earliest"}),
        )

    # --- what the test decides --------------------------------------------------------------------

    def add_record(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int = 0,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> int:
        """Append a record to the log of a partition, whoever has it now; returns its offset.
        ``timestamp_ms`` defaults to the time. Raises ValueError if there is no such partition."""
        self._create(topic)
        return self.cluster.add_record(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def rebalance(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Assign these partitions, in place of the former ones, as the group does: the listener is
        told, and what is finished of the others is committed. Returns when that is done. As in a
        group, a record in hand is waited for, so another task than the one that has it calls this.

        Raises ConsumerStateError if the consumer subscribes to nothing, or is not running; what the
        listener has raised; ValueError if there is no such partition.
        """
        wanted = frozenset(several_partitions(partitions))
        for where in wanted:
            self._create(where.topic)
            self.cluster.leader(*where)  # raises
        membership = self._member()
        membership.assign(wanted)
        await self._running().until(lambda: membership.is_assigned(wanted))

    async def lose(self) -> None:
        """Lose all partitions, as a member that was silent for too long: commits of their offsets
        are refused. Returns when ``on_lost`` of the listener has. :meth:`rebalance` assigns
        partitions again. Raises as :meth:`rebalance`."""
        await self._member().lose()

    def fail(self, call: MockConsumerCall, error: KafkaError, times: int = 1) -> None:
        """Raise ``error`` from the next ``times`` calls: of :meth:`start`, of :meth:`commit`, or
        ("poll") of what takes records, also from one that is waiting now. Raises ValueError for
        another call and for ``times`` below 1, TypeError if ``error`` is no KafkaError."""
        self._script.add(call, error, times)
        if isinstance(self._runtime, MockRuntime):
            self._runtime.wake()

    def _member(self) -> MockMembership:
        runtime = self._running()
        if self._subscription is None or not isinstance(runtime, MockRuntime):
            raise ConsumerStateError("a group assigns partitions to consumers that subscribe")
        return runtime.member

    # --- what a consumer does ---------------------------------------------------------------------

    async def start(self) -> None:
        """See :meth:`.Consumer.start`."""
        self._script.run("start")
        await super().start()

    def _new_runtime(self) -> ConsumerRuntime:
        runtime = MockRuntime(
            self.config,
            self._listener,
            dialer=self._dialer,
            clock=None,
            wall_clock=self._wall_clock,
            rng=self._rng,
            application_metrics=self._application_metrics,
            finish_at_once=self._finishes_at_once,
        )
        runtime.script = self._script
        if self.config.group_id is not None:
            runtime.member.assigns_all = self._assign_all
        return runtime

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """See :meth:`.Consumer.commit`."""
        self._script.run("commit")
        await super().commit(offsets)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """See :meth:`.Consumer.assign`."""
        given = several_partitions(partitions)
        for where in given:
            self._create(where.topic)
        super().assign(given)

    def _checked(self, topics: Iterable[str], pattern: str | None) -> Subscription:
        subscription = super()._checked(topics, pattern)
        for topic in subscription.topics:
            self._create(topic)
        return subscription

    def _create(self, topic: str) -> None:
        if topic not in self._created:
            counts = self._partition_counts
            count = counts if isinstance(counts, int) else counts.get(topic, 1)
            self.cluster.create_topic(topic, count)
            self._created.add(topic)


class MockMembership(Membership):
    """A membership whose partitions the test assigns: no member joins the group."""

    assigns_all = True
    _wanted: Set[TopicPartition] | None = None
    """What the test has assigned; None: all partitions of the topics."""
    _assigned: Set[TopicPartition] | None = None
    """What was assigned last."""

    @property
    def is_member(self) -> bool:
        return self.has_assignment

    def assign(self, partitions: Set[TopicPartition]) -> None:
        """Assign these partitions soon."""
        self._wanted = partitions
        self._look.set()

    def is_assigned(self, partitions: Set[TopicPartition]) -> bool:
        return self._assigned == partitions

    def resubscribe(self, subscription: Subscription) -> None:
        self._wanted = None
        super().resubscribe(subscription)

    def forget(self) -> None:
        self._wanted = self._assigned = None
        super().forget()

    async def lose(self) -> None:
        """Lose all partitions."""
        self._wanted = self._assigned = frozenset()
        self._gate.refuse_waiting()
        self.lost(self._partitions.all)
        if self._losing is not None:
            await self._losing

    async def _join(self) -> None:
        self._is_classic = True  # patterns are matched here
        while True:
            self._look.clear()
            if self._told is not self._subscribed:
                await self._learn_topics()
            topics = self._topics()  # the group knows the subscription now
            counts = await self._group_topics.counts(topics) if self.assigns_all else {}
            everything = {TopicPartition(t, n) for t, count in counts.items() for n in range(count)}
            wanted = frozenset(everything) if self._wanted is None else self._wanted
            self._gate.open_without_member()
            await self._change(wanted)
            await self._look.wait()

    async def _change(self, wanted: Set[TopicPartition]) -> None:
        had = self._partitions.all
        self.rebalance_began()
        if gone := had - wanted:
            await self.revoked(gone)
        if new := wanted - had:
            await self.added(new)
        self._assigned = wanted
        self.rebalance_ended()


class MockRuntime(ConsumerRuntime):
    """The parts of a mock consumer. ``script``: the errors of calls."""

    membership_type = MockMembership
    script: Script

    @property
    def member(self) -> MockMembership:
        assert isinstance(self._membership, MockMembership)
        return self._membership

    def wake(self) -> None:
        """Have the calls that wait for records look at the script."""
        self._reading.wake()

    def _on_ask(self) -> None:
        self.script.run("poll")
        super()._on_ask()

    def _on_step(self) -> None:
        self.script.run("poll")
        super()._on_step()


class _Recorder(Hooks):
    def __init__(self, commits: list[Mapping[TopicPartition, int | OffsetAndMetadata]]) -> None:
        self._commits = commits

    def on_commit(self, commit: FinishedCommit) -> None:
        if commit.error is None:
            self._commits.append(dict(commit.offsets))
