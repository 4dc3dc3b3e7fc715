"""Producers and consumers on the fake cluster, which subscribes to their metrics."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkaclient import Consumer, KafkaMetric, Producer
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import ConfigError, ConsumerStateError, ProducerStateError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, DROP, FakeCluster
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import decompress

if TYPE_CHECKING:
    from kafkaclient.testing.fake.interceptors import Request

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
SENT = "org.apache.kafka.producer.record.send.total"
MINUTE = 60_000


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 1)
    return cluster


def new_producer(fake: FakeCluster, **options: Any) -> Producer:
    def wall_clock() -> float:
        return 1000.0 + asyncio.get_running_loop().time()

    return Producer(fake.bootstrap, dialer=fake, rng=Random(7), wall_clock=wall_clock, **options)


def data_of(request: Request) -> MetricsData:
    message = request.message
    return MetricsData.FromString(decompress(message.compression_type, message.metrics))


def values_of(request: Request) -> dict[str, float]:
    """The values without attributes."""
    (resource,) = data_of(request).resource_metrics
    found = {}
    for metric in resource.scope_metrics[0].metrics:
        for point in (metric.sum or metric.gauge).data_points or metric.gauge.data_points:
            if not point.attributes:
                found[metric.name] = point.as_double
    return found


def pushes(fake: FakeCluster) -> list[Request]:
    return fake.requests_of(PUSH)


@virtual_time
async def test_nothing_is_sent_to_a_cluster_without_a_receiver(fake: FakeCluster) -> None:
    async with new_producer(fake) as producer:
        await producer.send_and_wait("t", b"x")
        assert await producer.client_instance_id() is None
        before = len(fake.requests)
        await asyncio.sleep(3600)
    assert {request.api_key for request in fake.requests[before:]} == {ApiKey.METADATA}
    async with Consumer(fake.bootstrap, dialer=fake) as consumer:
        assert await consumer.client_instance_id() is None


@virtual_time
async def test_no_connection_is_made_to_ask_what_no_broker_offers(fake: FakeCluster) -> None:
    async with new_producer(fake, enable_idempotence=False) as producer:
        await asyncio.sleep(1)
        assert producer.metrics().producer["connection-creation-total"] == 1


@virtual_time
async def test_a_cluster_without_a_subscription_is_asked_once_in_an_interval(
    fake: FakeCluster,
) -> None:
    fake.subscribe_metrics(interval_ms=10 * MINUTE)
    async with new_producer(fake) as producer:
        instance_id = await producer.client_instance_id()
        assert instance_id == UUID(int=1)
        await asyncio.sleep(1790)
        asked = fake.requests_of(GET)
        assert len(asked) == 3
        assert [each.message.client_instance_id.int for each in asked] == [0, 1, 1]
    assert not pushes(fake)


@virtual_time
async def test_metrics_are_pushed_in_the_interval_and_at_the_end(fake: FakeCluster) -> None:
    fake.subscribe_metrics("org.apache.kafka.producer.record.", interval_ms=MINUTE, compression=[4])
    async with new_producer(fake, transactional_id=None, client_rack="r1") as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(240)
        await producer.send_and_wait("t", b"x")
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 0.1
    *regular, last = pushes(fake)
    times = [each.at for each in regular]
    assert 30 <= times[0] <= 90, "the first comes after half to one and a half intervals"
    assert [round(b - a) for a, b in pairwise(times)] == [60] * (len(times) - 1)
    assert len({each.broker for each in pushes(fake)}) == 1, "always the same broker"
    assert [each.message.terminating for each in pushes(fake)] == [False] * len(times) + [True]
    assert {each.message.subscription_id for each in pushes(fake)} == {1}
    assert [values_of(each)[SENT] for each in (regular[0], last)] == [1, 2]
    assert all(name.startswith("org.apache.kafka.producer.record.") for name in values_of(last))
    (resource,) = data_of(last).resource_metrics
    labels = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert labels == {"client_rack": "r1"}
    (metric,) = [m for m in resource.scope_metrics[0].metrics if m.name == SENT]
    (point,) = metric.sum.data_points
    assert point.start_time_unix_nano == 1000 * 10**9
    assert point.time_unix_nano == pytest.approx((1000 + last.at) * 10**9, abs=10**6)


@virtual_time
async def test_deltas_lose_nothing_when_a_push_is_refused(fake: FakeCluster) -> None:
    fake.subscribe_metrics(SENT, interval_ms=MINUTE, delta=True)
    async with new_producer(fake) as producer:
        for count in (1, 2, 3, 4):
            if count == 3:
                fake.control(PUSH, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            for _ in range(count):
                await producer.send_and_wait("t", b"x")
            before = len(pushes(fake))
            while len(pushes(fake)) == before:
                await asyncio.sleep(1)
    found = [values_of(each)[SENT] for each in pushes(fake)]
    assert found == [1, 2, 3, 3 + 4, 0]
    assert len(fake.requests_of(GET)) == 2, "after the refusal"


@virtual_time
async def test_a_changed_subscription_is_fetched_at_once(fake: FakeCluster) -> None:
    fake.subscribe_metrics("*", interval_ms=MINUTE)
    async with new_producer(fake) as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(100)
        assert len(values_of(pushes(fake)[0])) > 20, "a star stands for all"
        fake.subscribe_metrics(SENT, interval_ms=MINUTE)
        refused = len(pushes(fake))
        while len(fake.requests_of(GET)) < 2:
            await asyncio.sleep(1)
        assert len(pushes(fake)) == refused + 1
        await asyncio.sleep(100)
        assert values_of(pushes(fake)[-1]) == {SENT: 1}
        assert pushes(fake)[-1].message.subscription_id == 2
        fake.subscribe_metrics(interval_ms=MINUTE)
        await asyncio.sleep(100)
        ended = len(pushes(fake))
        await asyncio.sleep(500)
        assert len(pushes(fake)) == ended
    assert len(pushes(fake)) == ended, "without a subscription there is no last push either"


REFUSALS = [
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]


@pytest.mark.parametrize("api", [GET, PUSH])
@pytest.mark.parametrize("code", REFUSALS)
@virtual_time
async def test_an_error_for_good_ends_it(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture, api: ApiKey, code: ErrorCode
) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    fake.control(api, code)
    async with new_producer(fake) as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(1000)
        await producer.send_and_wait("t", b"x")
        assert await producer.client_instance_id() == (None if api == GET else UUID(int=1))
    assert len(fake.requests_of(GET)) == 1
    assert len(pushes(fake)) == (api == PUSH)
    (logged,) = [each for each in caplog.records if "pushes no metrics" in each.getMessage()]
    assert logged.levelno == logging.WARNING


LATER = [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, CLOSE, DROP]
AT_ONCE = [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]


@pytest.mark.parametrize("answer", [*LATER, *AT_ONCE])
@virtual_time
async def test_other_failures_are_followed_by_a_question(fake: FakeCluster, answer: Any) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    fake.control(PUSH, answer)
    async with new_producer(fake, request_timeout_ms=5_000) as producer:
        await producer.send_and_wait("t", b"x")
        while len(fake.requests_of(GET)) < 2:
            await asyncio.sleep(0.1)
        waited = fake.requests_of(GET)[-1].at - pushes(fake)[0].at
        assert waited < 1 if answer in AT_ONCE else 59 < waited < 70
        await asyncio.sleep(100)
        assert len(pushes(fake)) >= 2
        assert {each.message.client_instance_id.int for each in pushes(fake)} == {1}


@pytest.mark.parametrize("answer", [*LATER, *AT_ONCE])
@virtual_time
async def test_a_question_that_fails_is_repeated_after_the_interval(
    fake: FakeCluster, answer: Any
) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    fake.control(GET, answer)
    async with new_producer(fake, request_timeout_ms=5_000) as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(400)
        assert await producer.client_instance_id() == UUID(int=1)
    first, second = fake.requests_of(GET)
    assert 299 < second.at - first.at < 310


@virtual_time
async def test_too_many_bytes_are_pushed_without_topics_and_brokers(fake: FakeCluster) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE, max_bytes=12_000)
    async with new_producer(fake) as producer:
        for number in range(60):
            await producer.send_and_wait(f"t{number}", b"x")
        await asyncio.sleep(200)
        assert len(pushes(fake)) >= 2
        assert all(len(each.message.metrics) <= 12_000 for each in pushes(fake))
        assert values_of(pushes(fake)[-1])[SENT] == 60
        (resource,) = data_of(pushes(fake)[-1]).resource_metrics
        assert not any(".topic." in m.name for m in resource.scope_metrics[0].metrics)
        fake.subscribe_metrics("", interval_ms=MINUTE, max_bytes=10)
        await asyncio.sleep(200)
        done = len(pushes(fake))
        await asyncio.sleep(200)
        assert len(pushes(fake)) == done, "nothing fits: nothing is sent"
        fake.subscribe_metrics(SENT, interval_ms=MINUTE, max_bytes=1000)
        await asyncio.sleep(200)
        assert values_of(pushes(fake)[-1]) == {SENT: 60}, "another subscription may fit"


@virtual_time
async def test_what_was_left_out_is_in_a_later_delta_once(fake: FakeCluster) -> None:
    sent = "org.apache.kafka.producer.topic.record.send.total"
    loop, changes, total = asyncio.get_running_loop(), [0.0], 0.0
    fake.subscribe_metrics("", interval_ms=MINUTE, delta=True)
    async with new_producer(fake) as producer:
        for max_bytes in (100_000, 12_000, 100_000):
            for number in range(60):
                await producer.send_and_wait(f"t{number}", b"x")
            fake.subscribe_metrics("", interval_ms=MINUTE, delta=True, max_bytes=max_bytes)
            changes.append(loop.time())
            await asyncio.sleep(400)
    for push in pushes(fake):
        if push.message.subscription_id == sum(at <= push.at for at in changes):
            (resource,) = data_of(push).resource_metrics
            found = [m for m in resource.scope_metrics[0].metrics if m.name == sent]
            total += sum(point.as_double for metric in found for point in metric.sum.data_points)
    assert total == 180


@virtual_time
async def test_many_points_are_encoded_in_a_thread(fake: FakeCluster) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE, compression=[77, 1])
    async with new_producer(fake) as producer:
        for number in range(60):
            await producer.send_and_wait(f"t{number}", b"x")
    (last,) = pushes(fake)
    assert last.message.compression_type == 1, "the first codec that this client has"
    (resource,) = data_of(last).resource_metrics
    topics = [
        point.attributes[0].value.string_value
        for metric in resource.scope_metrics[0].metrics
        if metric.name == "org.apache.kafka.producer.topic.record.send.total"
        for point in metric.sum.data_points
    ]
    assert len(topics) == 60


@pytest.mark.parametrize("timeout", [None, 0.3])
@virtual_time
async def test_a_silent_broker_does_not_hold_up_the_end(
    fake: FakeCluster, timeout: float | None
) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    producer = new_producer(fake)
    await producer.start()
    await producer.send_and_wait("t", b"x")
    fake.control(PUSH, DROP)
    began = asyncio.get_running_loop().time()
    assert await producer.stop(timeout) == 0
    assert len(pushes(fake)) == 1
    assert asyncio.get_running_loop().time() - began < (timeout or 1.0) + 0.1


@virtual_time
async def test_another_broker_is_asked_when_one_has_gone(fake: FakeCluster) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    async with new_producer(fake) as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(100)
        (gone,) = {each.broker for each in pushes(fake)}
        fake.stop_broker(gone)
        before = len(pushes(fake))
        await asyncio.sleep(400)
        assert {each.broker for each in pushes(fake)[before:]} == {1 - gone}
        assert {each.message.client_instance_id.int for each in pushes(fake)} == {1}


@virtual_time
async def test_it_can_be_switched_off(fake: FakeCluster) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    async with new_producer(fake, enable_metrics_push=False) as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(200)
        with pytest.raises(ProducerStateError, match=r"enable\.metrics\.push is false"):
            await producer.client_instance_id()
    options: dict[str, Any] = {"enable_metrics_push": False, "group_id": "g", "topics": ["t"]}
    async with Consumer(fake.bootstrap, dialer=fake, **options) as consumer:
        await asyncio.sleep(200)
        with pytest.raises(ConsumerStateError, match=r"enable\.metrics\.push is false"):
            await consumer.client_instance_id()
    assert not fake.requests_of(GET)
    with pytest.raises(ProducerStateError):
        await new_producer(fake).client_instance_id()


@virtual_time
async def test_client_instance_id_waits_no_longer_than_asked(fake: FakeCluster) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    fake.control(GET, DROP)
    async with new_producer(fake) as producer:
        began = asyncio.get_running_loop().time()
        assert await producer.client_instance_id(timeout=2.0) is None
        assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.1)


@virtual_time
async def test_a_consumer_pushes_as_a_member_of_its_group(fake: FakeCluster) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "group_instance_id": "one"}
    async with (
        new_producer(fake, enable_metrics_push=False) as producer,
        Consumer(fake.bootstrap, group_id="g", topics=["t"], dialer=fake, **options) as consumer,
    ):
        await producer.send_and_wait("t", b"x")
        await consumer.getone()
        member_id = consumer.group_metadata.member_id
        await asyncio.sleep(100)
        (resource,) = data_of(pushes(fake)[-1]).resource_metrics
        labels = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert labels == {"group_id": "g", "group_instance_id": "one", "group_member_id": member_id}
        values = values_of(pushes(fake)[-1])
        assert values["org.apache.kafka.consumer.coordinator.assigned.partitions"] == 1
        assert values["org.apache.kafka.consumer.fetch.manager.records.consumed.total"] == 1
        done = len(pushes(fake))
    assert [each.message.terminating for each in pushes(fake)[done:]] == [True]


# --- metrics of the application (KIP-1076) --------------------------------------------------------


@virtual_time
async def test_an_applications_metrics_are_pushed_with_the_clients(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fake.subscribe_metrics("org.apache.kafka.shop.", SENT, interval_ms=MINUTE)
    waiting = KafkaMetric("orders-waiting", "shop-metrics", lambda: 3, {"queue-name": "north"})
    done = KafkaMetric("orders-done-total", "shop", lambda: 40)
    broken = KafkaMetric("broken", "shop", lambda: 1 / 0)
    unwanted = KafkaMetric("size", "other", lambda: 1)
    imposter = KafkaMetric("record-send-total", "producer-metrics", lambda: 99)
    producer = new_producer(fake)
    producer.register_metric_for_subscription(waiting)
    async with producer:
        for metric in (done, broken, unwanted, imposter):
            producer.register_metric_for_subscription(metric)
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(100)
        (resource,) = data_of(pushes(fake)[-1]).resource_metrics
        found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
        names = {"org.apache.kafka.shop.orders.waiting", "org.apache.kafka.shop.orders.done.total"}
        assert found.keys() == {*names, SENT}
        (point,) = found["org.apache.kafka.shop.orders.waiting"].gauge.data_points
        assert point.as_double == 3
        assert [(a.key, a.value.string_value) for a in point.attributes] == [
            ("queue_name", "north")
        ]
        assert values_of(pushes(fake)[-1])[SENT] == 1, "not the application's"
        assert "shop.broken" in caplog.text
        producer.unregister_metric_from_subscription(done)
        producer.unregister_metric_from_subscription(imposter)
        producer.unregister_metric_from_subscription(unwanted)
    assert values_of(pushes(fake)[-1]) == {SENT: 1}


@virtual_time
async def test_a_consumer_pushes_an_applications_metrics(fake: FakeCluster) -> None:
    fake.subscribe_metrics("org.apache.kafka.shop.", interval_ms=MINUTE)
    metric = KafkaMetric("orders-done-total", "shop", lambda: 40)
    async with Consumer(fake.bootstrap, dialer=fake) as consumer:
        consumer.register_metric_for_subscription(metric)
        assert await consumer.client_instance_id() == UUID(int=1)
    assert values_of(pushes(fake)[-1]) == {"org.apache.kafka.shop.orders.done.total": 40}
    async with Consumer(fake.bootstrap, dialer=fake) as consumer:
        consumer.register_metric_for_subscription(metric)
        consumer.unregister_metric_from_subscription(metric)
        await consumer.client_instance_id()
    assert not data_of(pushes(fake)[-1]).resource_metrics[0].scope_metrics[0].metrics


@virtual_time
async def test_a_metric_that_raises_takes_no_other_with_it(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fake.subscribe_metrics("org.apache.kafka.shop.", interval_ms=MINUTE)
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    async with new_producer(fake) as producer:
        for name, value in {
            "future": cancelled.result,
            "words": lambda: "many",
            "bytes": lambda: 10**400,
            "größe": lambda: 3,
        }.items():
            metric = KafkaMetric(name, "shop", value)  # type: ignore[arg-type]
            producer.register_metric_for_subscription(metric)
        await asyncio.sleep(200)
        assert len(pushes(fake)) >= 2
    assert all(values_of(push) == {"org.apache.kafka.shop.größe": 3} for push in pushes(fake))
    for name in ("future", "words", "bytes"):
        assert f"the metric org.apache.kafka.shop.{name} of the application" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": None}, "text, not None"),
        ({"group": b"shop"}, "text, not b'shop'"),
        ({"tags": {"shop": 7}}, "text, not 7"),
        ({"tags": {"file": "\udcff"}}, "text, not "),
        ({"value": 3}, "a function, not 3"),
    ],
)
def test_a_metric_that_cannot_be_pushed_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        KafkaMetric(**{"name": "waiting", "group": "shop", "value": lambda: 3} | wrong)


@virtual_time
async def test_a_defect_ends_the_push_and_not_the_client(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fake.subscribe_metrics("", interval_ms=MINUTE)
    async with new_producer(fake) as producer:
        assert producer._core is not None
        producer._core.metrics_push._collect = lambda: 1 / 0  # type: ignore[assignment, return-value]
        await asyncio.sleep(100)
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(1000)
    assert not pushes(fake)
    assert caplog.text.count("pushing metrics failed") == 1
