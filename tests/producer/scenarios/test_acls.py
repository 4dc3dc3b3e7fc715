"""Missing permissions: named, and as far-reaching as they must be and no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import denied
from kafkaclient.errors import AuthorizationError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer

TOPIC_DENIED, CLUSTER_DENIED = 29, 31


@virtual_time
async def test_a_denied_topic_fails_its_records_and_no_others(producing: StartProducer) -> None:
    fake = one_topic(2, brokers=1)
    fake.fail_produce("t", 0, TOPIC_DENIED)
    async with producing(fake) as producer:
        denied_one = await producer.send("t", b"v", partition=0)
        other = await producer.send("t", b"v", partition=1)
        with pytest.raises(AuthorizationError, match="may not Write on the topic 't'") as caught:
            await denied_one
        await other
        await producer.send_and_wait("t", b"v", partition=0)
    assert caught.value.code == TOPIC_DENIED
    assert not caught.value.retriable
    assert "--operation Write --topic t " in str(caught.value)


@virtual_time
async def test_a_topic_that_may_not_be_seen_is_named_at_once(producing: StartProducer) -> None:
    fake = FakeCluster(1)
    topic = {"error_code": TOPIC_DENIED, "name": "t", "partitions": []}
    fake.create_topic("u", 1)

    def deny(request: Any) -> Any:
        if [asked.name for asked in request.message.topics] != ["t"]:
            return None
        broker = {"node_id": 0, "host": "fake-0", "port": 9092, "rack": None}
        return {
            "brokers": [broker],
            "controller_id": 0,
            "cluster_id": "fake-cluster",
            "topics": [topic],
        }

    async with producing(fake) as producer:
        fake.control(ApiKey.METADATA, deny, keep=True)
        with pytest.raises(AuthorizationError, match="may not Describe on the topic 't'"):
            async with asyncio.timeout(1):
                await producer.send("t", b"v")


@virtual_time
async def test_without_producer_id_records_fail_until_it_is_allowed(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    fake = one_topic(1, brokers=1)
    denial = fake.control(ApiKey.INIT_PRODUCER_ID, CLUSTER_DENIED, keep=True)
    async with producing(fake) as producer:
        for _ in range(3):
            with pytest.raises(AuthorizationError, match="may not IdempotentWrite on the cluster"):
                await producer.send_and_wait("t", b"refused")
        assert caplog.text.count("records fail until there is a producer id") == 1
        denial.remove()
        await producer.send_and_wait("t", b"v")
    assert [record.value for record in fake.log("t", 0)] == [b"v"]


@virtual_time
async def test_a_producer_id_that_is_denied_is_asked_for_at_the_pace_of_retries(
    producing: StartProducer,
) -> None:
    """However much is sent: ten seconds of records are no storm, and without records it rests."""
    fake = one_topic(1, brokers=1)
    fake.control(ApiKey.INIT_PRODUCER_ID, CLUSTER_DENIED, keep=True)
    async with producing(fake) as producer:
        sent = []
        for _ in range(1000):
            sent.append(producer.send_nowait("t", b"v"))
            await asyncio.sleep(0.01)
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert all(isinstance(outcome, AuthorizationError) for outcome in outcomes)
        asked = len(fake.requests_of(ApiKey.INIT_PRODUCER_ID))
        assert 10 <= asked <= 20
        await asyncio.sleep(100)
        assert len(fake.requests_of(ApiKey.INIT_PRODUCER_ID)) <= asked + 2


@virtual_time
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_produce_request_denied_for_the_cluster_is_no_end(
    producing: StartProducer, idempotent: bool
) -> None:
    """As brokers before 3.0 do that took the permission for idempotence back."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, enable_idempotence=idempotent) as producer:
        await producer.send_and_wait("t", b"before")
        fake.fail_produce("t", 0, CLUSTER_DENIED)
        with pytest.raises(AuthorizationError, match="on the cluster"):
            await producer.send_and_wait("t", b"refused")
        await producer.send_and_wait("t", b"after")
    assert [record.value for record in fake.log("t", 0)] == [b"before", b"after"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (29, "may not Write on the topic 'x'; kafka-acls --add"),
        (30, "--operation Read --group x allows it"),
        (31, "--operation IdempotentWrite --cluster allows it"),
        (53, "--operation Write --transactional-id x (or a prefix of it, with"),
    ],
)
def test_what_allows_it_is_told(code: int, words: str) -> None:
    operation = {29: "Write", 30: "Describe", 31: "IdempotentWrite", 53: "Write"}[code]
    assert words in (denied(code, operation, "x", grant="Read" if code == 30 else "") or "")


def test_other_codes_are_no_denials() -> None:
    assert denied(6, "Write", "x") is None
