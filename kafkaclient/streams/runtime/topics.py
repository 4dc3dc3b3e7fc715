"""The application's topics: input topics must exist, changelogs are created, ends are fetched."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin import Admin, ConfigResource, NewTopic
from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    StateStoreError,
    StreamsError,
    TopicExistsError,
    UnknownTopicError,
)
from kafkaclient.streams.state.directory import UNKNOWN_CHANGELOG, ChangelogTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.admin import TopicDescription
    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_READY_TIMEOUT_S = 30.0  # how long brokers may take to know a new changelog
_LEADER_TIMEOUT_S = 30.0  # how long partitions may be without leader
_POLL_INTERVAL_S = 0.1
_DELETE_RETENTION = "delete.retention.ms"


class ApplicationTopics(NamedTuple):
    """The topics' properties."""

    partitions: Mapping[str, int]
    """Input topic -> number of partitions."""
    changelogs: Mapping[str, ChangelogTopic]
    """Store -> its changelog topic."""


async def prepare_topics(config: StreamsConfig, topology: Topology) -> ApplicationTopics:
    """Check the topics, and create missing changelogs. A partition without leader is accepted: only
    its own task waits for a leader.

    Raises :class:`~kafkaclient.errors.StreamsError` if an input or dead letter topic does not
    exist, and :class:`~kafkaclient.errors.StateStoreError` if a changelog has a wrong number of
    partitions. Errors of the admin client are raised unchanged.
    """
    async with Admin(config.bootstrap_servers, **config.client_options) as admin:
        dead_letters = {t for p in topology.processors for t in p.dead_letter_topics}
        found = await _existing_topics(admin, {*topology.topics, *dead_letters})
        for topics, advice in (
            (set(topology.topics), "; create the input topics"),
            (dead_letters, ", which is to take dead letters (DeadLetter): create it"),
        ):
            if missing := sorted(topics - found.keys()):
                raise StreamsError(f"topic {', '.join(missing)} does not exist{advice}")
        partitions = {topic: len(found[topic].partitions) for topic in topology.topics}
        wanted = {
            topology.changelog_topic(processor): partitions[processor.topic]
            for processor in topology.processors
        }
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                existing = await _create_missing(admin, wanted, config.replication_factor)
                retention_s = {name: await _delete_retention_s(admin, name) for name in wanted}
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise  # a request timed out
            raise StreamsError(
                f"the changelogs {', '.join(sorted(wanted))} were created, but some broker does "
                f"not know them after {_READY_TIMEOUT_S:g} s"
            ) from None
    changelogs = {}
    for processor in topology.processors:
        name = topology.changelog_topic(processor)
        count = len(existing[name].partitions)
        if count != wanted[name]:
            raise StateStoreError(
                f"changelog {name} has {count} partitions, but {processor.topic}, its input topic, "
                f"has {wanted[name]}: keys would move to tasks without their state. Restart the "
                "application with another application.id, without its old state"
            )
        changelogs[processor.store] = ChangelogTopic(existing[name].topic_id, retention_s[name])
    return ApplicationTopics(partitions, changelogs)


async def _create_missing(
    admin: Admin, wanted: Mapping[str, int], replication_factor: int
) -> dict[str, TopicDescription]:
    """The changelogs, once brokers list them."""
    existing = await _existing_topics(admin, wanted)
    compacted = {"cleanup.policy": "compact"}
    new = [
        NewTopic(name, count, replication_factor, compacted, {})
        for name, count in wanted.items()
        if name not in existing
    ]
    for error in (await admin.create_topics(new)).values() if new else ():
        # Another instance may have created it first.
        if error is not None and not isinstance(error, TopicExistsError):
            raise error
    while wanted.keys() - (existing := await _existing_topics(admin, wanted)).keys():  # noqa: ASYNC110
        await asyncio.sleep(_POLL_INTERVAL_S)
    return existing


async def _existing_topics(admin: Admin, topics: Collection[str]) -> dict[str, TopicDescription]:
    """Those of the topics that exist, including partitions without leader."""
    # One request to one broker: another broker may not know a new topic yet.
    found = await admin.describe_topics()
    return {name: found[name] for name in topics if name in found and found[name].partitions}


async def _delete_retention_s(admin: Admin, topic: str) -> float:
    """The changelog's delete.retention.ms. Asks again while the broker does not know the topic: any
    broker is asked, and another one has listed the topic."""
    resource = ConfigResource.topic(topic)
    try:
        while True:
            with suppress(UnknownTopicError):
                found = await admin.describe_configs(resource, [_DELETE_RETENTION])
                return int(found[_DELETE_RETENTION].value or 0) / 1000
            await asyncio.sleep(_POLL_INTERVAL_S)
    except (AuthorizationError, KeyError, ValueError) as error:
        _log.info(
            "%s of topic %s cannot be read, so one day is assumed: %r",
            _DELETE_RETENTION,
            topic,
            error,
        )
        return UNKNOWN_CHANGELOG.delete_retention_s


async def partition_counts(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """Topic -> number of partitions, 0 if the topic does not exist."""
    found = await _existing_topics(admin, topics)
    return {name: len(found[name].partitions) if name in found else 0 for name in topics}


async def end_offsets(
    admin: Admin, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """End offset of the committed records of each partition. Waits for partitions without leader.

    Raises KafkaTimeoutError if a partition has no leader for 30 s, and KafkaError if the brokers do
    not answer.
    """
    found: dict[TopicPartition, int] = {}
    try:
        async with asyncio.timeout(_LEADER_TIMEOUT_S):
            while len(found := await admin.end_offsets(partitions)) < len(set(partitions)):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL_S)
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise  # a request timed out
        without = sorted(f"{p.topic}-{p.partition}" for p in set(partitions) - found.keys())
        raise KafkaTimeoutError(
            f"no end offset for {_LEADER_TIMEOUT_S:g} s, because there is no leader: "
            f"{', '.join(without)}. They are deleted, or their brokers are down"
        ) from error
    return found
