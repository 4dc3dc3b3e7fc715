"""The topics of a consumer's group: which there are, with which partitions and ids."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError
from kafkaclient.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from kafkaclient.consumer.subscription import Subscription
    from kafkaclient.reader.cluster import ReaderCluster
    from kafkaclient.types import TopicListing

_log = logging.getLogger(__name__)

_LOOK_UP_S = 5.0  # heartbeats wait for the names of topics at most this long


class GroupTopics:
    """Looks for the topics of group ``group_id``. ``internal``: a pattern may match internal
    topics."""

    def __init__(self, cluster: ReaderCluster, group_id: str, *, internal: bool) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._internal = internal

    async def counts(self, topics: Collection[str]) -> dict[str, int]:
        """The topics' numbers of partitions, without topics that do not exist, or that this client
        may not describe."""
        found = await self._listed(topics, skip_denied=True)
        return {name: len(listing.partitions) for name, listing in found.items()}

    async def names(self, ids: Collection[UUID], subscription: Subscription) -> Mapping[UUID, str]:
        """The names of the topics with these ids, as far as they are found in a few seconds."""
        view = self._cluster.metadata.view.topics
        known = {topic.topic_id: name for name, topic in view.items()}
        if not known.keys() >= set(ids):
            listed: Mapping[str, TopicListing] = {}
            with suppress(TimeoutError):
                async with time_limit(_LOOK_UP_S):
                    listed = await self._listed(subscription.names)
            known |= {listing.topic_id: name for name, listing in listed.items()}
        return {topic_id: known[topic_id] for topic_id in ids if topic_id in known}

    async def check(self, subscription: Subscription) -> None:
        """Raises AuthorizationError if a topic of the subscription may not be described."""
        if subscription.names is not None:
            await self._listed(subscription.names)

    async def learn(self, subscription: Subscription, *, match: bool) -> bool:
        """Look for the topics of the subscription. Whether other ones match its pattern now, if
        this client is to ``match`` it."""
        found = await self._listed(subscription.names)
        if missing := (subscription.names or frozenset()) - found.keys():
            _log.warning(
                "group %s subscribes to topics that do not exist: %s. They are consumed once they "
                "are created",
                *(self._group_id, ", ".join(sorted(missing))),
            )
        return subscription.learn(found, match=match)

    async def _listed(
        self, names: Collection[str] | None, *, skip_denied: bool = False
    ) -> Mapping[str, TopicListing]:
        """As :meth:`.ReaderCluster.list_topics`, repeated until there is an answer."""
        while True:
            try:
                return await self._cluster.list_topics(
                    names, skip_denied=skip_denied, internal=self._internal
                )
            except KafkaError as error:
                if not error.retriable:
                    raise
                _log.warning("group %s: its topics are not known yet: %s", self._group_id, error)
