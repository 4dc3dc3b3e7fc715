"""Where the partitions of a consumer begin: at the group's offsets, or by ``auto.offset.reset``."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cluster.backoff import retry_pause_s
from kafkaclient.cluster.identity import differs
from kafkaclient.consumer.partitions import listed
from kafkaclient.errors import (
    AuthorizationError,
    FetchTimeoutError,
    KafkaError,
    LogTruncatedError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from kafkaclient.wire.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from uuid import UUID

    from kafkaclient.config.consumer import ConsumerConfig
    from kafkaclient.consumer.partition import Partition
    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.reader.cluster import ReaderCluster
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_LOOK_UP_S = 1.0  # partitions wait for the topics of others at most this long


class FetchCommitted(Protocol):
    """See :meth:`.GroupOffsets.committed`."""

    def __call__(
        self, partitions: Collection[TopicPartition], topic_ids: Mapping[str, UUID] | None = None, /
    ) -> Awaitable[Mapping[TopicPartition, int | None]]: ...


class InitialPositions:
    """Finds the positions of starting partitions, in a task of its own: partitions that are read
    already do not wait for it. ``wall_clock`` returns seconds since the epoch. ``wanted`` is set
    when there are starting partitions.

    An error that a retry cannot help ends :meth:`run`, but not a missing right to a topic.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ReaderCluster,
        committed: FetchCommitted | None,
        wall_clock: Callable[[], float],
        wanted: asyncio.Event,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._committed = committed
        self._wall_clock = wall_clock
        self._wanted = wanted

    async def run(self, partitions: Partitions) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            starting = partitions.starting
            if not starting:
                continue
            try:
                await self._begin(partitions, starting)
            except AuthorizationError as error:
                if error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    raise  # as where the member joins and has its heartbeats
                # The right may be granted.
                partitions.complain(error, [each.topic_partition for each in partitions.starting])
            except KafkaError as error:
                if not error.retriable:
                    raise
                failures += 1
                _log.warning("no offsets to begin at yet; this is tried again: %s", error)
                await asyncio.sleep(retry_pause_s(failures, self._config, self._cluster.rng))
                self._wanted.set()
            else:
                failures = 0

    async def _begin(self, partitions: Partitions, starting: list[Partition]) -> None:
        ids = await self._topic_ids({each.topic_partition.topic for each in starting})
        offsets = await self._offsets([each for each in starting if not each.ignores_commits], ids)
        without, unknown = [], []
        for each in starting:
            where = each.topic_partition
            offset = offsets.get(where)
            if each.ignores_commits or (offset is None and where in offsets):
                without.append(each)
            elif offset is None:
                unknown.append(where)
            else:
                each.committed = offset
                partitions.begin(each, offset, ids.get(where.topic))
        await self._begin_without(partitions, without, ids)
        if unknown:
            what = f"reading offsets of group {self._config.group_id!r}: {listed(unknown)}"
            error = broker_error(ErrorCode.UNKNOWN_TOPIC_ID, what)
            self._cluster.metadata.request_refresh(str(error))
            raise error

    async def _topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        """The ids of the topics that are known, or soon."""
        metadata = self._cluster.metadata
        waits = (metadata.wait_topic(topic, _LOOK_UP_S) for topic in topics)
        await asyncio.gather(*waits, return_exceptions=True)
        return {t: found for t in topics if (found := metadata.topic_id(t)) is not None}

    async def _offsets(
        self, wanted: list[Partition], ids: Mapping[str, UUID]
    ) -> Mapping[TopicPartition, int | None]:
        """The group's offsets, None where there is none; without partitions whose topic the
        coordinator does not know."""
        if self._committed is None:
            return {each.topic_partition: None for each in wanted}
        where = [each.topic_partition for each in wanted]
        if where and all(each.topic in ids for each in where):
            with suppress(UnsupportedVersionError):
                return await self._committed(where, ids)
        named = [each.topic_partition for each in wanted if not each.is_recreated]
        return dict.fromkeys(where) | (dict(await self._committed(named)) if named else {})

    async def _begin_without(
        self, partitions: Partitions, without: list[Partition], ids: Mapping[str, UUID]
    ) -> None:
        """Begin where the group has no offset."""
        policy = self._config.auto_offset_reset
        if policy == "none":
            for each in without:
                partitions.fail(each, self._no_offset(each.topic_partition))
            return
        new = [
            each
            for each in without
            if each.is_new or differs(each.first_topic_id, ids.get(each.topic_partition.topic))
        ]
        old = [each for each in without if each not in new]
        # A topic or a partition that is away holds up no other one.
        by_topic = [
            ([each for each in group if each.topic_partition.topic == topic], at)
            for group, at in ((new, "earliest"), (old, policy))
            for topic in {each.topic_partition.topic for each in group}
        ]
        found = await asyncio.gather(
            *(self._reset(partitions, group, at, ids) for group, at in by_topic),
            return_exceptions=True,
        )
        if errors := [each for each in found if each is not None]:
            raise next((e for e in errors if not getattr(e, "retriable", False)), errors[0])

    async def _reset(
        self, partitions: Partitions, group: list[Partition], policy: str, ids: Mapping[str, UUID]
    ) -> None:
        """Begin where ``policy`` says: all together, or those for which that is known."""
        try:
            found = await self._reset_offsets([each.topic_partition for each in group], policy)
        except KafkaError as error:
            if not error.retriable or len(group) == 1:
                raise
            alone = (self._reset(partitions, [each], policy, ids) for each in group)
            results = await asyncio.gather(*alone, return_exceptions=True)
            for failure in filter(None, results):
                raise failure from None
        else:
            for each in group:
                where = each.topic_partition
                partitions.begin(each, found[where], ids.get(where.topic))

    async def _reset_offsets(
        self, where: list[TopicPartition], policy: str
    ) -> dict[TopicPartition, int]:
        """Where ``policy`` (``auto.offset.reset``) says."""
        await self._cluster.find(where)
        age_s = None if policy == "earliest" else self._config.reset_age_s
        found: dict[TopicPartition, int] = {}
        if age_s is not None:
            timestamp = int((self._wall_clock() - age_s) * 1000)
            answers = await self._cluster.list_offsets(where, max(0, timestamp))
            found = {tp: each.offset for tp, each in answers.items() if each.offset >= 0}
        rest = [tp for tp in where if tp not in found]
        if rest:
            at = EARLIEST_TIMESTAMP if policy == "earliest" else LATEST_TIMESTAMP
            answers = await self._cluster.list_offsets(rest, at)
            found |= {tp: each.offset for tp, each in answers.items()}
        return found

    def _no_offset(self, where: TopicPartition) -> NoOffsetError:
        error = NoOffsetError(
            f"{where}: group {self._config.group_id!r} has no offset, and auto.offset.reset is "
            "none: commit an offset, or seek the partition"
        )
        error.topic_partition = where
        return error


def restart(partitions: Partitions, where: TopicPartition, error: KafkaError, policy: str) -> None:
    """Go on with a partition that could not be fetched, and log why. Raises the error if the
    application must decide: with ``auto.offset.reset`` none, and if a batch cannot be read."""
    if isinstance(error, FetchTimeoutError):
        _log.warning("%s. It is tried again", error)
        partitions.fetch_again(where)
    elif isinstance(error, UnknownTopicError) and policy != "none":
        _log.warning(
            "%s. The new topic is read from its beginning, or from the group's offset", error
        )
        partitions.begin_again(where)
    elif isinstance(error, LogTruncatedError) and policy != "none":
        _log.warning("%s. The partition continues at offset %d", error, error.truncated_to)
        partitions.seek(where, error.truncated_to)
    elif isinstance(error, OffsetOutOfRangeError) and policy != "none":
        _log.warning("%s. The partition continues by auto.offset.reset=%s", error, policy)
        partitions.reset(where)
    elif isinstance(error, AuthorizationError):
        partitions.fetch_again(where)  # the right may be granted
        partitions.complain(error, [where])
    else:
        raise error
