"""Publishes how far an instance's standbys and warm-ups are, for ``streams describe``.

Members report positions to their leader only when they join. So each instance also commits the
positions as offsets of a group without members. Kafka's own tools can read them.
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

_log = logging.getLogger(__name__)

_PUBLISH_INTERVAL_S = 1.0
_RETRY_AFTER_S = 60.0


def positions_group(application_id: str, process_id: UUID) -> str:
    """The group that holds the positions of an instance's standbys and warm-ups."""
    return f"{application_id}-{process_id}"


async def publish_positions(
    new_admin: Callable[[], Admin],
    group: str,
    positions: Callable[[], Mapping[TopicPartition, int]],
) -> None:
    """Commit changed positions every second; never returns. A failure is logged, and retried after
    a minute: no other part of the runtime needs the positions."""
    while True:
        published: Mapping[TopicPartition, int] = {}
        try:
            async with new_admin() as admin:
                while True:
                    await asyncio.sleep(_PUBLISH_INTERVAL_S)
                    found = positions()
                    if found and found != published:
                        await admin.alter_offsets(group, found)
                        published = found
        except KafkaError as error:
            _log.warning("positions of standbys are not published to group %s: %s", group, error)
        await asyncio.sleep(_RETRY_AFTER_S)
