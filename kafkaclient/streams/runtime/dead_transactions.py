"""Clears what processes have left: open transactions, and records of repartition topics.

Offsets of an open transaction cannot be read yet, nor what follows its records in a changelog. So
the next owner of a task would wait for up to ``transaction.timeout.ms``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from kafkaclient.errors import AuthorizationError, KafkaError, UnsupportedVersionError
from kafkaclient.streams.positions import member_processes
from kafkaclient.wire.transactions import TxnState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition


# --- Ends the transactions that processes of the application have left open -----------------------

_log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 5.0
_PATIENCE_S = 30.0  # how long the group may rebalance, or brokers may not answer
_RETRY_BACKOFF_S = 0.1


def transactional_id(application_id: str, process_id: UUID) -> str:
    """The transactional id of a process's producer."""
    return f"{application_id}-{process_id}"


class DeadTransactions:
    """Lists the application's open transactions (KIP-664), and fences the producers of processes
    that are not in the group any more: that aborts their transactions.

    A process begins transactions only as a member. So one that has a transaction, and then is no
    member, cannot commit it: the group's coordinator refuses its offsets (KIP-447).

    A process that joins again between the description of the group and the fencing may lose a
    transaction that it has just begun. It then restores its tasks; nothing is lost or doubled.
    """

    def __init__(
        self, admin: Admin, application_id: str, process_id: UUID, clock: Callable[[], float]
    ) -> None:
        self._admin = admin
        self._application_id = application_id
        self._own = transactional_id(application_id, process_id)
        self._clock = clock
        self._search: asyncio.Task[None] | None = None
        self._again = False
        """Whether to search once more after the present search."""
        self._has_warned = False

    def search(self) -> None:
        """Search in the background. Call it when a task is taken over."""
        if self._search is not None and not self._search.done():
            self._again = True
            return
        self._search = asyncio.create_task(self._run(), name="kafkaclient-dead-transactions")

    async def close(self) -> None:
        if self._search is not None:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)

    async def _run(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            until = self._clock() + _PATIENCE_S
            while True:
                problem = "the group goes on rebalancing"
                try:
                    if await self._end_all():
                        break
                except (AuthorizationError, UnsupportedVersionError) as error:
                    self._warn(error)
                    break
                except KafkaError as error:
                    problem = str(error)
                if self._clock() > until:
                    self._warn(problem)
                    break
                await asyncio.sleep(_RETRY_BACKOFF_S)

    async def _end_all(self) -> bool:
        """Returns False while the group's members are not known."""
        prefix = f"{self._application_id}-"
        listed = await self._admin.list_transactions(prefix, timeout_s=_REQUEST_TIMEOUT_S)
        if all(each.transactional_id != self._own for each in listed):
            self._warn("this client lacks the permission Describe on its own transactional id")
            return True
        found: dict[UUID, str] = {}
        for name, _, state in listed:
            if state is TxnState.ONGOING and name != self._own:
                with suppress(ValueError):  # another application's, whose name begins the same
                    found[UUID(name.removeprefix(prefix))] = name
        if not found:
            return True
        # After the list: a process that has joined meanwhile must count as a member.
        group = await self._admin.describe_group(self._application_id, timeout_s=_REQUEST_TIMEOUT_S)
        if group.state not in ("Stable", "Empty", "Dead"):
            return False
        processes = member_processes(group)
        if processes is None:
            self._warn("the process of a member is not known")
            return True
        dead = [name for process, name in found.items() if process not in processes]
        if dead:
            outcomes = await self._admin.fence_producers(dead, timeout_s=_REQUEST_TIMEOUT_S)
            for name, error in outcomes.items():
                if error is not None:
                    raise error
                _log.info("aborted the transaction that %s has left open", name)
        return True

    def _warn(self, problem: object) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "transactions of ended processes of %s cannot be ended here, so their tasks wait "
                "for transaction.timeout.ms: %s",
                self._application_id,
                problem,
            )


# --- Deletes the records of repartition topics that the application has processed -----------------


async def purge_repartition_topics(
    new_admin: Callable[[], Admin],
    interval_s: float,
    committed: Callable[[], Mapping[TopicPartition, int]],
) -> None:
    """Delete the records before the committed offsets once per interval (KIP-811); never returns. A
    failure is logged, and retried after the interval: it costs disk space only."""
    purged: dict[TopicPartition, int] = {}
    while True:
        await asyncio.sleep(interval_s)
        due = {p: offset for p, offset in committed().items() if offset > purged.get(p, 0)}
        if not due:
            continue
        try:
            async with new_admin() as admin:
                await admin.delete_records(due)
        except KafkaError as error:
            _log.warning("processed records of repartition topics were not deleted: %s", error)
        else:
            purged |= due
