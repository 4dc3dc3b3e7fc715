"""A reader's connections and metadata, and the offsets where partitions begin and end."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from math import floor
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.cluster.backoff import retry_pause_s, until_answered
from kafkaclient.cluster.metadata import Metadata
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.topics import ends_from, topic_error
from kafkaclient.cluster.waits import Waits, in_another_loop
from kafkaclient.errors import (
    ConfigError,
    KafkaError,
    LeaderChangedError,
    PartitionOutOfRangeError,
    ReaderStateError,
)
from kafkaclient.types import TopicListing, TopicPartition
from kafkaclient.wire.api import by_topic
from kafkaclient.wire.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsCall
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from random import Random

    from kafkaclient.config import ReaderConfig
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.pipeline import Meter
    from kafkaclient.wire.fetch import PartitionOffset


_RIGHT = "Read"  # implies Describe
_ENDS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


class _Read(Protocol):
    """What the cluster needs of a :class:`~kafkaclient.reader.reading.Reading`."""

    @property
    def topics(self) -> set[str]: ...

    def close(self) -> None: ...


class ReaderCluster:
    """The connections and metadata of a reader; made in the event loop that uses them."""

    def __init__(
        self,
        config: ReaderConfig,
        *,
        dialer: Dialer | None,
        clock: Callable[[], float] | None,
        rng: Random,
        meter: Meter | None = None,
    ) -> None:
        self.config = config
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.now: Callable[[], float] = clock or self.loop.time
        self.rng = rng
        self.router: Router = Router(config, dialer, clock=self.now, rng=rng, meter=meter)
        self.readings: WeakSet[_Read] = WeakSet()
        """The reads of this reader that still exist."""
        self._waits = Waits(self.now, config.client_id)
        self.metadata: Metadata = Metadata(
            config,
            self.router,
            clock=self.now,
            rng=rng,
            waits=self._waits,
            right=_RIGHT,
            release=lambda topic: all(topic not in reading.topics for reading in self.readings),
        )
        self._purposes = 0
        self._free_purposes: list[str] = []

    def check_home(self) -> None:
        """Raise in another event loop than the reader's. Without a running event loop a read may be
        made; the reader's loop must iterate over it."""
        if asyncio._get_running_loop() not in (self.loop, None):
            raise ReaderStateError(in_another_loop("reader", self.loop))

    async def close(self) -> None:
        for reading in list(self.readings):
            reading.close()
        await self.metadata.stop()
        await self.router.close()

    def take_purpose(self) -> str:
        """A purpose for the connections of a new read, if possible of a read that has ended, whose
        connections are then used again."""
        if self._free_purposes:
            return self._free_purposes.pop()
        self._purposes += 1
        return f"fetch-{self._purposes}"

    def give_back(self, purpose: str, *, answered: bool) -> None:
        """End the use of a purpose; closes its connections unless all requests are ``answered``."""
        if not answered:
            self.router.release(purpose)
        self._free_purposes.append(purpose)

    def use(self, topics: Iterable[str]) -> None:
        """Have one request fetch the metadata of all these topics, before any of them is waited
        for. Raises InvalidTopicError."""
        for topic in topics:
            self.metadata.add_topic(topic)

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic; raises as :meth:`.Metadata.wait_topic`."""
        view = await self.metadata.wait_topic(topic, self.config.max_block_ms / 1000)
        return [TopicPartition(topic, number) for number in range(view.partition_count)]

    async def find(self, where: Collection[TopicPartition]) -> None:
        """Check that the partitions exist; raises PartitionOutOfRangeError, and what
        :meth:`.Metadata.wait_topic` raises."""
        patience_s = self.config.max_block_ms / 1000
        self.use(tp.topic for tp in where)
        for tp in where:
            view = await self.metadata.wait_topic(tp.topic, patience_s)
            if tp.partition >= view.partition_count:  # it may be new
                view = await self.metadata.wait_topic(tp.topic, patience_s, fresh=True)
            if not 0 <= tp.partition < view.partition_count:
                raise PartitionOutOfRangeError(
                    f"{tp}: the topic has {view.partition_count} partitions"
                )

    async def list_topics(
        self,
        names: Iterable[str] | None,
        *,
        skip_denied: bool = False,
        internal: bool = False,
    ) -> dict[str, TopicListing]:
        """See :meth:`.Reader.list_topics`. ``skip_denied``: leave out topics that this client may
        not describe. ``internal``: also list internal topics that are not named."""
        skipped = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if skip_denied:
            skipped.add(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        deadline = self.now() + self.config.max_block_ms / 1000
        wanted = None if names is None else tuple(dict.fromkeys(names))
        call = MetadataCall(wanted, allow_auto_topic_creation=False)

        async def attempt() -> dict[str, TopicListing]:
            result = await self.router.call(call, timeout_s=self._limit_s(deadline))
            problem = self.router.identity.problem(result, "the broker that answered", known=True)
            if problem is not None:
                raise problem
            found = {}
            for topic in result.topics:
                if topic.error_code in skipped:
                    continue
                if topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
                    raise topic_error(topic.name, topic.error_code, _RIGHT)
                if names is not None or internal or not topic.is_internal:
                    numbers = range(len(topic.partitions))
                    found[topic.name] = TopicListing(
                        topic.topic_id, tuple(TopicPartition(topic.name, n) for n in numbers)
                    )
            return found

        before_retry = partial(self._before_retry, deadline=deadline)
        return await until_answered(attempt, before_retry, self._waits, "the list of topics")

    async def range_of(self, where: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last."""
        first = await self.list_offsets([where], EARLIEST_TIMESTAMP)
        end = await self.list_offsets([where], LATEST_TIMESTAMP)
        return first[where].offset, end[where].offset

    async def list_offsets(
        self,
        where: Iterable[TopicPartition],
        timestamp: int,
        *,
        read_committed: bool | None = None,
    ) -> dict[TopicPartition, PartitionOffset]:
        """The offsets of the partitions for a timestamp, in one request to each leader.
        ``read_committed``: None means the config's.

        If a leader is unknown, has changed or does not answer, its partitions are retried for
        ``max.block.ms``; then their last error is raised. An error that is not retriable is raised
        at once.
        """
        deadline = self.now() + self.config.max_block_ms / 1000
        found: dict[TopicPartition, PartitionOffset] = {}
        wanted = list(dict.fromkeys(where))
        committed = self.config.read_committed if read_committed is None else read_committed
        self.use(topics := {tp.topic for tp in wanted})
        for topic in topics:
            await self.metadata.wait_topic(topic, deadline - self.now())

        async def attempt() -> None:
            missing = [tp for tp in wanted if tp not in found]
            answer, errors = await self._offsets_of_leaders(
                missing, timestamp, self._limit_s(deadline), committed
            )
            found.update(answer)
            if errors:
                raise next((error for error in errors if not error.retriable), errors[0])

        before_retry = partial(self._before_retry, deadline=deadline)
        await until_answered(attempt, before_retry, self._waits, "offsets of partitions")
        return {tp: found[tp] for tp in wanted}

    async def ends_from(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See :meth:`.Reader.end_offsets`."""
        is_first = True

        async def fetch(
            partitions: Iterable[TopicPartition], *, read_committed: bool = True
        ) -> dict[TopicPartition, int]:
            nonlocal is_first
            if not is_first:
                await self.metadata.refresh()
            is_first = False
            found = await self.list_offsets(
                partitions, LATEST_TIMESTAMP, read_committed=read_committed
            )
            return {tp: each.offset for tp, each in found.items()}

        return await ends_from(fetch, known, read_committed=self.config.read_committed)

    def _limit_s(self, deadline: float) -> float:
        """The time limit of a request."""
        limit_s = min(deadline - self.now(), self.config.request_timeout_ms / 1000)
        return max(0.001, limit_s)

    async def _before_retry(self, error: KafkaError, failures: int, *, deadline: float) -> None:
        if not error.retriable or self.now() >= deadline:
            raise error
        self.metadata.request_refresh(f"a request is repeated: {error}")
        pause_s = retry_pause_s(failures, self.config, self.rng)
        await asyncio.sleep(min(pause_s, max(0.0, deadline - self.now())))

    async def _offsets_of_leaders(
        self,
        where: Iterable[TopicPartition],
        timestamp: int,
        limit_s: float,
        read_committed: bool,
    ) -> tuple[dict[TopicPartition, PartitionOffset], list[KafkaError]]:
        """The offsets from the leaders, and the errors of the other partitions."""
        by_node: dict[int, list[TopicPartition]] = {}
        found: dict[TopicPartition, PartitionOffset] = {}
        errors: list[KafkaError] = []
        view = self.metadata.view
        for tp in where:
            leader = view.leader(*tp)
            if leader is None:
                errors.append(LeaderChangedError(f"{tp}: it has no leader that is up"))
            else:
                by_node.setdefault(leader.node_id, []).append(tp)

        async def ask(node_id: int, wanted: list[TopicPartition]) -> None:
            epochs = view.leader_epochs(wanted)
            call = ListOffsetsCall(by_topic(wanted), timestamp, read_committed, epochs=epochs)
            try:
                result = await self.router.call(call, node_id, timeout_s=limit_s)
            except KafkaError as error:
                errors.append(error)
                return
            failed = []
            for each in result.partitions:
                tp = TopicPartition(each.topic, each.partition)
                if each.error_code:
                    advice = denied(each.error_code, "Describe", each.topic, grant=_RIGHT)
                    what = f"{tp}: ListOffsets at broker {node_id}"
                    problem = broker_error(each.error_code, what, advice=advice)
                    if each.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                        problem.retriable = True  # as in Java's consumer
                    failed.append(problem)
                else:
                    found[tp] = each
            if not failed and not found.keys() >= set(wanted):
                left_out = f"broker {node_id} left partitions out: {wanted}"
                errors.append(LeaderChangedError(left_out))
            errors.extend(failed)

        await asyncio.gather(*(ask(node_id, wanted) for node_id, wanted in by_node.items()))
        return found, errors


def timestamp_of(at: object) -> int:
    """The timestamp for ListOffsets of "earliest", "latest" or a time. Raises ConfigError: Kafka
    takes negative numbers for other things than times."""
    if isinstance(at, str) and at in _ENDS:
        return _ENDS[at]
    if isinstance(at, datetime) and at.tzinfo is not None:
        at = floor(at.timestamp() * 1000)
    if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < 2**63:
        return at
    raise ConfigError(
        f"at={at!r} is not accepted: give 'earliest', 'latest', milliseconds since the epoch, or "
        "a datetime with a time zone"
    )
