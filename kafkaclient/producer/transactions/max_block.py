"""How long a producer's application waits for its coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import KafkaError, TransactionTimeoutError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kafkaclient.config.limit import Limit
    from kafkaclient.producer.transactions.requests import TransactionRequests

__all__ = ["MaxBlockTimeout"]

T = TypeVar("T")


class MaxBlockTimeout:
    """The time limit for the calls of one transactional id."""

    def __init__(self, name: str, calls: TransactionRequests, limit: Limit) -> None:
        self.seconds = limit.seconds
        self._limit = limit
        self._name = name
        self._calls = calls

    async def in_time(self, call: Coroutine[None, None, T], what: str) -> T:
        """A call that may be given up. Raises TransactionTimeoutError when its time is over."""
        try:
            async with asyncio.timeout(self.seconds) as limit:
                return await call
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            raise self.over(what) from self._calls.last_error

    def over(self, what: str) -> TransactionTimeoutError:
        """The error that says what the coordinator was waited for, and met last."""
        last = self._calls.last_error
        return TransactionTimeoutError(
            f"transactional id {self._name!r}: {what}; not done within {self._limit}, "
            f"last error: {last or 'none'}"
        )
