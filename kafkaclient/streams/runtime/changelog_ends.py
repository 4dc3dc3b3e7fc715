"""Where changelogs and source partitions end, asked over connections of its own: behind a
consumer's fetch the question would wait until that has found something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition

__all__ = ["ChangelogEnds"]

_TIMEOUT_S = 30.0
_BACKOFF_S = 0.1


class ChangelogEnds:
    """Call it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of all of them, as far as they are committed; waits for those that have no leader.

        Raises KafkaTimeoutError when they have none for half a minute, and KafkaError when the
        brokers cannot be asked.
        """
        found: dict[TopicPartition, int] = {}
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while True:
                    found = await self._admin.end_offsets(partitions)
                    if len(found) == len(set(partitions)):
                        return found
                    await asyncio.sleep(_BACKOFF_S)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise  # a question that was not answered
            without = sorted(f"{p.topic}-{p.partition}" for p in set(partitions) - found.keys())
            raise KafkaTimeoutError(
                f"partitions without a leader for {_TIMEOUT_S:g} s: {', '.join(without)}. They "
                "are deleted, or their brokers are down"
            ) from error
