"""Other topics of the cluster cost a Spark query at most 15 ms a trigger, on a busy machine, too. A
pattern's look for new topics, at most every ``metadata.max.age.ms``, is not measured."""

from __future__ import annotations

import asyncio
import time

import pytest

from kafkaclient.admin import Admin
from kafkaclient.spark.options import ReadOptions
from kafkaclient.spark.planning import Planner
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.wire.topics import NewTopic

OTHER_TOPICS = 3000
TRIGGERS = 60
MOST_MS = 15.0


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("given", [{"subscribe": "flights"}, {"subscribePattern": "fl.*"}])
async def test_other_topics_cost_a_trigger_nothing(given) -> None:
    async with LocalCluster(1) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("flights", 6)
        options = ReadOptions.parse(
            {"kafka.bootstrap.servers": cluster.bootstrap, **given}, "streaming"
        )
        alone = await _trigger_ms(options)
        for first in range(0, OTHER_TOPICS, 500):
            others = [NewTopic(f"other-{number}", 1) for number in range(first, first + 500)]
            assert not any((await admin.create_topics(others)).values())
        async with asyncio.timeout(300):  # the broker hears of them from the controller
            while len(await admin.list_topics()) <= OTHER_TOPICS:
                await asyncio.sleep(1)
        among_others = await _trigger_ms(options)
    print(f"{given}: {alone:.2f} ms alone, {among_others:.2f} ms among {OTHER_TOPICS} topics")
    assert among_others - alone <= MOST_MS


async def _trigger_ms(options: ReadOptions) -> float:
    """The time to find partitions and end offsets, which each trigger does; the best of many."""
    planner = Planner(options)
    try:
        await planner.start()
        times = []
        for _ in range(TRIGGERS):
            began = time.perf_counter()
            assert len(await planner.end_offsets()) == 6
            times.append(time.perf_counter() - began)
    finally:
        await planner.close()
    return min(times) * 1000
