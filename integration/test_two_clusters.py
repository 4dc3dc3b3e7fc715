"""Two clusters, and names that lead to one or the other: nothing is lost, doubled or misled."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.reader import Reader
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.timeout(300), pytest.mark.local_cluster, pytest.mark.full]

KINDS: dict[str, dict[str, Any]] = {
    "keyed": {},
    "unkeyed": {},
    "kip794": {"partitioner": "kip794"},
    "acks1": {"acks": 1, "enable_idempotence": False},
}
KEYS = 7
TOPICS = [*KINDS, "java"]


class Load:
    """About 200 records a second of one producer, until :meth:`end`; the values count upwards."""

    def __init__(self, kind: str, bootstrap: str, **options: Any) -> None:
        self.kind = kind
        self.acknowledged: list[int] = []
        self._producer = Producer(bootstrap, **KINDS[kind], **options)
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._producer as producer, asyncio.TaskGroup() as waiting:
            number = 0
            while not self._ended.is_set():
                key = b"%d" % (number % KEYS) if self.kind == "keyed" else None
                delivery = await producer.send(self.kind, b"%d" % number, key=key)
                waiting.create_task(self._outcome(number, delivery))
                number += 1
                await asyncio.sleep(0.005)

    async def _outcome(self, number: int, delivery: Any) -> None:
        await delivery
        self.acknowledged.append(number)

    async def goes_on(self) -> None:
        """Wait until 20 more records are acknowledged."""
        wanted = len(self.acknowledged) + 20
        while len(self.acknowledged) < wanted:
            assert not self._task.done()
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        self._ended.set()
        await self._task


async def all_go_on(loads: list[Load], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        await asyncio.gather(*(load.goes_on() for load in loads))


async def create_topics(*clusters: LocalCluster) -> None:
    for cluster in clusters:
        async with Admin(cluster.bootstrap) as admin:
            for name in TOPICS:
                await admin.create_topic(name, 4, 1)


async def logs(cluster: LocalCluster, topic: str) -> list[list[int]]:
    """The values in each partition, in order."""
    async with Reader(cluster.bootstrap) as reader:
        ends = await reader.offsets(topic, at="latest")
        found: dict[int, list[int]] = {tp.partition: [] for tp in ends}
        async for batch in reader.read({tp: (0, end) for tp, end in ends.items()}):
            for record in batch:
                if topic != "java":
                    found[record.partition].append(int(record.value or b""))
                else:
                    found[record.partition].append(record.offset)
    return [*found.values()]


def assert_in_order(partitions: list[list[int]]) -> None:
    """Each key's values."""
    for values in partitions:
        for key in range(KEYS):
            own = [value for value in values if value % KEYS == key]
            assert own == sorted(own)


async def test_a_fail_over_and_back() -> None:
    """One name leads to X, then to Y while X is killed, then back. Java's producer is beside."""
    async with LocalCluster(1) as x, LocalCluster(1) as y:
        await create_topics(x, y)
        async with FaultProxy("127.0.0.1", x.address(0)[1]) as name:
            bootstrap = f"127.0.0.1:{name.port}"
            loads = [Load(kind, bootstrap) for kind in KINDS]
            arguments = "--topic java --num-records 600 --record-size 20 --throughput 40"
            java = asyncio.create_task(
                x.run_tool(
                    "org.apache.kafka.tools.ProducerPerformance",
                    *arguments.split(),
                    *("--producer-props", f"bootstrap.servers={bootstrap}"),
                )
            )
            await all_go_on(loads, 20)
            await asyncio.sleep(4)  # so that Java has begun
            for left, entered in ((x, y), (y, x)):
                name.target_port = entered.address(0)[1]
                await left.kill(0)
                await all_go_on(loads, 20)
                await asyncio.sleep(2)
                await left.start_broker(0)
            await asyncio.gather(*(load.end() for load in loads))
            await java
        for load in loads:
            partitions = await logs(x, load.kind), await logs(y, load.kind)
            found = [Counter(value for log in each for value in log) for each in partitions]
            assert all(found), "each cluster has been in use"
            assert set(load.acknowledged) <= found[0].keys() | found[1].keys()
            if load.kind != "acks1":  # not idempotent
                assert {times for each in found for times in each.values()} == {1}
            if load.kind == "keyed":
                for each in partitions:
                    assert_in_order(each)
        assert await logs(x, "java")


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1", "4.4.0"])
async def test_addresses_that_lead_elsewhere_for_a_while(version) -> None:
    """To another cluster, to the other broker of the same cluster, or both."""
    async with LocalCluster(2, version=version) as x, LocalCluster(2) as other:
        await create_topics(x, other)
        x0, x1 = x.address(0), x.address(1)
        names = {("name", 1): x0}
        cut: list[Callable[[], None]] = []
        tcp = TcpDialer()

        class Dialer:
            async def dial(self, host: str, port: int, factory: Any) -> Any:
                where = names.get((host, port), (host, port))
                transport, protocol = await tcp.dial(*where, factory)
                cut.append(transport.abort)
                return transport, protocol

        loads = [Load(kind, "name:1", dialer=Dialer()) for kind in KINDS]
        await all_go_on(loads, 20)
        foreign = {x0: other.address(0), x1: other.address(1)}
        for change in (foreign, {x0: foreign[x0]}, {x0: x1, x1: x0}, {x0: x1}):
            names |= change
            while cut:
                cut.pop()()
            await asyncio.sleep(3)
            names = {("name", 1): x0}
            await all_go_on(loads, 20)
        await asyncio.gather(*(load.end() for load in loads))
        for load in loads:
            partitions = await logs(x, load.kind)
            found = Counter(value for log in partitions for value in log)
            assert set(load.acknowledged) <= found.keys()
            if load.kind != "acks1":
                assert set(found.values()) == {1}
            if load.kind == "keyed":
                assert_in_order(partitions)
            assert not any(await logs(other, load.kind))
