"""How far an instance's copies are, where everybody can see it.

Members tell their leader only when they join; a copy that warms up joins when it is there. So every
instance commits the positions of its copies as offsets of a group without members, one group per
instance, as Kafka's own tools show them, too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition

__all__ = ["positions_group", "publish_positions"]

_log = logging.getLogger(__name__)

_PUBLISH_INTERVAL_S = 1.0
_RETRY_AFTER_S = 60.0


def positions_group(application_id: str, process_id: UUID) -> str:
    """The group that has the positions of an instance's copies."""
    return f"{application_id}-{process_id}"


async def publish_positions(
    new_admin: Callable[[], Admin],
    group: str,
    positions: Callable[[], Mapping[TopicPartition, int]],
) -> None:
    """For ever: commit positions every second, if they have changed. Nothing depends on it, so what
    fails is a warning, and is tried again after a minute."""
    while True:
        try:
            async with new_admin() as admin:
                await _publish(admin, group, positions)
        except KafkaError as error:
            _log.warning("nobody can see how far the copies of tasks here are: %s", error)
        await asyncio.sleep(_RETRY_AFTER_S)


async def _publish(
    admin: Admin, group: str, positions: Callable[[], Mapping[TopicPartition, int]]
) -> None:
    published: Mapping[TopicPartition, int] = {}
    while True:
        await asyncio.sleep(_PUBLISH_INTERVAL_S)
        found = positions()
        if found and found != published:
            await admin.alter_offsets(group, found)
            published = found
