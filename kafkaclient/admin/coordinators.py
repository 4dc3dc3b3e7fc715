"""The methods of :class:`~kafkaclient.admin.Admin` that ask coordinators: consumer groups and their
committed offsets, and transactions of other clients (KIP-664, KIP-939).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.admin.running import Runnable
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.cluster.backoff import UNKNOWN_TOPIC_READS
from kafkaclient.errors import (
    BrokerError,
    ConfigError,
    KafkaError,
    TransactionLostError,
    UnsupportedVersionError,
)
from kafkaclient.topic_names import several, several_partitions
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.groups import ConsumerGroupDescribeCall, DescribeGroupsCall, OffsetCommitCall
from kafkaclient.wire.membership import (
    DeleteGroupsCall,
    ListGroupsCall,
    OffsetDeleteCall,
    RemoveMembersCall,
)
from kafkaclient.wire.producer_ids import InitProducerIdCall
from kafkaclient.wire.transactions import (
    CoordinatorKind,
    DescribeTransactionsCall,
    EndTxnCall,
    EndTxnV2Call,
    FindCoordinatorCall,
    ListTransactionsCall,
    OffsetFetchCall,
    TxnIdentity,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from kafkaclient.admin.session import AdminSession
    from kafkaclient.cluster.coordinator import Coordinators
    from kafkaclient.types import PreparedTransaction, TopicPartition
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.groups import DescribedGroup, DescribedMember
    from kafkaclient.wire.membership import GroupListing
    from kafkaclient.wire.transactions import (
        CommittedOffsets,
        TransactionDescription,
        TransactionListing,
        TxnState,
    )


T = TypeVar("T")


class GroupAdmin(Runnable):
    """The group methods of :class:`~kafkaclient.admin.Admin`."""

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> DescribedGroup:
        """A consumer group of the classic protocol or of KIP-848, with its members. A group that
        does not exist has the state ``Dead``. Of a share group or a streams group (KIP-1071) only
        the state and the kind are known, not the members. Raises AuthorizationError, or the
        coordinator's BrokerError."""
        async with self._operation(f"describing group {group!r}", timeout_s) as running:
            session = running.session

            async def attempt() -> DescribedGroup:
                node = await _coordinator(session, group)
                (found,) = (await session.once(DescribeGroupsCall((group,)), node)).groups
                if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.state == "Dead":
                    found = await _not_classic(session, group, node, found)
                _check(found.error_code, group, "describing", found.error_message)
                return found

            return await running.session.until_answered(attempt)

    async def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The committed offsets of a group, by default of all its partitions. The result omits
        partitions without a committed offset. Raises as :meth:`describe_group`."""
        what = "reading the offsets of"
        wanted = None if partitions is None else several_partitions(partitions)
        call = OffsetFetchCall(group, wanted, require_stable=False)
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:

            async def attempt() -> dict[TopicPartition, int]:
                found = await _request_coordinator(running.session, group, call)
                _check(found.group_error_code, group, what)
                codes = {p: each.error_code for p, each in found.offsets.items()}
                _check_partitions(codes, found.error_code, group, what)
                return {p: each.offset for p, each in found.offsets.items() if each.offset >= 0}

            return await running.session.until_answered(attempt) if wanted != () else {}

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Set the committed offsets of a group without members. Raises AuthorizationError,
        UnknownTopicError, or the coordinator's BrokerError: UNKNOWN_MEMBER_ID if the group has
        members. Such an error names the partitions whose offsets are not set. The offsets of the
        other partitions are set. Raises ConfigError for an offset below 0, and then sets none."""
        what = "setting the offsets of"
        wrong = {str(partition): at for partition, at in offsets.items() if not 0 <= at < 2**63}
        if wrong:
            raise ConfigError(f"{what} group {group!r}: offsets are 0 to 2**63 - 1, not {wrong}")
        call = OffsetCommitCall(group, offsets)
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:
            session = running.session

            async def attempt() -> CommittedOffsets:
                found = await _request_coordinator(session, group, call, "Read")
                _check_partitions(found.codes, found.error_code, group, what, "Read")
                return found

            found = await session.poll(
                lambda: session.until_answered(attempt),
                lambda found: not found.unknown,
                max_reads=UNKNOWN_TOPIC_READS,
            )
            if found.unknown:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                _check_partitions(found.codes, code, group, what, "Read")

    async def list_groups(self, *, timeout_s: float | None = None) -> list[GroupListing]:
        """All groups that this client may describe, sorted by name. Sends a request to every
        broker. Raises BrokerError."""
        async with self._operation("listing groups", timeout_s) as running:
            what = "listing the groups"
            answers = await running.session.from_each_broker(ListGroupsCall(), what)
            return sorted({group for answer in answers for group in answer.groups})

    async def delete_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete groups without members, with their committed offsets. Returns by group None or the
        error: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if there is no such group."""
        names = several(groups, "groups")

        async def delete(session: AdminSession, name: str) -> KafkaError | None:
            async def attempt() -> None:
                found = await _request_coordinator(
                    session, name, DeleteGroupsCall((name,)), "Delete"
                )
                _check(found.error_code, name, "deleting", operation="Delete")

            try:
                await session.until_answered(attempt)
            except KafkaError as error:
                return error
            return None

        async with self._operation("deleting groups", timeout_s) as running:
            results = await asyncio.gather(*(delete(running.session, name) for name in names))
            return dict(zip(names, results, strict=True))

    async def delete_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Delete committed offsets of a group (KIP-496). Raises AuthorizationError, or the
        coordinator's BrokerError: GROUP_SUBSCRIBED_TO_TOPIC if the group consumes such a topic.
        Such an error names the partitions; the offsets of the others are deleted."""
        what = "deleting the offsets of"
        call = OffsetDeleteCall(group, several_partitions(partitions))
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:

            async def attempt() -> None:
                found = await _request_coordinator(running.session, group, call, "Delete")
                _check(found.group_error_code, group, what, operation="Delete")
                _check_partitions(found.codes, found.error_code, group, what, "Delete")

            if call.partitions:
                await running.session.until_answered(attempt)

    async def remove_members(
        self,
        group: str,
        members: Iterable[DescribedMember],
        *,
        reason: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Remove members of :meth:`describe_group` from a group (Java:
        ``removeMembersFromConsumerGroup``). A member that runs joins again. Members that have left
        meanwhile are no error. Raises AuthorizationError, or the coordinator's BrokerError. Needs
        brokers from 2.4."""
        call = RemoveMembersCall(group, tuple(members), reason)
        async with self._operation(f"removing members of group {group!r}", timeout_s) as running:

            async def attempt() -> None:
                found = await _request_coordinator(running.session, group, call, "Read")
                left = (
                    code for code in found.codes.values() if code != ErrorCode.UNKNOWN_MEMBER_ID
                )
                code = next(filter(None, left), 0)
                _check(code, group, "removing members of", operation="Read")

            if call.members:
                await running.session.until_answered(attempt)


async def _request_coordinator(
    session: AdminSession, group: str, call: Call[T], right: str = "Describe"
) -> T:
    """The answer of the group's coordinator. ``right``: what the call needs, as in ACLs."""
    return await session.once(call, await _coordinator(session, group, right))


async def _coordinator(session: AdminSession, group: str, right: str = "Describe") -> int:
    found = await session.once(FindCoordinatorCall(CoordinatorKind.GROUP, group))
    what = "looking for the coordinator of"
    _check(found.error_code, group, what, found.error_message, grant=right)
    return found.node_id


async def _not_classic(
    session: AdminSession, group: str, node: int, missing: DescribedGroup
) -> DescribedGroup:
    """The description of a group that DescribeGroups does not know (``missing`` is its answer)."""
    with suppress(UnsupportedVersionError):  # brokers before 3.7
        (found,) = (await session.once(ConsumerGroupDescribeCall((group,)), node)).groups
        if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            return found
    listed = await session.once(ListGroupsCall(), node)
    _check(listed.error_code, group, "looking for")
    dead = missing._replace(error_code=0, error_message=None, state="Dead")
    for each in listed.groups:
        if each.group_id == group and each.kind.lower() not in ("", "classic"):
            return dead._replace(state=each.state, kind=each.kind.lower())
    return dead


def _check(
    code: int,
    group: str,
    doing: str,
    detail: str | None = None,
    *,
    operation: str = "Describe",
    grant: str = "",
) -> None:
    if code:
        advice = denied(code, operation, group, grant=grant)
        raise broker_error(code, f"{doing} group {group!r}", detail, advice=advice)


def _check_partitions(
    codes: Mapping[TopicPartition, int],
    code: int,
    group: str,
    doing: str,
    operation: str = "Describe",
) -> None:
    """Raise ``code``, the first error among ``codes``, with the partitions that failed."""
    if not code:
        return
    failed = [partition for partition, each in codes.items() if each]
    first = next(partition for partition in failed if codes[partition] == code)
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    resource = first.topic if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else group
    error = broker_error(
        code,
        f"{doing} group {group!r}, for {first}{more} of {len(codes)} partitions",
        advice=denied(code, operation, resource),
    )
    error.retriable &= (
        code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )  # brokers say that it does not exist
    raise error


_TRANSACTION = CoordinatorKind.TRANSACTION
_LOST = {
    47: "the producer was fenced: the transaction timed out, or another producer was started with "
    "the transactional id",
    48: "the transaction ended the other way, for example after a timeout",
    49: "the coordinator has another producer id or none for the transactional id: the id expired "
    "(transactional.id.expiration.ms), or belongs to another cluster",
    59: "the coordinator no longer knows the producer id",
}
_LOST[90] = _LOST[47]

# Brokers also use the transaction timeout as the time limit for the write to their own log. With
# Java's earlier value of 1 ms the replicated write fails (KAFKA-16047).
_FENCING_TIMEOUT_MS = 30_000


class TransactionAdmin(Runnable):
    """The transaction methods of :class:`~kafkaclient.admin.Admin`."""

    async def end_transaction(
        self, prepared: PreparedTransaction, *, commit: bool = True, timeout_s: float | None = None
    ) -> None:
        """Commit or abort a transaction that another producer has prepared
        (:meth:`kafkaclient.Producer.prepare_transaction`). When this call returns, the outcome is
        decided and cannot change. The call may be repeated, also after a timeout.

        Raises:
            TransactionLostError: the transaction is no longer open, and its coordinator does not
                know that it ended this way: it timed out, its producer was fenced, or it ended the
                other way. The coordinator does not know how a fenced producer ended it.
            AuthorizationError: this client may not write under the transactional id.
        """
        name = prepared.transactional_id
        what = f"{'committing' if commit else 'aborting'} the transaction of {name!r}"
        async with self._coordinator_operation(what, timeout_s) as coordinators:
            features = await coordinators.call(_TRANSACTION, name, ApiVersionsCall())
            end = EndTxnV2Call if features.transactions_v2 else EndTxnCall
            call = end(TxnIdentity(*prepared), commit)
            answer = await coordinators.call(_TRANSACTION, name, call, final=frozenset(_LOST))
        code = answer.error_code
        if code:
            error = _error(code, what, "Write", name)
            if code not in _LOST:
                raise error
            lost = TransactionLostError(f"{what}: {_LOST[code]} ({error.name})")
            lost.code, lost.name = code, error.name
            raise lost

    async def list_transactions(
        self, prefix: str = "", *, states: Iterable[TxnState] = (), timeout_s: float | None = None
    ) -> list[TransactionListing]:
        """The transactional ids that begin with ``prefix``, in order, each with the state of its
        last transaction. ``states``: only transactions in these states (default: all). Ids that
        this client may not describe are missing. Sends a request to every broker (KIP-664; brokers
        from 3.0)."""
        call = ListTransactionsCall(tuple(states))
        async with self._operation("listing transactions", timeout_s) as running:
            answers = await running.session.from_each_broker(call, "listing the transactions")
        found = (listing for answer in answers for listing in answer.transactions)
        return sorted(one for one in found if one.transactional_id.startswith(prefix))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | None]:
        """The transactions of these transactional ids, by id; None for an unknown id. Raises
        AuthorizationError for an id that this client may not describe. Needs brokers from 3.0."""
        names = several(transactional_ids, "transactional_ids")

        async def describe(name: str) -> TransactionDescription | None:
            answer = await coordinators.call(_TRANSACTION, name, DescribeTransactionsCall(name))
            if answer.error_code not in (0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                what = f"describing the transactional id {name!r}"
                raise _error(answer.error_code, what, "Describe", name)
            return answer.description

        what = "describing transactions"
        async with self._coordinator_operation(what, timeout_s) as coordinators:
            return dict(zip(names, await asyncio.gather(*map(describe, names)), strict=True))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Fence the current producers of these transactional ids. Their open transactions are
        aborted, and their next requests fail. Returns by id None or the error (Java:
        ``Admin.fenceProducers``)."""
        names = several(transactional_ids, "transactional_ids")

        async def fence(name: str) -> KafkaError | None:
            call = InitProducerIdCall(name, _FENCING_TIMEOUT_MS)
            try:
                code = (await coordinators.call(_TRANSACTION, name, call)).error_code
            except KafkaError as error:
                return error
            what = f"fencing producers with the transactional id {name!r}"
            return _error(code, what, "Write", name) if code else None

        async with self._coordinator_operation("fencing producers", timeout_s) as coordinators:
            return dict(zip(names, await asyncio.gather(*map(fence, names)), strict=True))

    @asynccontextmanager
    async def _coordinator_operation(
        self, what: str, timeout_s: float | None
    ) -> AsyncIterator[Coordinators]:
        async with self._operation(what, timeout_s) as running:
            coordinators = running.session.coordinators
            try:
                yield coordinators
            finally:
                if coordinators.last_error is not None:
                    running.session.note_error(coordinators.last_error)


def _error(code: int, what: str, operation: str, name: str) -> BrokerError:
    return broker_error(code, what, advice=denied(code, operation, name))
