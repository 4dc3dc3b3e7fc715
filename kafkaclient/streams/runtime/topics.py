"""The application's topics: inputs must exist, repartition topics and changelogs are created, ends
are fetched."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin import ConfigResource, NewTopic
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    StateStoreError,
    StreamsError,
    TopicExistsError,
    UnknownTopicError,
)
from kafkaclient.streams.declarations import RepartitionTopic
from kafkaclient.streams.state_directory import UNKNOWN_CHANGELOG, ChangelogTopic
from kafkaclient.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from kafkaclient.admin import Admin, TopicDescription
    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_READY_TIMEOUT_S = 30.0  # how long brokers may take to know a new changelog
_LEADER_TIMEOUT_S = 30.0  # how long partitions may be without leader
_POLL_INTERVAL_S = 0.1
_CHECK_INTERVAL_S = 3.0  # between checks that no internal topic was deleted
_GONE_LOOKS = 3  # before an internal topic counts as deleted
_LOOKS = 10  # before a topic counts as missing: the broker that is asked may not know a new one yet
_CLEANUP, _DELETE_RETENTION = "cleanup.policy", "delete.retention.ms"
_RETENTION = ("retention.ms", "retention.bytes")
_CHANGELOG_CONFIGS = {"cleanup.policy": "compact"}
# RepartitionTopicConfig.java: records stay until the application deletes them.
_REPARTITION_CONFIGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": str(50 * 1024 * 1024),
}


class ApplicationTopics(NamedTuple):
    """The topics' properties. Topics have the names that brokers know."""

    topology: Topology
    """The application's topology, with the repartition topics that were inferred."""
    partitions: Mapping[str, int]
    """Input topic -> number of partitions."""
    changelogs: Mapping[str, ChangelogTopic]
    """Store -> its changelog topic."""
    internal: Mapping[str, UUID | None]
    """Changelog or repartition topic -> topic id. None: unknown, for example before Kafka 2.8."""


async def prepare_topics(
    admin: Admin, config: StreamsConfig, topology: Topology
) -> ApplicationTopics:
    """Check the topics, and create missing repartition topics and changelogs. A partition without
    leader is accepted: only its own task waits for a leader.

    Raises :class:`~kafkaclient.errors.StreamsError` if an input or dead letter topic does not
    exist, or if inputs of common stores have different numbers of partitions, and
    :class:`~kafkaclient.errors.StateStoreError` if a changelog has a wrong number of partitions.
    Raises :class:`~kafkaclient.errors.AuthorizationError` for a topic that this client may not
    describe. Other errors of the admin client are raised unchanged too.
    """
    existing = await _all_topics(admin, topology)
    inferred = topology.inferred_repartition_topics(existing)
    topology = topology.with_repartition_topics(inferred)
    for name in sorted(inferred):
        _log.info(
            "input %s does not exist, and another processor's code has its name: the "
            "application makes the repartition topic %s",
            *(name, topology.topic_name(name)),
        )
    made = topology.internal_topics
    _check_existing(topology, made, existing)
    inputs = {name: existing[name] for name in topology.topics if name in existing}
    partitions = inputs | topology.repartition_counts(inputs)
    _check_declared_counts(topology, partitions)
    topology.check_partitions(partitions)
    wanted = _changelog_counts(topology, partitions)
    new = [
        NewTopic(name, partitions[name], config.replication_factor, _REPARTITION_CONFIGS, {})
        for name in made
    ]
    new += [
        NewTopic(name, count, config.replication_factor, _CHANGELOG_CONFIGS, {})
        for name, count in wanted.items()
    ]
    names = ", ".join(sorted({*made, *wanted}))
    try:
        async with time_limit(_READY_TIMEOUT_S):
            created = await _create_missing(admin, new)
            retention_s = {name: await _delete_retention_s(admin, name) for name in wanted}
            for name in made:
                await _check_repartition_topic(admin, name)
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise  # a request timed out
        raise StreamsError(
            f"the topics {names} were created, but some broker does not know them after "
            f"{_READY_TIMEOUT_S:g} s"
        ) from None
    for name in made:
        if (count := len(created[name].partitions)) != partitions[name]:  # made by another instance
            raise StreamsError(
                f"repartition topic {name} has {count} partitions, and this instance expects "
                f"{partitions[name]}: start it again, with the same version as the other instances"
            )
    changelogs = {}
    for subtopology in topology.subtopologies:
        for store in subtopology.stores:
            name = topology.changelog_topic(store.name)
            count = len(created[name].partitions)
            if count != wanted[name]:
                inputs_of = ", ".join(map(topology.topic_name, subtopology.topics))
                raise StateStoreError(
                    f"changelog {name} has {count} partitions, but {inputs_of}, its input topic, "
                    f"has {wanted[name]}: keys would move to tasks without their state. Restart "
                    "the application with another application.id, without its old state"
                )
            changelogs[store.name] = ChangelogTopic(created[name].topic_id, retention_s[name])
    internal = {name: created[name].topic_id for name in (*made, *wanted)}
    return ApplicationTopics(topology, partitions, changelogs, internal)


