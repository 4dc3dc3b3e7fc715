"""Makes the faults of members, the group's coordinator and the topics happen."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from experiments.chaos.admin import elect_preferred, leaders, reassign
from experiments.consumer_chaos.plan import GROUP
from experiments.consumer_chaos.schedule import TOPIC_KINDS
from experiments.streams_chaos.schedule import Fault, FaultKind
from experiments.streams_chaos.strikes import Strikes
from experiments.strikes import coordinator_partition
from kafkaclient.errors import KafkaError, TopicExistsError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from experiments.consumer_chaos.load import Load
    from kafkaclient.admin import Admin

__all__ = ["ConsumerStrikes"]

OFFSETS_TOPIC = "__consumer_offsets"
_ADMIN_S = 30.0
_RETRY_S = 0.2
_SIGNALS = {FaultKind.CANCEL: signal.SIGUSR1, FaultKind.LEAVE: signal.SIGUSR2}


class ConsumerStrikes(Strikes):
    """As :class:`Strikes`, and further faults of coordinators and topics. Faults of topics wait for
    each other."""

    def __init__(
        self, *args: Any, admin: Admin, load: Load, topics: Sequence[str], partitions: int
    ) -> None:
        super().__init__(*args)
        self._admin = admin
        self._load = load
        self._topics = topics
        self._counts = dict.fromkeys(topics, partitions)

    def _place(self, fault: Fault) -> str:
        if fault.kind in TOPIC_KINDS:
            return "topics"
        if fault.kind in (FaultKind.COORDINATOR_KILL, FaultKind.COORDINATOR_MOVE):
            return "brokers"
        return super()._place(fault)

    async def _act(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CANCEL | FaultKind.LEAVE:
                name = super()._place(fault)
                self._fleet.instances[name].send_signal(_SIGNALS[fault.kind])
            case FaultKind.COORDINATOR_KILL:
                await self._kill_coordinator(fault.seconds)
            case FaultKind.COORDINATOR_MOVE:
                await self._move_coordinator()
            case FaultKind.GROW:
                await self._grow(self._topics[fault.which])
            case FaultKind.RECREATE:
                await self._recreate(self._topics[fault.which], fault.seconds)
            case _:
                await super()._act(fault)

    # --- the coordinator ------------------------------------------------------------------------

    async def _coordinator(self) -> tuple[int, int]:
        """The partition of the group's offsets, and the broker that leads it."""
        found = await leaders(self._cluster.address(0), [OFFSETS_TOPIC])
        partition = coordinator_partition(GROUP, len(found))
        return partition, found[OFFSETS_TOPIC, partition]

    async def _kill_coordinator(self, seconds: float) -> None:
        _, broker = await self._coordinator()
        if broker < 0:
            raise KafkaError("the group's offsets have no leader")
        await self._cluster.kill(broker)
        await asyncio.sleep(seconds)
        await self._cluster.start_broker(broker)

    async def _move_coordinator(self) -> None:
        partition, broker = await self._coordinator()
        brokers = self._cluster.brokers
        replicas = [brokers[(broker + 1 + place) % len(brokers)] for place in range(len(brokers))]
        address = self._cluster.address(0)
        await reassign(address, {OFFSETS_TOPIC: {partition: replicas}})
        await elect_preferred(address, {OFFSETS_TOPIC: [partition]})

    # --- topics ---------------------------------------------------------------------------------

    async def _grow(self, topic: str) -> None:
        self._counts[topic] += 2
        await self._admin.add_partitions(topic, self._counts[topic], timeout_s=_ADMIN_S)

    async def _recreate(self, topic: str, seconds: float) -> None:
        await self._load.hold(topic)
        replication = min(3, len(self._cluster.brokers))
        await _until(UnknownTopicError, lambda: self._admin.delete_topic(topic))
        # Half of the topics are away for a while, the others are back before a member looks.
        await asyncio.sleep(seconds if int(seconds * 1000) % 2 else 0)
        await _until(
            TopicExistsError,
            lambda: self._admin.create_topic(topic, self._counts[topic], replication),
        )
        self._load.resume(topic)


async def _until(done: type[KafkaError], act: Callable[[], Awaitable[None]]) -> None:
    """Repeat the act until it succeeds, or until an error says that it did before."""
    async with asyncio.timeout(_ADMIN_S):
        while True:
            try:
                return await act()
            except done:
                return None
            except KafkaError:
                await asyncio.sleep(_RETRY_S)
