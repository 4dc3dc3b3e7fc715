"""Late binding: whole producers in virtual time, brokers of given speed (issue of KIP-794)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from kafkaclient.producer.sender.broker_lane import LaneState
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.producer.support import Bench, StartProducer, Values

RECORD = bytes(500)


class Sent(NamedTuple):
    """A record's story: when it was sent and for how long it was on its way, in seconds."""

    at: float
    latency: float
    partition: int
    topic: str


class Load:
    """Unkeyed records to a topic at a steady rate; ``sent`` in the order of their answers."""

    def __init__(self, producer: Any) -> None:
        self.sent: list[Sent] = []
        self._producer = producer
        self._began = now()

    async def run(self, rate: float, seconds: float, topic: str = "t") -> None:
        began, number = now(), 0
        while number < rate * seconds:
            while number <= (now() - began) * rate:
                self.send(topic)
                number += 1
            await asyncio.sleep(max(1 / rate, 0.0005))

    def send(self, topic: str = "t") -> None:
        at = now()

        def answered(delivery: Any) -> None:
            partition = delivery.result().partition
            self.sent.append(Sent(at - self._began, now() - at, partition, topic))

        self._producer.send_nowait(topic, RECORD).add_done_callback(answered)

    async def finish(self) -> None:
        await self._producer.flush()
        await asyncio.sleep(0)

    def percentile(self, percent: float, topic: str = "t") -> float:
        latencies = sorted(s.latency for s in self.sent if s.topic == topic)
        return latencies[int(len(latencies) * percent / 100)]

    def shares(self, since: float = 0.0, until: float = 1e9) -> list[float]:
        """Each partition's part of the records sent in that time."""
        counts = Counter(s.partition for s in self.sent if since <= s.at < until)
        return [counts[p] / counts.total() for p in range(max(counts) + 1)]


def cluster(*delays_ms: float, partitions: int = 3) -> FakeCluster:
    fake = FakeCluster(brokers=len(delays_ms))
    fake.create_topic("t", partitions)
    for node, delay in enumerate(delays_ms):
        fake.delay_produce(node, delay / 1000)
    return fake


StartLoad: TypeAlias = "Callable[..., AbstractAsyncContextManager[tuple[Any, Load]]]"


@pytest.fixture
def late(producing: StartProducer) -> StartLoad:
    """``async with late(fake, **options) as (producer, load)``: the producer knows the topic ``t``,
    and at the end every record has its outcome."""

    @asynccontextmanager
    async def started(fake: FakeCluster, **options: Any) -> AsyncIterator[tuple[Any, Load]]:
        async with producing(fake, partitioner="late", **options) as producer:
            await producer.partitions_for("t")
            load = Load(producer)
            yield producer, load
            await load.finish()

    return started


@virtual_time
async def test_a_slow_broker_costs_its_own_delay_and_no_more(late: StartLoad) -> None:
    """KIP-794's test: Java's p99 is 131 ms here."""
    async with late(cluster(21, 1, 1)) as (_, load):
        await load.run(2048, 4)
    assert load.percentile(99) <= 0.027
    assert 0.18 <= load.shares()[0] <= 0.25, "the floor is 0.2; a partition starts ahead of it"


@pytest.mark.parametrize(("slow_ms", "most_ms"), [(21, 10.2), (90, 25)])
@pytest.mark.parametrize("rate", [5, pytest.param(100, marks=pytest.mark.full)])
@virtual_time
async def test_a_slow_broker_gets_its_floor_at_low_rates(
    late: StartLoad, slow_ms: float, most_ms: float, rate: float
) -> None:
    """No batch ever meets a busy broker: what brokers took before tells which is slow."""
    async with late(cluster(slow_ms, 1, 1)) as (_, load):
        await load.run(rate, 2000 / rate)
    latencies = [sent.latency for sent in load.sent]
    assert sum(latencies) / len(latencies) <= most_ms / 1000
    assert load.shares()[0] <= 0.21
    assert load.shares()[1] == pytest.approx(load.shares()[2], rel=0.02)


@pytest.mark.parametrize("rate", [5, 100, 2000])
@virtual_time
async def test_brokers_that_are_alike_stay_even(late: StartLoad, rate: float) -> None:
    async with late(cluster(1, 2, 3)) as (_, load):
        await load.run(rate, 1500 / rate)
    assert max(load.shares()) / min(load.shares()) < 1.03


