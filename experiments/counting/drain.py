"""Waits until an application has processed its input."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.admin import Admin
    from kafkaclient.types import TopicPartition

__all__ = ["wait_until_processed"]

_POLL_S = 0.1


async def wait_until_processed(
    admin: Admin, group: str, inputs: Collection[TopicPartition], within_s: float
) -> None:
    """Wait until the group has committed all records of the inputs. Raises KafkaError after
    ``within_s`` seconds, with the number of records that are left."""
    left = -1
    try:
        async with asyncio.timeout(within_s):
            while left:
                await asyncio.sleep(_POLL_S)
                ends = await admin.end_offsets(inputs)
                done = await admin.committed_offsets(group, inputs)
                left = sum(end - done.get(each, 0) for each, end in ends.items())
    except TimeoutError:
        raise KafkaError(f"{left:,} records were not processed within {within_s:g} s") from None
