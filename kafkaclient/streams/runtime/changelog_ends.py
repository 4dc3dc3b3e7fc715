"""End offsets of changelogs and input partitions.

The admin client has its own connections: a consumer's request would wait behind its fetch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition

__all__ = ["ChangelogEnds"]

_TIMEOUT_S = 30.0  # how long partitions may be without leader
_BACKOFF_S = 0.1


class ChangelogEnds:
    """A callable that fetches end offsets."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End offset of the committed records of each partition. Waits for partitions without
        leader.

        Raises KafkaTimeoutError if a partition has no leader for 30 s, and KafkaError if the
        brokers do not answer.
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
                raise  # a request timed out
            without = sorted(f"{p.topic}-{p.partition}" for p in set(partitions) - found.keys())
            raise KafkaTimeoutError(
                f"no end offset for {_TIMEOUT_S:g} s, because there is no leader: "
                f"{', '.join(without)}. They are deleted, or their brokers are down"
            ) from error