@virtual_time
async def test_the_share_floor_holds_without_lingering(late: StartLoad) -> None:
    shares, p99 = {}, {}
    for floor in (0.0, 0.6):
        async with late(
            cluster(21, 1, 1), linger_ms=0, partitioner_share_floor=floor, batch_size=4096
        ) as (_, load):
            await load.run(2048, 3)
        shares[floor], p99[floor] = load.shares(since=1.0)[0], load.percentile(99)
    assert shares[0.0] < 0.07
    assert shares[0.6] == pytest.approx(0.2, abs=0.02)
    assert p99[0.6] <= 0.028, "its records wait for company, not behind other requests"


@virtual_time
async def test_a_broker_in_trouble_gets_a_batch_now_and_then(late: StartLoad) -> None:
    """A share of 0.2 is the floor; records that wait for it would be a fifth of all."""
    fake = cluster(2, 400, 2)
    async with late(fake) as (producer, load):
        await load.run(1000, 8)
        assert producer.load().brokers[1].excluded == "slow"
        fake.delay_produce(1, 0.002)
        await load.run(1000, 4)
        assert producer.load().brokers[1].excluded is None
    assert 0.0 < load.shares(since=3.0, until=8.0)[1] < 0.01
    late_ones = [s for s in load.sent if 3.0 <= s.at < 8.0 and s.latency > 0.03]
    assert len(late_ones) < 0.01 * 5 * 1000
    assert min(load.shares(since=10.5)) > 0.3, "well again after one fast answer"


@virtual_time
async def test_a_broker_in_trouble_is_better_than_a_dead_one(late: StartLoad) -> None:
    fake = cluster(2, 400, 2)
    async with late(fake) as (_, load):
        await load.run(1000, 4)
        fake.stall_broker(0)
        fake.stall_broker(2)
        await load.run(1000, 4)
        assert {s.partition for s in load.sent if s.at > 5.0} == {1}
        fake.resume_broker(0)
        fake.resume_broker(2)


@virtual_time
async def test_equal_brokers_get_equal_bytes(late: StartLoad) -> None:
    """Within a batch, at a rate that leaves brokers mostly free."""
    async with late(cluster(1, 1, 1, partitions=12)) as (producer, load):
        await load.run(1024, 12)
        await load.finish()
        sent = [p.bytes_sent for p in producer.load().partitions]
    assert max(sent) / min(sent) <= 1.05


@virtual_time
async def test_a_paused_broker_keeps_only_what_it_had(late: StartLoad) -> None:
    """Records not in flight to it do not notice, and when it is back it has its fair share."""
    fake = cluster(2, 2, 2)
    async with late(fake) as (producer, load):
        running = asyncio.create_task(load.run(2048, 8))
        await asyncio.sleep(2.0)
        fake.stall_broker(0)
        await asyncio.sleep(1.0)
        assert inspect(producer).sender.lanes.get(0).state is LaneState.OVERDUE
        await asyncio.sleep(2.0)
        fake.resume_broker(0)
        await running
    stuck = [s for s in load.sent if s.latency > 0.02]
    assert len(stuck) <= 30
    assert all(1.98 <= s.at <= 2.02 for s in stuck)
    assert load.shares(2.1, 5.0)[0] == 0
    for second in (5.05, 5.55, 6.05, 7.05):
        assert load.shares(second, second + 0.5)[0] == pytest.approx(1 / 3, rel=0.2)


@virtual_time
async def test_an_application_that_blocks_its_loop_is_not_the_brokers_fault(
    late: StartLoad,
) -> None:
    """No lane is closed for it, and nothing is asked of the brokers more often."""
    fake = cluster(1, 1, 1)
    async with late(fake) as (producer, load):
        running = asyncio.create_task(load.run(1024, 6))
        calls = len(fake.requests_of(ApiKey.API_VERSIONS)), len(fake.requests_of(ApiKey.METADATA))
        for _ in range(16):
            await asyncio.sleep(0.3003)
            asyncio.get_running_loop()._now += 0.2  # type: ignore[attr-defined]
        await running
        await load.finish()
        lanes = list(inspect(producer).sender.lanes)
        probes = len(fake.requests_of(ApiKey.API_VERSIONS)) - calls[0]
        assert len(fake.requests_of(ApiKey.METADATA)) == calls[1]
    assert not any(lane.exclusions[LaneState.OVERDUE] for lane in lanes)
    assert probes <= 3 * 6 / 0.5 + 9
    assert all(lane.window.service < 0.01 for lane in lanes)


@virtual_time
async def test_if_all_brokers_are_overdue_none_is_left_out(late: StartLoad) -> None:
    fake = cluster(1, 1, 1)
    async with late(fake, max_in_flight_requests_per_connection=5) as (_, load):
        await load.run(1024, 1)
        for node in range(3):
            fake.stall_broker(node)
        await load.run(1024, 1)
        for node in range(3):
            fake.resume_broker(node)
    assert len(load.sent) == 2048


