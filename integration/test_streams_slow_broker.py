"""A broker stands still (SIGSTOP): at least once, only the tasks that write to it wait.

The first commit waits for as long as the broker counts as an in-sync replica of the offsets.
"""

from __future__ import annotations

import pytest

from integration.streams_support import application, equals, records, running, until
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.admin.coordinators import _coordinator
from kafkaclient.types import TopicPartition


@pytest.mark.full
@pytest.mark.local_cluster
@pytest.mark.timeout(180)
async def test_only_the_tasks_that_write_to_the_broker_wait(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    app = application(bootstrap, topic, tmp_path, processing_guarantee="at_least_once")
    group = f"app-{topic}"

    @app.processor(topic)
    async def process(record, emit) -> None:
        await emit(out, record.value, partition=record.partition)

    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.committed_offsets(group)  # until the coordinator is available
        async with admin._operation("finding the coordinator", None) as operation:
            coordinator = await _coordinator(operation.session, group)
        well, stopped = coordinator, (coordinator + 1) % 3
        await create_topic(topic, assignments={0: [well], 1: [well]})
        await create_topic(out, assignments={0: [stopped], 1: [well]})

        async def committed() -> list[int]:
            found = await admin.committed_offsets(group)
            return [found.get(TopicPartition(topic, number), 0) for number in range(2)]

        async def send(first: int, count: int) -> None:
            for number in range(2):
                for n in range(first, first + count):
                    await producer.send_and_wait(topic, b"%d" % n, partition=number)

        async def done() -> set[tuple[int, bytes]]:
            return {(each.partition, each.value) for each in await records(bootstrap, out, 2)}

        async with running(app) as task:
            await send(0, 1)
            await until(equals(committed, [1, 1]), task)
            await kafka_cluster.pause(stopped)
            try:
                for turn in range(3):
                    await send(1 + 20 * turn, 20)
                    await until(equals(committed, [1, 21 + 20 * turn]), task, 45)
            finally:
                await kafka_cluster.resume(stopped)
            await until(equals(committed, [61, 61]), task, 60)
            expected = {(number, b"%d" % n) for n in range(61) for number in range(2)}
            assert await done() == expected, "some may be there twice"
