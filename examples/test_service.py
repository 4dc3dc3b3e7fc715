"""Tests of service.py on a cluster in memory: `pytest examples/test_service.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi.testclient import TestClient

from kafkaclient.testing.fake import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.testing import FakeCluster

sys.path.append(str(Path(__file__).parent))
import service


@pytest.fixture
def client(fake_kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", fake_kafka.bootstrap)
    with TestClient(service.app) as client:
        yield client


def test_an_order_is_answered_when_it_is_written(
    client: TestClient, fake_kafka: FakeCluster
) -> None:
    answer = client.post("/orders?customer=ann", content=b"7")
    assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": 0})
    (record,) = fake_kafka.log("orders", 0)
    assert (record.key, record.value) == (b"ann", b"7")


def test_the_error_decides_whether_an_order_can_be_repeated(
    client: TestClient, fake_kafka: FakeCluster
) -> None:
    fake_kafka.fail_produce("orders", 0, ErrorCode.INVALID_RECORD)
    assert client.post("/orders", content=b"7").status_code == 400
    fake_kafka.fail_produce("orders", 0, 29)  # TOPIC_AUTHORIZATION_FAILED
    assert client.post("/orders", content=b"7").status_code == 500
    assert client.post("/orders", content=b"7").status_code == 201


def test_it_is_not_ready_without_brokers(client: TestClient, fake_kafka: FakeCluster) -> None:
    assert client.get("/ready").status_code == 200
    for broker in range(3):
        fake_kafka.stop_broker(broker)
    assert client.get("/ready").status_code == 503


def test_clicks_are_delivered_when_the_service_ends(
    fake_kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", fake_kafka.bootstrap)
    with TestClient(service.app) as client:
        assert client.post("/clicks", content=b"page").status_code == 202
    assert [record.value for record in fake_kafka.log("clicks", 0)] == [b"page"]
