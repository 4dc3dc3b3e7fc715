"""Groups with members of several clients on real coordinators, and from one protocol to the other
and back."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from integration.group_members import CLIENTS, OURS, GroupMember, member
from kafkaclient import Producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient.testing.cluster import ClusterHandle

    CreateTopic = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.timeout(240)

PARTITIONS = 8
STEP = 160


class MixedGroup:
    """A group whose members come and go; leaves none behind at the end of its block."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._where = (bootstrap, f"g-{topic}", topic)
        self._stacks: dict[GroupMember, AsyncExitStack] = {}
        self._running: dict[GroupMember, asyncio.Task[None]] = {}
        self.all: list[GroupMember] = []
        """Also those that have left."""
        self._sent = 0

    async def __aenter__(self) -> MixedGroup:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in list(self._stacks):
            await self.leave(each)

    @property
    def present(self) -> set[GroupMember]:
        return set(self._running)

    async def join(self, client: str, protocol: str) -> GroupMember:
        stack = AsyncExitStack()
        made, running = await stack.enter_async_context(member(client, *self._where, protocol))
        self._stacks[made], self._running[made] = stack, running
        self.all.append(made)
        return made

    async def leave(self, gone: GroupMember) -> None:
        del self._running[gone]
        await self._stacks.pop(gone).aclose()

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():
                    for task in self._running.values():
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            told = {type(each).__name__: sorted(each.owned) for each in self._running}
            raise AssertionError(f"{told}; {self._seen().total()} of {self._sent} seen") from None

    def _seen(self) -> Counter[tuple[int, int]]:
        return Counter(each for one in self.all for each in one.seen)

    async def shared(self) -> None:
        """Every partition has one owner, and all members have about as many."""

        def is_shared() -> bool:
            owned = [each.owned for each in self._running]
            least = PARTITIONS // len(owned)
            return (
                sorted(n for each in owned for n in each) == list(range(PARTITIONS))
                and min(map(len, owned)) >= least
            )

        await self.until(is_shared)

    async def consume(self) -> None:
        """Send records, and wait until each one is seen; none was seen twice."""
        async with Producer(self._where[0]) as producer:
            values = [b"%d" % n for n in range(STEP)]
            await (await producer.send_many(self._where[2], values, keys=values))
        self._sent += STEP
        await self.until(lambda: len(self._seen()) >= self._sent)
        assert self._seen().total() == self._sent


@pytest.fixture
async def shared_topic(kafka_cluster: ClusterHandle, topic: str, create_topic: CreateTopic) -> str:
    await create_topic(topic, PARTITIONS, replication_factor=min(3, len(kafka_cluster.brokers)))
    return topic


@pytest.mark.full
@pytest.mark.parametrize(
    ("protocol", "clients"),
    [
        ("range", tuple(CLIENTS)),
        ("roundrobin", tuple(CLIENTS)),
        ("sticky", (OURS, "java", "aiokafka")),
        ("cooperative-sticky", (OURS, "java", "confluent")),
        ("consumer", (OURS, "java", "confluent")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_members_of_several_clients_share_a_group(
    kafka_cluster: ClusterHandle, shared_topic: str, protocol: str, clients: tuple[str, ...]
) -> None:
    async with MixedGroup(kafka_cluster.bootstrap, shared_topic) as group:
        members = [await group.join(client, protocol) for client in clients]
        await group.shared()
        await group.consume()
        joined = await group.join(OURS, protocol)
        await group.shared()
        await group.consume()
        for gone in (*members, joined):  # each client's member leaves once, the leader among them
            await group.leave(gone)
            if gone is not joined:
                await group.shared()
                await group.consume()


async def test_a_group_rolls_to_kip_848_and_back(
    kafka_cluster: ClusterHandle, shared_topic: str
) -> None:
    """Each member is replaced by one of the other protocol, as Kafka's documentation describes.
    What a member keeps is not revoked."""
    async with MixedGroup(kafka_cluster.bootstrap, shared_topic) as group:
        classic, consumer = "cooperative-sticky", "consumer"
        old = [await group.join(OURS, classic) for _ in range(2)]
        await group.shared()
        await group.consume()
        for protocol in (consumer, classic):
            for gone in list(old):
                [stays] = group.present - {gone}
                kept = stays.owned
                stays.gone.clear()
                await group.leave(gone)
                await group.until(lambda stays=stays: len(stays.owned) == PARTITIONS)
                assert kept.isdisjoint(stays.gone)
                old.append(await group.join(OURS, protocol))
                await group.shared()
                assert len(stays.gone) == len(set(stays.gone)) == PARTITIONS // 2
                await group.consume()
            del old[:2]
