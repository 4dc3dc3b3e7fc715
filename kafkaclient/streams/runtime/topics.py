"""The topics of an application: those that it reads have to be existing, changelogs are made."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin import Admin, ConfigResource, NewTopic
from kafkaclient.errors import (
    AuthorizationError,
    StateStoreError,
    StreamsError,
    TopicExistsError,
)
from kafkaclient.streams.state.checkpoint import UNKNOWN_CHANGELOG, ChangelogTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.admin import TopicDescription
    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.topology import Topology

__all__ = ["ApplicationTopics", "prepare_topics"]

_log = logging.getLogger(__name__)

_READY_TIMEOUT_S = 30.0
"""Seconds for brokers to know a new changelog."""
_POLL_INTERVAL_S = 0.1
_DELETE_RETENTION = "delete.retention.ms"


class ApplicationTopics(NamedTuple):
    """What was found, or made."""

    partitions: Mapping[str, int]
    """Of each topic that is read."""
    changelogs: Mapping[str, ChangelogTopic]
    """By store."""


async def prepare_topics(config: StreamsConfig, topology: Topology) -> ApplicationTopics:
    """See what existing is, and make changelogs that are not existing. A partition without leader counts:
    its task waits for one, the others do not.

    Raises :class:`~kafkaclient.errors.StreamsError` when a topic that is read, or that takes dead
    letters, does not exist, :class:`~kafkaclient.errors.StateStoreError` when a changelog has
    another number of partitions, and what the admin client raises.
    """
    async with Admin(config.bootstrap_servers, **config.client_options) as admin:
        dead_letters = {t for p in topology.processors for t in p.dead_letter_topics}
        found = await _existing_topics(admin, {*topology.topics, *dead_letters})
        if missing := sorted(set(topology.topics) - found.keys()):
            raise StreamsError(
                f"topic {', '.join(missing)} does not exist; what is read must be existing"
            )
        if missing := sorted(dead_letters - found.keys()):
            raise StreamsError(
                f"topic {', '.join(missing)} does not exist, which is to take records that cannot "
                "be processed (DeadLetter): create it"
            )
        partitions = {topic: len(found[topic].partitions) for topic in topology.topics}
        wanted = {
            topology.changelog_topic(processor): partitions[processor.topic]
            for processor in topology.processors
        }
        existing = await _create_missing(admin, wanted, config.replication_factor)
        retention_s = {name: await _delete_retention_s(admin, name) for name in wanted}
    for processor in topology.processors:
        name = topology.changelog_topic(processor)
        count = len(existing[name].partitions)
        if count != wanted[name]:
            raise StateStoreError(
                f"changelog {name} has {count} partitions, but {processor.topic}, whose state it "
                f"keeps, has {wanted[name]}: keys would be looked for where they are not. Give the "
                "application another application.id and let it begin anew"
            )
    changelogs = {
        processor.store: ChangelogTopic(existing[name].topic_id, retention_s[name])
        for processor in topology.processors
        for name in (topology.changelog_topic(processor),)
    }
    return ApplicationTopics(partitions, changelogs)


async def _create_missing(
    admin: Admin, wanted: Mapping[str, int], replication_factor: int
) -> dict[str, TopicDescription]:
    existing = await _existing_topics(admin, wanted)
    compacted = {"cleanup.policy": "compact"}
    new = [
        NewTopic(name, count, replication_factor, compacted, {})
        for name, count in wanted.items()
        if name not in existing
    ]
    for error in (await admin.create_topics(new)).values() if new else ():
        # Another instance may have been faster.
        if error is not None and not isinstance(error, TopicExistsError):
            raise error
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while wanted.keys() - (existing := await _existing_topics(admin, wanted)).keys():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL_S)
    except TimeoutError:
        raise StreamsError(
            f"the changelogs {', '.join(sorted(wanted))} were created, and brokers do not know "
            f"them after {_READY_TIMEOUT_S:g} s"
        ) from None
    return existing


async def _existing_topics(admin: Admin, topics: Collection[str]) -> dict[str, TopicDescription]:
    """Those that exist; a partition may be without leader."""
    # One question to one broker: the next one may not know a new topic yet.
    found = await admin.describe_topics()
    return {name: found[name] for name in topics if name in found and found[name].partitions}


async def _delete_retention_s(admin: Admin, topic: str) -> float:
    try:
        found = await admin.describe_configs(ConfigResource.topic(topic), [_DELETE_RETENTION])
        return int(found[_DELETE_RETENTION].value or 0) / 1000
    except (AuthorizationError, KeyError, ValueError) as error:
        _log.info("%s of %s cannot be read, one day counts: %r", _DELETE_RETENTION, topic, error)
        return UNKNOWN_CHANGELOG.delete_retention_s
