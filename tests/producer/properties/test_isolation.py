"""A broker that takes no records holds up its own records only, however they are sent.

Random loads (keys, explicit partitions, neither), sizes, stalls and cancellations on a fake cluster
in virtual time. A record for a broker that is well waits for no other broker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient import Producer
from kafkaclient.errors import BufferFullError
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import run_virtual
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from kafkaclient import Delivery, RecordMetadata

BROKERS = 5
PARTITIONS = 10
BUFFER = 400_000
LONGEST_S = 0.5
"""The longest that a record for a broker that is well may take, from the call to its outcome."""


@dataclass(frozen=True)
class Load:
    """``stalled`` brokers take nothing from one second on, for ten seconds; ``senders`` tasks send
    a record every ``every_ms`` each, until a second after that."""

    stalled: frozenset[int]
    senders: int
    every_ms: int
    size: int
    seed: int
    nowait: bool
    cancelled: bool


loads = st.builds(
    Load,
    stalled=st.frozensets(st.integers(0, BROKERS - 1), min_size=1, max_size=2),
    senders=st.integers(1, 4),
    every_ms=st.integers(4, 20),
    size=st.sampled_from([10, 300, 2000, 9000]),
    seed=st.integers(0, 10_000),
    nowait=st.booleans(),
    cancelled=st.booleans(),
)


class Run:
    """The records of a load, and what became of them."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.fake = FakeCluster(brokers=BROKERS)
        self.fake.create_topic("t", PARTITIONS)
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0
        self.most_used = 0

    async def go(self) -> None:
        load, loop = self.load, asyncio.get_running_loop()
        async with Producer(
            self.fake.bootstrap, dialer=self.fake, buffer_memory=BUFFER, max_block_ms=60_000
        ) as producer:
            await producer.send_and_wait("t", b"0000000")
            view = producer._core.accumulator.topics["t"].known_view
            leaders = {p.partition: p.leader for p in view.partitions}
            pool = producer._core.accumulator.buffer_pool
            calls: set[asyncio.Task[None]] = set()
            started = loop.time()
            stalled, number = False, 0
            while (at := loop.time() - started) < 12.0:
                if at >= 1.0 and not stalled:
                    stalled = True
                    for node in load.stalled:
                        self.fake.stall_broker(node)
                    loop.call_later(10.0, self.resume)
                for _ in range(load.senders):
                    number += 1
                    call = asyncio.create_task(self.send(producer, leaders, number))
                    calls.add(call)
                    call.add_done_callback(calls.discard)
                    if load.cancelled and number % 37 == 0:
                        loop.call_later(0.05, call.cancel)
                self.most_used = max(self.most_used, pool.total - pool.available)
                await asyncio.sleep(load.every_ms / 1000)
            await asyncio.gather(*calls, return_exceptions=True)
        assert pool.available == pool.total
        assert not any(share.held or share.claims for share in pool.shares)

    def kind(self, number: int) -> int:
        """0: the record has a key, 1: a partition, 2: neither."""
        return (number * 7 + self.load.seed) % 3

    def resume(self) -> None:
        for node in self.load.stalled:
            self.fake.resume_broker(node)

    async def send(self, producer: Producer, leaders: dict[int, int], number: int) -> None:
        """Send a record, wait for its outcome, and look how long that took."""
        kind = self.kind(number)
        key = b"%d" % (number % 40) if kind == 0 else None
        partition = (number + self.load.seed) % PARTITIONS if kind == 1 else None
        value = b"%07d" % number + bytes(self.load.size)
        belongs = partition_for_key(key, PARTITIONS) if key is not None else partition
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            done = await self.hand_over(producer, value, key, partition)
        except BufferFullError:
            self.outcomes["refused"] += 1
            assert belongs is None or leaders[belongs] in self.load.stalled
            return
        metadata: RecordMetadata = await done
        well = belongs is None or leaders[belongs] not in self.load.stalled
        self.outcomes["well" if well else "stalled"] += 1
        if well and not (belongs is None and leaders[metadata.partition] in self.load.stalled):
            self.slowest = max(self.slowest, loop.time() - started)

    async def hand_over(
        self, producer: Producer, value: bytes, key: bytes | None, partition: int | None
    ) -> Delivery:
        if self.load.nowait:
            return producer.send_nowait("t", value, key, partition=partition)
        return await producer.send("t", value, key, partition=partition)


def numbers_in_order(run: Run, partition: int) -> list[int]:
    """The numbers of the partition's records that have a key or were sent to the partition."""
    numbers = [int(record.value[:7]) for record in run.fake.log("t", partition)]
    return [n for n in numbers if n and run.kind(n) != 2]


@settings(max_examples=max(3, settings.default.max_examples // 8))
@given(load=loads)
def test_records_for_brokers_that_are_well_do_not_wait(load: Load) -> None:
    run = Run(load)
    run_virtual(run.go())
    assert run.outcomes["well"]
    assert run.slowest <= LONGEST_S, run.outcomes
    assert run.most_used <= BUFFER
    for partition in range(PARTITIONS):
        numbers = numbers_in_order(run, partition)
        assert numbers == sorted(set(numbers))
