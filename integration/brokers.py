"""What each single broker says. Brokers learn of a change one after the other, and a client, or the
next command, may ask any of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkaclient.admin import Admin
from kafkaclient.admin.description import description_of, live_brokers
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import BrokerConnectionError
from kafkaclient.wire.admin import ConfigKind, DescribeConfigsCall
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.admin import TopicDescription
    from kafkaclient.wire.api import Call, MetadataResult

__all__ = [
    "configured_everywhere",
    "everywhere",
    "from_each_broker",
    "gone_everywhere",
    "known_everywhere",
]

_ANSWER_S = 5.0  # a broker that is paused, or has just been killed, does not answer
_WITHIN_S = 60.0
_POLL_S = 0.02


async def from_each_broker(
    admin: Admin, topics: tuple[str, ...] | None = None
) -> list[MetadataResult]:
    """The metadata of these topics (None: of all) as each broker has them that answers."""
    return await _answers(admin, MetadataCall(topics, allow_auto_topic_creation=False))


async def everywhere(
    admin: Admin, topic: str, condition: Callable[[TopicDescription], bool] = lambda _: True
) -> None:
    """Wait until each broker that answers knows the topic and its leaders, and describes it so."""

    def holds(found: MetadataResult) -> bool:
        told = _description(found, topic)
        return told is not None and condition(told)

    await _until_each(admin, MetadataCall((topic,), allow_auto_topic_creation=False), holds)


async def known_everywhere(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """:func:`everywhere`, with so many partitions or more."""
    async with Admin(bootstrap) as admin:
        await everywhere(admin, topic, lambda told: len(told.partitions) >= partitions)


async def gone_everywhere(bootstrap: str, topic: str) -> None:
    """Wait until no broker that answers knows the topic, after it was deleted."""
    call = MetadataCall((topic,), allow_auto_topic_creation=False)
    async with Admin(bootstrap) as admin:
        await _until_each(admin, call, lambda found: not found.topics[0].partitions)


async def configured_everywhere(bootstrap: str, topic: str, key: str, value: str) -> None:
    """Wait until the topic's option has this value at every broker that answers."""
    call = DescribeConfigsCall(((ConfigKind.TOPIC, topic),), (key,))
    async with Admin(bootstrap) as admin:
        await _until_each(
            admin,
            call,
            lambda found: [each.value for each in found.resources[0].entries] == [value],
        )


async def _until_each(admin: Admin, call: Call[Any], holds: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(_WITHIN_S):
        while not ((found := await _answers(admin, call)) and all(map(holds, found))):
            await asyncio.sleep(_POLL_S)


async def _answers(admin: Admin, call: Call[Any]) -> list[Any]:
    assert admin._running is not None
    session = admin._running.session

    async def ask(node: int) -> Any:
        with suppress(BrokerConnectionError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                return await session.once(call, node)
        return None

    nodes = live_brokers(await session.metadata(()))
    return [told for told in await asyncio.gather(*map(ask, nodes)) if told is not None]


def _description(found: MetadataResult, topic: str) -> TopicDescription | None:
    (info,) = found.topics
    if info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    told = description_of(info, live_brokers(found))
    return None if told.unavailable or not told.partitions else told
