"""How a transaction ends: in a task of its own; and how long its callers wait for coordinators."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import KafkaError, TransactionTimeoutError, defect
from kafkaclient.time_limit import time_limit, wait_within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.transactions.requests import TransactionRequests

_log = logging.getLogger(__name__)

T = TypeVar("T")


class EndTxnTask:
    """A commit or an abort under way; all callers that wait for it get its one outcome.

    ``work(end_txn)`` does it; ``on_defect(error)`` is called when that raises anything but a
    KafkaError.
    """

    def __init__(
        self,
        work: Callable[[EndTxnTask], Coroutine[None, None, None]],
        *,
        commit: bool,
        on_defect: Callable[[KafkaError], None],
    ) -> None:
        self.commit = commit
        self.error: KafkaError | None = None
        self.sent = False
        """The coordinator may have got EndTxn: only its answer shows the outcome."""
        self.observed: bool = False
        """The task has ended, and a caller has seen its outcome."""
        self._on_defect = on_defect
        self.task = asyncio.get_running_loop().create_task(
            self._run(work), name=f"kafkaclient-{self.name}"
        )

    @property
    def name(self) -> str:
        """The method that the application has called."""
        return "commit_transaction" if self.commit else "abort_transaction"

    async def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; returns whether the task has ended. Cancelling the call does not
        cancel the task."""
        ended = await wait_within(self.task, seconds)
        self.observed |= ended
        return ended

    async def _run(self, work: Callable[[EndTxnTask], Coroutine[None, None, None]]) -> None:
        try:
            await work(self)
        except KafkaError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - no caller may wait forever
            _log.exception("ending a transaction failed")
            self.error = defect(self.name, error)
            self._on_defect(self.error)


class MaxBlockTimeout:
    """The time limit (``max.block.ms``) for the calls of one transactional id."""

    def __init__(self, transactional_id: str, requests: TransactionRequests, limit: Limit) -> None:
        self.seconds = limit.seconds
        self._limit = limit
        self._transactional_id = transactional_id
        self._requests = requests

    async def within(self, call: Coroutine[None, None, T], what: str, spent: float = 0.0) -> T:
        """Await a call that may be given up. Raises TransactionTimeoutError when its time is
        over, of which ``spent`` seconds have passed already."""
        try:
            async with time_limit(self.seconds - spent) as limit:
                return await call
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            raise self.error(what) from self._requests.last_error

    def error(self, what: str) -> TransactionTimeoutError:
        """The error for a call that took too long; it names the coordinator's last error."""
        last = self._requests.last_error
        return TransactionTimeoutError(
            f"transactional id {self._transactional_id!r}: {what}; not done within {self._limit}, "
            f"last error: {last or 'none'}"
        )
