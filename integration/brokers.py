"""What each single broker says. Brokers learn of a change one after the other, and a client, or the
next command, may ask any of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkaclient.admin.description import description_of, live_brokers
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import BrokerConnectionError
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.admin import Admin, TopicDescription
    from kafkaclient.wire.api import MetadataResult

__all__ = ["everywhere", "from_each_broker"]

_ANSWER_S = 5.0  # a paused broker takes longer
_WITHIN_S = 60.0
_POLL_S = 0.02


async def from_each_broker(
    admin: Admin, topics: tuple[str, ...] | None = None
) -> list[MetadataResult]:
    """The metadata of these topics (None: of all) as each broker has them that answers."""
    assert admin._running is not None
    session = admin._running.session
    call = MetadataCall(topics, allow_auto_topic_creation=False)

    async def ask(node: int) -> MetadataResult | None:
        with suppress(BrokerConnectionError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                return await session.once(call, node)
        return None

    nodes = live_brokers(await session.metadata(()))
    return [told for told in await asyncio.gather(*map(ask, nodes)) if told is not None]


async def everywhere(
    admin: Admin, topic: str, condition: Callable[[TopicDescription], bool] = lambda _: True
) -> None:
    """Wait until each broker that answers knows the topic and its leaders, and describes it so."""
    async with asyncio.timeout(_WITHIN_S):
        while True:
            found = await from_each_broker(admin, (topic,))
            told = [_description(each, topic) for each in found]
            if told and all(each is not None and condition(each) for each in told):
                return
            await asyncio.sleep(_POLL_S)


def _description(found: MetadataResult, topic: str) -> TopicDescription | None:
    (info,) = found.topics
    if info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    told = description_of(info, live_brokers(found))
    return None if told.unavailable or not told.partitions else told