@virtual_time
async def test_availability_timeout_excludes_for_good(late: StartLoad) -> None:
    """Not even when all brokers are: then batches wait until one has answered."""
    fake = cluster(40, 40, partitions=2)
    async with late(fake, availability_timeout_ms=10, linger_ms=0) as (producer, load):
        for _ in range(40):  # window 1: what comes later waits for an answer
            load.send()
            await asyncio.sleep(0.005)
        lanes = inspect(producer).sender.lanes
        assert all(lane.exclusions[LaneState.UNAVAILABLE] for lane in lanes)
    assert len(load.sent) == 40


@virtual_time
async def test_leaders_that_left_a_silent_broker_get_its_batches(late: StartLoad) -> None:
    """A paused broker never closes its connection; another one knows who leads now."""
    fake = cluster(1, 1, 1)
    async with late(fake) as (_, load):
        await load.run(512, 1)
        running = asyncio.create_task(load.run(512, 3))
        fake.stall_broker(0)
        await asyncio.sleep(0.5)
        for partition in range(3):
            if fake.leader("t", partition) == 0:
                fake.move_leader("t", partition, 1)
        await running
    assert max(s.latency for s in load.sent) < 3.0, "not the 30 s of request.timeout.ms"
    assert len(load.sent) == 2048


@virtual_time
async def test_set_aside_records_go_elsewhere_when_their_broker_fails(late: StartLoad) -> None:
    fake = cluster(21, 1, 1)
    async with late(fake, linger_ms=0, batch_size=1024) as (producer, load):
        await load.run(2048, 1)
        strategy = inspect(producer).accumulator.topics["t"].strategy
        while strategy.reserved_queue is None or not strategy.reserved_queue.batches:
            load.send()
            await asyncio.sleep(0.0005)
        fake.stop_broker(0, elect=False)
        await load.run(2048, 0.5)
        await asyncio.sleep(0.2)
        waiting = [b for b in inspect(producer).accumulator.incomplete if not b.attempts]
        assert not waiting, "what was never sent went to the others"
        fake.start_broker(0)


@virtual_time
async def test_a_lost_leader_frees_what_was_set_aside(late: StartLoad) -> None:
    fake = cluster(21, 1, 1)
    async with late(fake, linger_ms=0, batch_size=1024) as (producer, load):
        await load.run(2048, 1)
        accumulator = inspect(producer).accumulator
        topic = accumulator.topics["t"]
        while topic.strategy.reserved_queue is None or not topic.strategy.reserved_queue.batches:
            load.send()
            await asyncio.sleep(0.0005)
        queue = topic.strategy.reserved_queue
        view = topic.view
        lost = view.partitions[queue.partition]._replace(leader=-1)
        partitions = [*view.partitions]
        partitions[queue.partition] = lost
        accumulator.update_topic(type(view)("t", view.topic_id, tuple(partitions)), now())
        accumulator.binding.unbind_unsendable(now())
        assert topic.strategy.reserved_queue is None
        assert not queue.batches
        assert topic.unbound.batches
        accumulator.update_topic(view, now())


@virtual_time
async def test_a_quiet_topic_does_not_wait_for_a_hot_one(producing: StartProducer) -> None:
    fake = FakeCluster()
    for n in range(200):
        fake.create_topic(f"quiet-{n}", 3)
    fake.create_topic("hot", 6)
    for node in range(3):
        fake.delay_produce(node, 0.002)
    async with producing(fake, partitioner="late") as producer:
        for n in range(200):
            await producer.partitions_for(f"quiet-{n}")
        await producer.partitions_for("hot")
        load = Load(producer)
        hot = asyncio.create_task(load.run(30_000, 1.0, "hot"))
        for n in range(200):
            load.send(f"quiet-{n}")
            await asyncio.sleep(0.005)
        await hot
        await load.finish()
    quiet = sorted(s.latency for s in load.sent if s.topic != "hot")
    assert len(quiet) == 200
    assert quiet[197] <= 0.005 + 0.010


@virtual_time
async def test_without_adaptivity_bytes_rotate_strictly(late: StartLoad) -> None:
    """adaptive.partitioning.enable=false: the slow broker gets its third, and p99 shows it."""
    async with late(cluster(21, 1, 1), adaptive_partitioning_enable=False) as (_, load):
        await load.run(1024, 4)
    assert load.shares() == pytest.approx([1 / 3] * 3, abs=0.01)


@virtual_time
async def test_a_burst_rotates_strictly_too(late: StartLoad) -> None:
    """More than one ready batch in one pass."""
    fake = cluster(1, 1, 1)
    async with late(fake, adaptive_partitioning_enable=False, batch_size=1024) as (_, load):
        for _ in range(600):
            load.send()
    assert load.shares() == pytest.approx([1 / 3] * 3, abs=0.01)


