"""The method of :class:`~kafkaclient.admin.Admin` that deletes records."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.admin.error_codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from kafkaclient.admin.running import Runnable
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import ConfigError
from kafkaclient.wire.delete_records import DeleteRecordsCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin.session import Session
    from kafkaclient.errors import BrokerError
    from kafkaclient.types import TopicPartition


class RecordAdmin(Runnable):
    """The record method of :class:`~kafkaclient.admin.Admin`."""

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 deletes all that are written
        (KIP-107; Java: ``Admin.deleteRecords``). Returns each partition's first offset. The
        deletion cannot be undone. An offset before the first one changes nothing.

        Raises:
            ConfigError: an offset is less than -1.
            OffsetOutOfRangeError: an offset is beyond the end of its partition.
            UnknownTopicError: a partition does not exist.
            AuthorizationError: the principal may not ``Delete`` records of the topic.
            PolicyViolationError: the topic is only compacted (``cleanup.policy``).
            BrokerError: another error of a leader. Records of other partitions may be deleted.
        """
        for partition, offset in offsets.items():
            if offset < -1:
                raise ConfigError(
                    f"delete_records of {partition} before offset {offset}: give an offset of at "
                    "least 0, or -1 for all records"
                )
        deleted: dict[TopicPartition, int] = {}
        async with self._operation("deleting records", timeout_s) as running:

            async def attempt() -> None:
                left = {p: offset for p, offset in offsets.items() if p not in deleted}
                await _delete(running.session, left, deleted)

            if offsets:
                await running.session.until_answered(attempt)
        return deleted


async def _delete(
    session: Session, offsets: Mapping[TopicPartition, int], deleted: dict[TopicPartition, int]
) -> None:
    """Send one request to each leader. Adds the first offsets to ``deleted``."""
    led: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
    leaders: dict[tuple[str, int], int] = {}
    for info in (await session.metadata(tuple(sorted({p.topic for p in offsets})))).topics:
        leaders |= {(info.name, view.partition): view.leader for view in info.partitions}
    for partition, offset in offsets.items():
        leader = leaders.get(partition)
        if leader is None:
            error = _error(UNKNOWN_TOPIC_OR_PARTITION, partition)
            error.retriable = False  # brokers have answered that it does not exist
            raise error
        if leader < 0:
            raise _error(LEADER_NOT_AVAILABLE, partition)  # retried
        led[leader][partition] = offset
    timeout_ms = session.controller_timeout_ms
    answers = await asyncio.gather(
        *(session.once(DeleteRecordsCall(part, timeout_ms), leader) for leader, part in led.items())
    )
    outcomes = [each for answer in answers for each in answer.partitions]
    deleted |= {each.partition: each.low_watermark for each in outcomes if not each.error_code}
    for each in outcomes:
        if each.error_code:
            raise _error(each.error_code, each.partition)


def _error(code: int, partition: TopicPartition) -> BrokerError:
    advice = denied(code, "Delete", partition.topic)
    return broker_error(code, f"deleting records of {partition}", advice=advice)