async def _all_topics(admin: Admin, topology: Topology) -> dict[str, int]:
    """Topic -> number of partitions, of all topics. Asks for a second while one is missing, and was
    not made by an earlier run either. Raises AuthorizationError if it is hidden from this client:
    only a topic that does not exist may be one that the application is to make."""
    made_here = set(map(topology.topic_name, topology.repartition_topics))
    needed = topology.dead_letter_topics.union(topology.topics) - made_here
    for look in range(_LOOKS):
        found = await admin.describe_topics()
        existing = {name: len(each.partitions) for name, each in found.items() if each.partitions}
        missing = {
            name
            for name in needed - existing.keys()
            if topology.with_repartition_topics([name]).topic_name(name) not in existing
        }
        if not missing:
            break
        await _check_not_hidden(admin, topology, missing)
        if look < _LOOKS - 1:
            await asyncio.sleep(_POLL_INTERVAL_S)
    return existing


async def _check_not_hidden(admin: Admin, topology: Topology, missing: Collection[str]) -> None:
    """Raise AuthorizationError if this client may not describe one of the topics: the list of all
    topics has only those that it may describe."""
    for name in sorted(missing):
        try:
            await admin.describe_topic(name)
        except UnknownTopicError:
            continue
        except AuthorizationError as error:
            operation = "Read" if name in topology.topics else "Write"
            hint = ", or declare RepartitionTopic(name) if the application is to make the topic"
            advice = denied(error.code or 0, operation, name)
            raise broker_error(
                error.code or 0,
                f"looking for the application's topics: topic {name!r} is missing or hidden",
                advice=f"{advice}{hint if operation == 'Read' else ''}",
            ) from error


def _check_existing(topology: Topology, made: Collection[str], existing: Collection[str]) -> None:
    """Raise StreamsError if a topic is missing that the application does not make."""
    missing = [name for name in topology.topics if name not in existing and name not in made]
    if missing:
        raise StreamsError(
            f"topic {', '.join(sorted(missing))} does not exist; create the input topics, or "
            "correct the name. If the application's own processors emit to it, declare "
            "RepartitionTopic(name) as the input: then the application makes it"
        )
    if missing := sorted(topology.dead_letter_topics - set(existing)):
        raise StreamsError(
            f"topic {', '.join(missing)} does not exist, which is to take dead letters "
            "(DeadLetter): create it"
        )


def _check_declared_counts(topology: Topology, partitions: Mapping[str, int]) -> None:
    """Raise StreamsError if a repartition topic exists with another number of partitions than
    declared."""
    for name, topic in topology.inputs.items():
        declared = topic.partitions if isinstance(topic, RepartitionTopic) else None
        count = partitions[topology.topic_name(name)]
        if declared not in (None, count):
            raise StreamsError(
                f"repartition topic {topology.topic_name(name)} has {count} partitions, and "
                f"RepartitionTopic({name!r}) declares {declared}. Declare {count}, or give the "
                "changed application another application.id"
            )


def _changelog_counts(topology: Topology, partitions: Mapping[str, int]) -> dict[str, int]:
    """Changelog topic -> the number of partitions of its subtopology's inputs."""
    return {
        topology.changelog_topic(store.name): partitions[topology.topic_name(subtopology.topics[0])]
        for subtopology in topology.subtopologies
        for store in subtopology.stores
    }


async def _create_missing(
    admin: Admin, topics: Collection[NewTopic]
) -> dict[str, TopicDescription]:
    """Create those of the topics that do not exist. Returns all, once brokers list them."""
    wanted = {topic.name for topic in topics}
    existing = await _existing_topics(admin, wanted)
    new = [topic for topic in topics if topic.name not in existing]
    for error in (await admin.create_topics(new)).values() if new else ():
        # Another instance may have created it first.
        if error is not None and not isinstance(error, TopicExistsError):
            raise error
    while missing := wanted - (existing := await _existing_topics(admin, wanted)).keys():
        for name in missing:
            with suppress(UnknownTopicError):
                await admin.describe_topic(name)  # raises if it is hidden from this client
        await asyncio.sleep(_POLL_INTERVAL_S)
    return existing


async def _existing_topics(admin: Admin, topics: Collection[str]) -> dict[str, TopicDescription]:
    """Those of the topics that exist, including partitions without leader."""
    # One request to one broker: another broker may not know a new topic yet.
    found = await admin.describe_topics()
    return {name: found[name] for name in topics if name in found and found[name].partitions}


