"""examples/service.py on a fake cluster, and the pages that show it or parts of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest
from fastapi.testclient import TestClient

from examples import service
from kafkaclient import Consumer, Producer
from kafkaclient.testing import FakeCluster
from tests.code_blocks import Block, runs

INVALID_RECORD = 87
POLICY_VIOLATION = 44


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster for the service's clients."""
    fake = FakeCluster(1)
    for topic in ("orders", "clicks"):
        fake.create_topic(topic, 1, 1)
    monkeypatch.setattr(service, "Producer", partial(Producer, dialer=fake))
    monkeypatch.setattr(service, "Consumer", partial(Consumer, dialer=fake))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", fake.bootstrap)
    return fake


def _values(fake: FakeCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in fake.log(topic, 0)]


def _until(client: TestClient, path: str, words: str) -> None:
    deadline = monotonic() + 30
    while words not in client.get(path).text:
        assert monotonic() < deadline, f"{words!r} never stood on {path}"


def test_an_order_is_written_before_its_answer_and_confirmed_after_it(fake: FakeCluster) -> None:
    before = f"orders_confirmed_total {service.CONFIRMED._value.get() + 1}"
    with TestClient(service.app) as client:
        answer = client.post("/orders?customer=ann", content=b"7")
        assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": 0})
        assert _values(fake, "orders") == [(b"ann", b"7")]
        _until(client, "/metrics", before)
        answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        page = answer.text
        assert 'kafkaclient_producer_up{client_id="shop"} 1.0' in page
        assert 'kafkaclient_consumer_up{client_id="shop"} 1.0' in page


def test_it_is_not_ready_while_no_broker_answers(fake: FakeCluster) -> None:
    with TestClient(service.app) as client:
        _until(client, "/ready", "healthy")
        assert client.get("/ready").status_code == 200
        fake.stop_broker(0)
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert "no leader of the topics in use answers" in ready.text
        fake.start_broker(0)
        _until(client, "/ready", "healthy")


def test_it_is_not_ready_once_orders_are_not_confirmed_any_more(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "CONFIRMED", None)
    with TestClient(service.app) as client:
        assert client.post("/orders", content=b"7").status_code == 201
        _until(client, "/ready", "orders are not confirmed any more")
        assert client.get("/ready").status_code == 503
    assert "AttributeError" in caplog.text
    assert fake.committed_offset("confirmations", "orders", 0) in (None, 0)


def test_errors_are_answers(fake: FakeCluster) -> None:
    with TestClient(service.app) as client:
        assert client.post("/clicks", content=b"page").status_code == 202
        assert client.post("/orders", content=bytes(2_000_000)).status_code == 400
        assert client.post("/clicks", content=bytes(2_000_000)).status_code == 400
        for code, status in ((INVALID_RECORD, 400), (POLICY_VIOLATION, 500)):
            fake.fail_produce("orders", 0, code)
            assert client.post("/orders", content=b"7").status_code == status
    assert _values(fake, "clicks") == [(None, b"page")]  # the end of the service has sent it


@runs("docs/get-started/first-deployment.md", having="FastAPI")
def test_the_first_deployment_is_the_example(block: Block) -> None:
    assert block.text() == Path(service.__file__).read_text()


@runs("docs/how-to/*.md", having="service.py\n", together=True, name="blocks")
def test_the_other_pages_show_parts_of_it(blocks: list[Block]) -> None:
    whole = Path(service.__file__).read_text()
    for block in blocks:
        assert block.text() in whole, f"{block} is not in examples/service.py"


@runs("docs/how-to/web.md", having="serve_metrics")
def test_each_worker_serves_its_metrics_on_a_port_of_its_own(block: Block) -> None:
    names = block.run()
    workers = [names["serve_metrics"]() for _ in range(2)]
    try:
        ports = {server.server_port for server, _ in workers}
        assert len(ports) == 2
        for port in ports:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                assert b"python_info" in page.read()
    finally:
        for server, thread in workers:
            server.shutdown()
            server.server_close()
            thread.join()
