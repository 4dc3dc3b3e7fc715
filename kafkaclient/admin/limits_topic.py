"""Partition limits in a compacted topic: where every client of the cluster sees them.

Brokers accept unknown dynamic configurations and never give their values back, so the limits
cannot live there (checked on 4.3.1).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.admin.limits import Limits
from kafkaclient.admin.log import read_partition
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import (
    ConfigError,
    KafkaError,
    ProtocolError,
    TopicExistsError,
)
from kafkaclient.wire.codec import NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.session import Session
    from kafkaclient.admin.topics import Requests
    from kafkaclient.producer.producer import Producer
    from kafkaclient.wire.results import MetadataResult, TopicInfo

__all__ = ["LIMITS_TOPIC", "TopicLimits"]

LIMITS_TOPIC = "__kafkaclient_partition_limits"
"""One partition, compacted: a record for each limit, its name as the key, its value as text; no
value is no limit. It is not limited, and does not count."""

_REPLICATION_FACTOR = 3
_UNKNOWN_TOPIC = 3
_TOPIC_DENIED = 29


class TopicLimits:
    """Limits in :data:`LIMITS_TOPIC`, read anew for every request.

    The log decides between two who set limits at once: the later record holds for everybody.
    """

    def __init__(
        self, session: Session, requests: Requests, new_producer: Callable[[], Producer]
    ) -> None:
        self._session = session
        self._requests = requests
        self._new_producer = new_producer

    def __str__(self) -> str:
        return f"the topic {LIMITS_TOPIC}"

    async def read(self, cluster: MetadataResult | None = None) -> Limits:
        """The limits; none if the topic does not exist. Raises what keeps it from being read:
        without knowing the limits nothing is created. ``cluster``: metadata of all topics, if that
        is at hand."""
        known = {topic.name for topic in cluster.topics} if cluster is not None else set()
        # Metadata of all topics leaves out those that this client may not describe: by name, a
        # broker says that it is hidden, and does not say whether it exists.
        if LIMITS_TOPIC not in known and await self._topic() is None:
            return Limits()
        return await self._read()

    async def _topic(self) -> TopicInfo | None:
        """None if it does not exist. Raises AuthorizationError."""
        topics = (await self._session.metadata((LIMITS_TOPIC,))).topics
        told = next((topic for topic in topics if topic.name == LIMITS_TOPIC), None)
        if told is None or told.error_code == _UNKNOWN_TOPIC:
            return None
        if told.error_code == _TOPIC_DENIED:
            allowed = denied(told.error_code, "Describe", LIMITS_TOPIC, by_itself=True) or ""
            raise broker_error(
                told.error_code,
                "the partition limits cannot be read, and without them nothing is created or moved",
                advice=f"{allowed.replace('--operation Describe', '--operation Read')}, also "
                "before the topic exists. --ignore-limits (Admin(..., limits=None)) sets limits "
                "aside",
            )
        return told

    async def change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Set these limits, leave the others; the limits as they are afterwards.

        Raises KafkaError when somebody else has set one of them differently at the same time.
        """
        wanted = Limits().changed(given)  # refuses what is none before anything is written
        await self._ensure_topic()
        records = {name: wanted.as_properties()[name] for name in given}
        producer = self._new_producer()
        try:
            await producer.start()
            await asyncio.gather(
                *(
                    producer.send_nowait(
                        LIMITS_TOPIC, value and value.encode(), name.encode(), partition=0
                    )
                    for name, value in records.items()
                )
            )
        finally:
            await producer.stop(0)
        now = await self._read()
        lost = [name for name, value in records.items() if now.as_properties()[name] != value]
        if lost:
            raise KafkaError(
                f"{', '.join(lost)} in {self}: somebody else has set another value at the same "
                f"time, and theirs holds: {now}"
            )
        return now

    async def _read(self) -> Limits:
        given: dict[str, str | int | None] = {}
        try:
            for record in await read_partition(self._session, LIMITS_TOPIC, 0):
                name = (record.key or b"").decode()
                given[name] = None if record.value is None else record.value.decode()
            return Limits.parse(given)
        except (UnicodeDecodeError, ConfigError) as error:
            raise ProtocolError(
                f"{self} has a record that this client does not understand: {error}; is it "
                "written by a newer version of kafkaclient, or by something else?"
            ) from error

    async def _ensure_topic(self) -> None:
        """The topic, with as many replicas as there are brokers for."""
        if await self._topic() is not None:
            return
        brokers = (await self._session.metadata(())).brokers
        replicas = min(_REPLICATION_FACTOR, len(brokers))
        topic = NewTopic(LIMITS_TOPIC, 1, replicas, {"cleanup.policy": "compact"})
        outcome = (await self._requests.create([topic]))[LIMITS_TOPIC]
        if isinstance(outcome, KafkaError) and not isinstance(outcome, TopicExistsError):
            raise outcome
        waits = 0
        while True:
            told = await self._topic()
            if told is not None and any(p.leader >= 0 for p in told.partitions):
                return
            waits += 1
            await self._session.pause(waits)
