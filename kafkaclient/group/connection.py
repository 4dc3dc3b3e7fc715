"""A member's connections to its group's coordinator, and the offsets that the group has."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.cluster.backoff import UNKNOWN_TOPIC_READS, poll
from kafkaclient.cluster.coordinator import Coordinators
from kafkaclient.cluster.metadata import Metadata
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.waits import Waits
from kafkaclient.errors import KafkaError, KafkaTimeoutError
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.groups import OffsetCommitByIdCall, OffsetCommitCall
from kafkaclient.wire.transactions import (
    CommittedOffsets,
    CoordinatorKind,
    OffsetFetchByIdCall,
    OffsetFetchCall,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
    from uuid import UUID

    from kafkaclient.cluster.coordinator import T
    from kafkaclient.config import ClientConfig
    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
    from kafkaclient.wire.api import Call

    Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]


_log = logging.getLogger(__name__)

# --- A member's connections to its group's coordinator --------------------------------------------

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
        router: Router,
        metadata: Metadata,
        *,
        rebalance_timeout_s: float,
        rng: Random,
    ) -> None:
        self.group_id = group_id
        self._rebalance_timeout_s = rebalance_timeout_s
        self._router = router
        self._coordinators = coordinators = Coordinators(
            router,
            config=config,
            rng=rng,
            waits=metadata.waits,
            on_unknown=metadata.request_refresh,
        )
        self.pause: Callable[[int], Awaitable[None]] = coordinators.pause

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

    async def leave(self, call: Call[Any], timeout_s: float, others_wait_for: str) -> None:
        """Tell the coordinator that a member leaves. Never raises, except when cancelled."""
        try:
            async with time_limit(timeout_s):
                await self.call(call)
        except (TimeoutError, KafkaError) as error:
            _log.warning(
                "group %s could not be left; its other members wait for %s: %s",
                *(self.group_id, others_wait_for, str(error) or self.silence(timeout_s)),
            )

    def silence(self, timeout_s: float) -> str:
        """What a call that was given up after ``timeout_s`` has met, for messages."""
        last = self._coordinators.last_error
        more = "" if last is None else f"; the last error was: {last}"
        return f"no coordinator has answered within {timeout_s:g} s{more}"


@asynccontextmanager
async def group_connection(
    group_id: str,
    config: ClientConfig,
    *,
    rebalance_timeout_s: float,
    dialer: Dialer | None = None,
    clock: Callable[[], float] | None = None,
    rng: Random | None = None,
) -> AsyncIterator[GroupConnection]:
    """A group's connection with a router and metadata of its own, for a member whose records come
    through other clients. Raises :class:`~kafkaclient.errors.BootstrapError` after
    ``max.block.ms``."""
    clock, rng = clock or asyncio.get_running_loop().time, rng or Random()
    router = Router(config, dialer, clock=clock, rng=rng)
    waits = Waits(clock, config.client_id)
    metadata = Metadata(config, router, clock=clock, rng=rng, waits=waits, right="Read")
    try:
        await metadata.start()
        yield GroupConnection(
            group_id, config, router, metadata, rebalance_timeout_s=rebalance_timeout_s, rng=rng
        )
    finally:
        await metadata.stop()
        await router.close()


# --- The group's committed offsets, for its member ------------------------------------------------

_NEW_GENERATION = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class GroupOffsets:
    """Commits as the member, and reads what the group has committed.

    ``on_refused(code, group)`` is told of each refusal, with the member that committed.
    ``timeout_s`` limits each call: a coordinator may be away for a while. ``topic_id`` tells of
    which topic a partition's offset is that comes without ``OffsetAndMetadata.topic_id``, when it
    is committed; None: of the one that has the name.
    """

    def __init__(
        self,
        connection: GroupConnection,
        gate: CommitGate,
        on_refused: Callable[[int, ConsumerGroupMetadata], None],
        timeout_s: float,
        topic_id: Callable[[TopicPartition], UUID | None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._topic_id = topic_id
        self._gate = gate
        self._on_refused = on_refused
        self._timeout_s = timeout_s
        self._in_turn = asyncio.Lock()

    async def commit(
        self, offsets: Offsets | Callable[[], Offsets], times_lost: int | None = None
    ) -> Offsets:
        """Commit offsets of partitions that this member owns, and has not lost since the gate had
        ``times_lost``, or since the call; returns them. A commit that meets the end of its
        generation is repeated in the next one. If partitions may be given up meanwhile, let
        ``offsets`` return the offsets: it is called when the commit is sent. Commits wait for each
        other, for a repetition of an earlier one would put the offsets back.

        Raises BrokerError if the coordinator refuses it (UNKNOWN_MEMBER_ID: the member was
        evicted), UnknownTopicError if a partition does not exist (the offsets of the others are
        committed), and KafkaTimeoutError if no coordinator answers in time.
        """
        if times_lost is None:
            times_lost = self._gate.times_lost
        try:
            async with time_limit(self._timeout_s), self._in_turn:
                return await self._commit(offsets, times_lost)
        except TimeoutError as error:
            raise self._late("OffsetCommit", error) from error

    async def _commit(self, offsets: Offsets | Callable[[], Offsets], times_lost: int) -> Offsets:
        ids: dict[TopicPartition, UUID] = {}  # a repetition is for the same topics
        sent, unknown = await poll(
            partial(self._commit_once, offsets, times_lost, ids),
            lambda answered: not answered[1],
            self._connection.pause,
            UNKNOWN_TOPIC_READS,
        )
        if unknown:
            missing = ", ".join(map(str, unknown))
            what = f"committing offsets of group {self._connection.group_id!r}: {missing}"
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} does not exist")
        return sent

    async def _commit_once(
        self,
        offsets: Offsets | Callable[[], Offsets],
        times_lost: int,
        ids: dict[TopicPartition, UUID],
    ) -> tuple[Offsets, Collection[TopicPartition]]:
        """The offsets that were sent, and those of their partitions that do not exist."""
        name = self._connection.group_id
        while True:
            async with self._gate.commit(times_lost) as group:
                sent = offsets() if callable(offsets) else offsets
                if not sent:
                    return sent, ()
                answer = CommittedOffsets({})
                for call in self._commit_calls(sent, group, ids):
                    one = await self._connection.call(call)
                    answer = CommittedOffsets({**answer.codes, **one.codes})
                    if one.error_code:
                        break
            code = answer.error_code
            if not code:
                return sent, answer.unknown
            self._on_refused(code, group)
            is_over = not self._gate.is_open or self._gate.group != group
            if not (is_over and code in _NEW_GENERATION):
                advice = _denied(code, name, answer.codes)
                raise broker_error(code, f"committing offsets of group {name!r}", advice=advice)

    def _commit_calls(
        self,
        offsets: Offsets,
        group: ConsumerGroupMetadata,
        ids: dict[TopicPartition, UUID],
    ) -> list[OffsetCommitCall]:
        """By topic id; partitions whose topic's id is not known in a request of their own."""
        for tp in offsets.keys() - ids.keys():
            if topic_id := getattr(offsets[tp], "topic_id", None) or self._topic_id(tp):
                ids[tp] = topic_id
        name = self._connection.group_id
        by_id = {tp: each for tp, each in offsets.items() if tp in ids}
        by_name = {tp: each for tp, each in offsets.items() if tp not in ids}
        calls: list[OffsetCommitCall] = []
        if by_id:
            calls.append(OffsetCommitByIdCall(name, by_id, group, topic_ids=ids))
        if by_name:
            calls.append(OffsetCommitCall(name, by_name, group))
        return calls

    async def committed(
        self, partitions: Collection[TopicPartition], topic_ids: Mapping[str, UUID] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The group's offsets; None where there is none. Waits for the end of transactions that
        have offsets of these partitions (KIP-447). Raises as :meth:`commit`.

        With ``topic_ids`` only offsets in the topics with these ids, without the partitions whose
        topic the coordinator does not know. Raises UnsupportedVersionError if its OffsetFetch
        has names only (before version 10)."""
        name = self._connection.group_id
        call = OffsetFetchCall(name, tuple(partitions))
        if topic_ids is not None:
            call = OffsetFetchByIdCall(name, tuple(partitions), topic_ids=topic_ids)
        try:
            async with time_limit(self._timeout_s):
                answer = await self._connection.call(call)
        except TimeoutError as error:
            raise self._late("OffsetFetch", error) from error
        if code := answer.error_code:
            codes = {where: each.error_code for where, each in answer.offsets.items()}
            advice = _denied(code, name, codes)
            raise broker_error(code, f"reading the offsets of group {name!r}", advice=advice)
        found = {
            p: each.offset if each.offset >= 0 else None
            for p, each in answer.offsets.items()
            if not each.error_code
        }
        return found if topic_ids is not None else {p: found.get(p) for p in partitions}

    def _late(self, what: str, error: TimeoutError) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        return KafkaTimeoutError(
            f"{what} of group {self._connection.group_id!r}: {self.silence(self._timeout_s)}"
        )

    def silence(self, timeout_s: float) -> str:
        """As :meth:`.GroupConnection.silence`."""
        return self._connection.silence(timeout_s)


def _denied(code: int, group: str, codes: Mapping[TopicPartition, int]) -> str | None:
    """The advice if the group, or a topic of these partitions, may not be read."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        group = next((where.topic for where, each in codes.items() if each == code), group)
    return denied(code, "Read", group)
