"""The worker for the OpenMessaging Benchmark, called as the benchmark's driver calls it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hdrh.histogram import HdrHistogram

from benchmarks.openmessaging import DRIVER
from experiments.openmessaging.__main__ import application
from experiments.openmessaging.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafkaclient.testing.cluster import ClusterHandle

pytestmark = [pytest.mark.local_cluster, pytest.mark.timeout(120)]


@pytest.fixture
async def workers() -> AsyncIterator[list[TestClient[Any, Any]]]:
    """Two workers: the first produces, the second consumes."""
    async with AsyncExitStack() as stack:
        clients = []
        for worker in (Worker(), Worker()):
            stack.push_async_callback(worker.stop)
            client = TestClient(TestServer(application(worker)))
            clients.append(await stack.enter_async_context(client))
        yield clients


async def post(client: TestClient[Any, Any], path: str, body: Any = None) -> Any:
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    async with client.post(path, data=text) as answer:
        assert answer.status == 200, await answer.text()
        said = await answer.text()
        return json.loads(said) if said else None


async def get(client: TestClient[Any, Any], path: str) -> Any:
    async with client.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json(content_type=None)


def recorded(encoded: str) -> int:
    """How many values a histogram has, by the library that the driver's port for Python uses."""
    return int(HdrHistogram.decode(encoded).get_total_count())


async def counted(client: TestClient[Any, Any], name: str, wanted: int) -> dict[str, int]:
    while (stats := await get(client, "/counters-stats"))[name] < wanted:
        await asyncio.sleep(0.1)
    return dict(stats)


async def test_a_benchmark_from_its_first_call_to_its_last(
    workers: list[TestClient[Any, Any]], kafka_cluster: ClusterHandle
) -> None:
    produces, consumes = workers
    for each in workers:
        await post(each, "/stop-all")
        await post(each, "/initialize-driver", DRIVER.format(bootstrap=kafka_cluster.bootstrap))
    wanted = {"numberOfTopics": 2, "numberOfPartitionsPerTopic": 3}
    topics = await post(produces, "/create-topics", wanted)
    assert len(set(topics)) == 2
    subscriptions = [{"topic": topic, "subscription": f"sub-{topic}"} for topic in topics]
    await post(consumes, "/create-consumers", {"topicsSubscriptions": subscriptions})
    await post(produces, "/create-producers", topics)

    await post(produces, "/probe-producers")
    assert (await counted(produces, "messagesSent", 2))["messagesSent"] == 2
    await counted(consumes, "messagesReceived", 2)

    payload = base64.b64encode(b"x" * 100).decode()
    load = {"payloadData": [payload], "publishRate": 200.0, "keyDistributorType": "RANDOM_NANO"}
    await post(produces, "/start-load", load)
    await post(produces, "/adjust-publish-rate", "2000.0")
    await counted(produces, "messagesSent", 1000)

    periods: Counter[str] = Counter()
    for client, names in (
        (produces, ("messagesSent", "bytesSent", "messageSendErrors")),
        (consumes, ("messagesReceived", "bytesReceived")),
    ):
        found = await get(client, "/period-stats")
        periods.update({name: found[name] for name in names})
        if client is produces:
            assert recorded(found["publishLatency"]) == found["messagesSent"]
            assert recorded(found["publishDelayLatency"]) == found["messagesSent"]
            assert found["totalMessagesSent"] == found["messagesSent"] + 2
    assert periods["messagesSent"] >= 998
    assert periods["bytesSent"] == 100 * periods["messagesSent"]
    assert periods["messageSendErrors"] == 0
    assert periods["messagesReceived"] > 2

    await post(consumes, "/pause-consumers")
    await post(consumes, "/resume-consumers")
    received = (await get(consumes, "/counters-stats"))["messagesReceived"]
    await counted(consumes, "messagesReceived", received + 500)
    latencies = await get(consumes, "/cumulative-latencies")
    assert recorded(latencies["endToEndLatency"]) > 0
    assert recorded(latencies["publishLatency"]) == 0
    await post(produces, "/reset-stats")

    for each in workers:
        await post(each, "/stop-all")
        nothing = {"messagesSent": 0, "messagesReceived": 0, "messageSendErrors": 0}
        assert await get(each, "/counters-stats") == nothing


async def test_a_call_that_cannot_be_served_says_so(
    workers: list[TestClient[Any, Any]], kafka_cluster: ClusterHandle
) -> None:
    await post(workers[0], "/initialize-driver", DRIVER.format(bootstrap=kafka_cluster.bootstrap))
    wanted = {"numberOfTopics": 1, "numberOfPartitionsPerTopic": 0}
    async with workers[0].post("/create-topics", data=json.dumps(wanted)) as answer:
        assert answer.status == 500
        assert "partitions" in await answer.text()
