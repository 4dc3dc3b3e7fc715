"""The topics of an application: those that it reads have to be there, changelogs are made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.admin import Admin, NewTopic
from kafkaclient.errors import StateStoreError, StreamsError, TopicExistsError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.topology import Topology

__all__ = ["prepare_topics"]

_READY_TIMEOUT = 30.0
"""Seconds for a new changelog to have leaders."""
_POLL = 0.1


async def prepare_topics(config: StreamsConfig, topology: Topology) -> dict[str, int]:
    """How many partitions each topic that is read has; changelogs have as many afterwards.

    Raises :class:`~kafkaclient.errors.StreamsError` when one that is read is not there,
    :class:`~kafkaclient.errors.StateStoreError` when a changelog has another number of partitions,
    and what the admin client raises.
    """
    async with Admin(config.bootstrap_servers, **config.producer_options) as admin:
        partitions = await _partitions(admin, topology.topics)
        if missing := sorted(set(topology.topics) - partitions.keys()):
            raise StreamsError(
                f"topic {', '.join(missing)} does not exist; what is read must be there"
            )
        wanted = {
            topology.changelog_topic(processor): partitions[processor.topic]
            for processor in topology.processors
        }
        there = await _made(admin, wanted, config.replication_factor)
    for processor in topology.processors:
        name = topology.changelog_topic(processor)
        if there[name] != wanted[name]:
            raise StateStoreError(
                f"changelog {name} has {there[name]} partitions, but {processor.topic}, whose "
                f"state it keeps, has {wanted[name]}: keys would be looked for where they are not. "
                "Give the application another application.id and let it begin anew"
            )
    return partitions


async def _made(admin: Admin, wanted: dict[str, int], replication_factor: int) -> dict[str, int]:
    there = await _partitions(admin, wanted)
    compacted = {"cleanup.policy": "compact"}
    new = [
        NewTopic(name, count, replication_factor, compacted, {})
        for name, count in wanted.items()
        if name not in there
    ]
    for error in (await admin.create_topics(new)).values() if new else ():
        # Another instance may have been faster.
        if error is not None and not isinstance(error, TopicExistsError):
            raise error
    try:
        async with asyncio.timeout(_READY_TIMEOUT):
            while wanted.keys() - (there := await _partitions(admin, wanted)).keys():  # noqa: ASYNC110
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise StreamsError(
            f"the changelogs {', '.join(sorted(wanted))} have no leaders after {_READY_TIMEOUT} s"
        ) from None
    return there


async def _partitions(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """Of those that are there, with a leader for each partition."""
    there = [name for name in await admin.list_topics() if name in topics]
    found = await admin.describe_topics(there)
    return {name: len(topic.partitions) for name, topic in found.items() if not topic.unavailable}