async def _delete_retention_s(admin: Admin, topic: str) -> float:
    """The changelog's delete.retention.ms. Raises StateStoreError if the topic is not compacted;
    logs a warning if it also deletes old changes."""
    found = await _configs(admin, topic, (_DELETE_RETENTION, _CLEANUP, *_RETENTION))
    policies = found.get(_CLEANUP, "compact").split(",")
    if "compact" not in policies:
        raise StateStoreError(
            f"changelog {topic} exists with cleanup.policy={found[_CLEANUP]}: brokers would delete "
            "the state. Set cleanup.policy=compact"
        )
    if "delete" in policies and (limits := _limits(found)):
        _log.warning(
            "changelog %s exists with cleanup.policy=%s and %s: brokers delete changes, and state "
            "that is restored lacks them. Set cleanup.policy=compact",
            *(topic, found[_CLEANUP], limits),
        )
    try:
        return int(found[_DELETE_RETENTION]) / 1000
    except (KeyError, ValueError):
        return UNKNOWN_CHANGELOG.delete_retention_s


async def _check_repartition_topic(admin: Admin, topic: str) -> None:
    """Log a warning if the topic, which may be older than the application, loses records."""
    found = await _configs(admin, topic, (_CLEANUP, *_RETENTION))
    policy, limits = found.get(_CLEANUP, "delete"), _limits(found)
    if "compact" in policy or limits:
        _log.warning(
            "repartition topic %s exists with cleanup.policy=%s%s: brokers delete records that are "
            "not processed yet. Set cleanup.policy=delete, retention.ms=-1 and retention.bytes=-1",
            *(topic, policy, f" and {limits}" if limits else ""),
        )


def _limits(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{n}={configs[n]}" for n in _RETENTION if configs.get(n, "-1") != "-1")


async def _configs(admin: Admin, topic: str, names: Collection[str]) -> dict[str, str]:
    """The values of the topic's options. Asks again while the broker does not know the topic: any
    broker is asked, and another one has listed the topic. Empty if this client may not read
    them."""
    resource = ConfigResource.topic(topic)
    try:
        while True:
            with suppress(UnknownTopicError):
                found = await admin.describe_configs(resource, list(names))
                return {name: each.value or "" for name, each in found.items()}
            await asyncio.sleep(_POLL_INTERVAL_S)
    except AuthorizationError as error:
        _log.info(
            "the options of topic %s cannot be read, so Kafka's defaults are assumed: %r",
            *(topic, error),
        )
        return {}


async def watch_internal_topics(admin: Admin, topics: Mapping[str, UUID | None]) -> None:
    """Ask every 3 s whether the topics still exist; never returns if there are any. ``topics``:
    topic -> its id at the start. A topic without leader exists. While brokers do not answer,
    nothing is known.

    Raises :class:`~kafkaclient.errors.StreamsError` if a topic is gone, or was created again, in 3
    answers one after another: a broker that has just started may not know it yet.
    """
    looks = 0
    while topics:
        await asyncio.sleep(_CHECK_INTERVAL_S)
        try:
            await check_internal_topics(admin, topics)
        except StreamsError as error:
            looks += 1
            if looks == _GONE_LOOKS:
                raise
            _log.info("%s", error)
        except KafkaError as error:
            _log.info("not known whether the internal topics exist: %r", error)
        else:
            looks = 0


async def check_internal_topics(admin: Admin, topics: Mapping[str, UUID | None]) -> None:
    """Raise StreamsError if a topic is gone, or was created again, as :func:`watch_internal_topics`
    after one answer. Raises other errors of the admin client unchanged."""
    if gone := await _gone(admin, topics):
        raise StreamsError(
            f"topic {', '.join(gone)} was deleted while the application ran, for example by "
            "`kafkaclient streams reset`, so this instance cannot go on. Start it again: it makes "
            "the topic, and does not use its old state"
        )


async def _gone(admin: Admin, topics: Mapping[str, UUID | None]) -> list[str]:
    """Those of the topics that do not exist any more, or have another id."""
    try:
        existing = await admin.describe_topics(topics)
    except UnknownTopicError:
        existing = await _existing_topics(admin, topics)
    return sorted(
        name
        for name, topic_id in topics.items()
        if name not in existing or topic_id not in (None, existing[name].topic_id)
    )


async def partition_counts(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """Topic -> number of partitions, 0 if the topic does not exist."""
    found = await _existing_topics(admin, topics)
    return {name: len(found[name].partitions) if name in found else 0 for name in topics}


async def end_offsets(
    admin: Admin, partitions: Collection[TopicPartition], *, read_committed: bool = True
) -> dict[TopicPartition, int]:
    """End offset of each partition, by default of its committed records. Waits for partitions
    without leader.

    Raises KafkaTimeoutError if a partition has no leader for 30 s, and KafkaError if the brokers do
    not answer.
    """
    found: dict[TopicPartition, int] = {}
    try:
        async with time_limit(_LEADER_TIMEOUT_S):
            while True:
                found = await admin.end_offsets(partitions, read_committed=read_committed)
                if len(found) == len(set(partitions)):
                    return found
                await asyncio.sleep(_POLL_INTERVAL_S)
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise  # a request timed out
        without = sorted(f"{p.topic}-{p.partition}" for p in set(partitions) - found.keys())
        raise KafkaTimeoutError(
            f"no end offset for {_LEADER_TIMEOUT_S:g} s, because there is no leader: "
            f"{', '.join(without)}. They are deleted, or their brokers are down"
        ) from error
