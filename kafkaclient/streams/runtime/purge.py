"""Deletes the records of repartition topics that the application has processed and committed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)


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