@virtual_time
async def test_a_keyed_record_does_not_wait_with_what_is_set_aside(late: StartLoad) -> None:
    fake = cluster(21, 1, 1)
    async with late(fake, linger_ms=0, batch_size=1024) as (producer, load):
        await load.run(2048, 1)
        strategy = inspect(producer).accumulator.topics["t"].strategy
        while strategy.reserved_queue is None:
            load.send()
            await asyncio.sleep(0.0005)
        partition, asked = strategy.reserved_queue.partition, now()
        await producer.send_and_wait("t", b"explicit", partition=partition)
        assert now() - asked <= 0.045, "its broker's delay, behind one request at the most"


@virtual_time
async def test_a_broker_that_takes_no_bytes_has_nothing_set_aside(late: StartLoad) -> None:
    """acks=0: no answer tells of a stall, only the connection does."""
    fake = cluster(1, 1, 1)
    async with late(fake, linger_ms=0, acks=0, batch_size=1024) as (producer, load):
        await load.run(1024, 0.5)
        lanes = inspect(producer).sender.lanes
        assert lanes.has_capacity(0)
        lanes.get(0).connection.writable = False
        assert not lanes.has_capacity(0)
        assert not lanes.keeps_reserved(0)
        lanes.get(0).connection.writable = True


@virtual_time
async def test_leaders_that_left_before_the_broker_was_overdue(late: StartLoad) -> None:
    """The view changes first, the broker is found overdue later."""
    fake = cluster(200, 200, 200)
    async with late(fake, linger_ms=0) as (producer, load):
        await load.run(100, 4)  # usual: 0.2 s, so that it is overdue after 1.6 s
        running = asyncio.create_task(load.run(100, 4))
        fake.stall_broker(0)
        await asyncio.sleep(0.3)
        for partition in range(3):
            if fake.leader("t", partition) == 0:
                fake.move_leader("t", partition, 1)
        inspect(producer).metadata.request_refresh("told by somebody else")
        await running
    assert max(s.latency for s in load.sent) < 6.0


@virtual_time
async def test_what_is_set_aside_does_not_wait_behind_a_retry(bench: type[Bench]) -> None:
    b = bench((0, 1), late=True)
    b.accumulator.update_topic(b.view(), 0.0)
    retried = b.put_batches(0, 1)[0]
    b.drain(0)
    b.put()
    batch = b.topic.unbound.take_unbound()
    b.accumulator.conditions.brokers = AllInOrder()
    b.accumulator.binding.reserve(batch, b.queue(0), 0.0)
    b.incomplete.retry(retried, Exception("refused"), 5.0, 0.0)
    assert list(b.queue(0).batches) == [retried, batch]
    b.accumulator.binding.unbind_unsendable(0.0)
    assert list(b.queue(0).batches) == [retried]
    assert list(b.topic.unbound.batches) == [batch]
    assert batch.result.partition == -1


@virtual_time
async def test_a_topic_that_comes_back_with_one_partition_keeps_the_order(
    bench: type[Bench],
) -> None:
    b = bench((0, 1, 2), late=True)
    b.accumulator.update_topic(b.view(), 0.0)
    b.accumulator.conditions.brokers = AllInOrder()
    for value in (b"0", b"1"):
        b.put(value=value)
        b.topic.unbound.batches[-1].close()
    aside = b.topic.unbound.take_unbound()
    b.accumulator.binding.reserve(aside, b.queue(0), 0.0)
    b.leaders, b.epochs = [0], [9]
    b.accumulator.update_topic(b.view(), 0.0)
    b.put(value=b"2")
    batches = list(b.queue(0).batches)
    assert [batch.count for batch in batches] == [1, 1, 1]
    assert batches[0] is aside
    assert not any(batch.rebindable for batch in batches)
    assert not b.topic.unbound.batches


class AllInOrder:
    """Brokers that are never out of order, and busy."""

    def has_capacity(self, node_id: int) -> bool:
        return False

    def keeps_reserved(self, node_id: int) -> bool:
        return node_id >= 0

    def may_be_waited_for(self, node_id: int) -> bool:
        return True

    def p95_latency(self, node_id: int) -> float:
        return 0.02


@virtual_time
async def test_a_topic_of_one_partition_keeps_its_order(
    producing: StartProducer, values: Values
) -> None:
    fake = cluster(5, partitions=1)
    async with producing(fake, partitioner="late", linger_ms=0) as producer:
        for n in range(500):
            producer.send_nowait("t", b"%d" % n, key=b"k" if n % 3 == 0 else None)
            await asyncio.sleep(0.0003)
    assert values(fake, "t") == [b"%d" % n for n in range(500)]
