"""Where changelogs end, asked over connections of its own: behind a consumer's fetch the question
would wait until that has found something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition

__all__ = ["ChangelogEnds"]

_BACKOFF_S = 0.1


class ChangelogEnds:
    """Call it. Raises KafkaError when the brokers cannot be asked."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of all of them, as far as they are committed; waits for those that have no leader."""
        while True:
            found = await self._admin.end_offsets(partitions)
            if len(found) == len(set(partitions)):
                return found
            await asyncio.sleep(_BACKOFF_S)
