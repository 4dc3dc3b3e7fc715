from __future__ import annotations

import pytest

from experiments.demo.sampler import Samples
from experiments.demo.stall import ManyTasks, Stall, rate_to_others
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.traffic import PartitionTraffic, Traffic
from kafkaclient.testing import FakeCluster


def test_a_stall_is_a_third_of_the_run_and_at_most_ten_seconds() -> None:
    long = Stall.of(8000.0, 300.0, 336_776)
    assert (long.seconds, long.rows) == (10, 240_000)
    short = Stall.of(4000.0, 300.0, 12_000)
    assert (short.seconds, short.rows) == (1, 12_000)


def test_both_clients_get_the_same_memory_and_put_keys_in_the_same_partitions() -> None:
    stall = Stall(9.0, 1000.0, 1024.0)
    assert stall.options("kafkaclient") == {"buffer.memory": "1536000"}
    assert stall.options("confluent") == {
        "queue.buffering.max.kbytes": "1500",
        "partitioner": "murmur2_random",
    }


def test_the_rates_are_of_the_other_brokers_before_and_during_the_stall() -> None:
    samples = Samples()
    others = 0
    for tenth in range(300):
        others += 40 if tenth <= 100 else 10
        samples.seconds.append(tenth / 10)
        samples.traffic.append(
            Traffic(
                (), tuple(PartitionTraffic(n, n, (999 * tenth, others, 0)[n], 0) for n in range(3))
            )
        )
    found = rate_to_others(samples, 0, Stall(10.0, 1000.0, 300.0))
    assert found == (pytest.approx(400.0), pytest.approx(100.0))
    assert rate_to_others(Samples(), 0, Stall(10.0, 1000.0, 300.0)) == (0.0, 0.0)


async def test_a_row_without_room_does_not_hold_up_the_others() -> None:
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 2)
    rows = [(b"%d" % (number % 7), bytes(1000)) for number in range(400)]
    async with fake.serve():
        config = {"bootstrap.servers": fake.bootstrap, "buffer.memory": "60000"}
        client = ManyTasks(config, "t")
        fake.delay_produce(0, 0.01)
        outcome = await Load(client, LoadSpec(len(rows))).run(rows)
        await client.stop()
    assert outcome.summary.records == len(rows)
    assert not outcome.errors
