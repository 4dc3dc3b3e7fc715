"""Topics with known leaders, and the counts of the proxies in front of the brokers.

Broker p modulo the number of brokers leads partition p, so that the slow broker leads the same
partitions for every client.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import KafkaError
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kafkaclient.perf.run import RunRecord
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["ProduceCount", "create_topics", "delete_topics", "placement", "produce_count"]

_VISIBLE_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class ProduceCount:
    """Produce requests and their bytes, headers included, in the order of broker ids.

    The proxies count them, so that the figures of all clients can be compared.
    """

    bytes_per_broker: tuple[int, ...]
    requests_per_broker: tuple[int, ...]

    def since(self, earlier: ProduceCount) -> ProduceCount:
        return ProduceCount(
            _difference(self.bytes_per_broker, earlier.bytes_per_broker),
            _difference(self.requests_per_broker, earlier.requests_per_broker),
        )

    def added_to(self, record: RunRecord) -> RunRecord:
        """The run's record with these counts in place of the client's."""
        total = sum(self.requests_per_broker)
        return replace(
            record,
            bytes_per_broker=self.bytes_per_broker,
            requests_per_broker=self.requests_per_broker,
            requests_per_s=total / record.seconds if record.seconds else None,
        )


async def produce_count(cluster: ClusterHandle) -> ProduceCount:
    """The counts of the proxies since the cluster started."""
    stats = await cluster.proxy_stats()
    return ProduceCount(
        tuple(int(broker["produce_bytes"]) for broker in stats),
        tuple(int(broker["requests"].get(ApiKey.PRODUCE, 0)) for broker in stats),
    )


def placement(brokers: Sequence[int], partitions: int, replication: int) -> dict[int, list[int]]:
    """Partition -> its replicas, leader first."""
    return {
        partition: [brokers[(partition + place) % len(brokers)] for place in range(replication)]
        for partition in range(partitions)
    }


async def create_topics(
    cluster: ClusterHandle,
    names: Sequence[str],
    partitions: int,
    *,
    replication: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create topics with this configuration, and return once every partition has its leader.

    Raises the broker's error for a topic that it refuses, KafkaError after 20 s.
    """
    replicas = placement(cluster.brokers, partitions, replication)
    async with _admin(cluster) as (module, admin):
        answer = await admin.create_topics(
            [
                module.NewTopic(name, -1, -1, replica_assignments=replicas, topic_configs=config)
                for name in names
            ]
        )
        for topic, code, detail in answer.topic_errors:
            if code:
                raise broker_error(code, f"creating topic {topic}", detail)
        try:
            async with asyncio.timeout(_VISIBLE_WITHIN_S):
                while not await _all_led(admin, names, replicas):  # noqa: ASYNC110 - brokers do not notify
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise KafkaError(
                f"topics {', '.join(names)}: not every partition had its leader within "
                f"{_VISIBLE_WITHIN_S:.0f} s of their creation; see the brokers' logs"
            ) from None


async def delete_topics(cluster: ClusterHandle, names: Sequence[str]) -> None:
    """Delete topics; the brokers remove their files later."""
    async with _admin(cluster) as (_module, admin):
        await admin.delete_topics(list(names))


async def _all_led(admin: Any, names: Sequence[str], replicas: Mapping[int, Sequence[int]]) -> bool:
    leaders = {partition: nodes[0] for partition, nodes in replicas.items()}
    return all(
        topic["error_code"] == 0
        and {found["partition"]: found["leader"] for found in topic["partitions"]} == leaders
        for topic in await admin.describe_topics(list(names))
    )


@asynccontextmanager
async def _admin(cluster: ClusterHandle) -> AsyncIterator[tuple[Any, Any]]:
    module = import_module("aiokafka.admin")
    admin = module.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        yield module, admin
    finally:
        await admin.close()


def _difference(now: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(now, then, strict=True))
