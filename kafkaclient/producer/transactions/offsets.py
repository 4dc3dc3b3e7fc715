"""Offsets of consumer groups that are being sent within a transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.producer.transactions.requests import TransactionRequests
    from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["TransactionOffsets"]

_log = logging.getLogger(__name__)


class TransactionOffsets:
    """Each send is a task of its own: whoever asked for it may lose patience, it goes on.
    ``on_failed(error)`` is called when one was refused, or could not be made. ``on_fenced(error)``
    is called when the group's coordinator refused the producer epoch: the producer may have been
    fenced, or its transaction has timed out."""

    def __init__(
        self,
        calls: TransactionRequests,
        on_failed: Callable[[KafkaError], None],
        on_fenced: Callable[[KafkaError], None],
    ) -> None:
        self.under_way: set[asyncio.Task[bool]] = set()
        self._calls = calls
        self._on_failed = on_failed
        self._on_fenced = on_fenced

    def send(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> asyncio.Task[bool]:
        """Begin to send; the task tells whether it has worked."""
        task = asyncio.get_running_loop().create_task(
            self._send(offsets, group), name="kafkaclient-send-offsets"
        )
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task

    async def _send(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> bool:
        try:
            if not self._calls.v2:
                await self._calls.add_offsets(group)
            fenced = await self._calls.send_offsets(offsets, group)
        except KafkaError as error:
            self._on_failed(error)
            return False
        except Exception as defect:  # noqa: BLE001 - no commit may go on without the offsets
            _log.exception("sending offsets to a transaction failed")
            failure = KafkaError(
                f"sending offsets of group {group.group_id!r} failed: {defect!r}; this is a defect"
            )
            failure.__cause__ = defect
            self._on_failed(failure)
            return False
        if fenced is not None:
            self._on_fenced(fenced)
        return fenced is None
