"""Partition limits in a compacted topic, which every client of the cluster can read.

The brokers' dynamic configuration cannot store the limits: brokers accept unknown keys, but never
return the values (checked on 4.3.1).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.admin.limits import Limits
from kafkaclient.admin.partition_reader import read_partition
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import (
    ConfigError,
    KafkaError,
    ProtocolError,
    TopicExistsError,
)
from kafkaclient.wire.topics import NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.admin.session import Session
    from kafkaclient.admin.topics import Requests
    from kafkaclient.producer.producer import Producer
    from kafkaclient.wire.results import MetadataResult, TopicInfo

__all__ = ["LIMITS_TOPIC", "TopicLimits"]

LIMITS_TOPIC = "__kafkaclient_partition_limits"
"""A compacted topic with one partition. Each record has a limit's name as its key and the limit as
text; a null value is no limit. The topic itself does not count against the limits."""

_REPLICATION_FACTOR = 3
_UNKNOWN_TOPIC = 3
_TOPIC_DENIED = 29


class TopicLimits:
    """The limits in :data:`LIMITS_TOPIC`. Each request reads the topic.

    If two clients set the same limit at the same time, the later record in the log wins.
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
        """The limits, or no limits if the topic does not exist. Raises the error if the topic
        cannot be read: nothing is created while the limits are unknown. ``cluster`` is metadata of
        all topics, if the caller has it."""
        known = {topic.name for topic in cluster.topics} if cluster is not None else set()
        # Metadata of all topics omits topics that this client may not describe. Metadata of the
        # named topic has an authorization error instead, whether or not the topic exists.
        if LIMITS_TOPIC not in known and await self._topic() is None:
            return Limits()
        return await self._read()

    async def _topic(self) -> TopicInfo | None:
        """The topic, or None if it does not exist. Raises AuthorizationError."""
        topics = (await self._session.metadata((LIMITS_TOPIC,))).topics
        info = next((topic for topic in topics if topic.name == LIMITS_TOPIC), None)
        if info is None or info.error_code == _UNKNOWN_TOPIC:
            return None
        if info.error_code == _TOPIC_DENIED:
            allowed = denied(info.error_code, "Describe", LIMITS_TOPIC, by_itself=True) or ""
            raise broker_error(
                info.error_code,
                "the partition limits cannot be read, and without them nothing is created or moved",
                advice=f"{allowed.replace('--operation Describe', '--operation Read')}, also "
                "before the topic exists. --ignore-limits (Admin(..., limits=None)) ignores the "
                "limits",
            )
        return info

    async def change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Set the ``given`` limits and return all limits.

        Raises KafkaError if a concurrent change of another client set a different value.
        """
        wanted = Limits().changed(given)  # raises for unusable limits before any record is sent
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
                f"setting {', '.join(lost)} in {self}: another client set a different value at the "
                f"same time, which is now in force: {now}; set it again if it is wrong"
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
                f"{self} has a record that this client does not understand: {error}; a newer "
                "version of kafkaclient or another program may have written it"
            ) from error

    async def _ensure_topic(self) -> None:
        """Create the topic if it is missing, with up to 3 replicas, and wait for its leader."""
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
            info = await self._topic()
            if info is not None and any(p.leader >= 0 for p in info.partitions):
                return
            waits += 1
            await self._session.pause(waits)
