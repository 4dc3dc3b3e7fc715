"""docs/how-to/web.md and examples/fastapi_service.py on a fake cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from fastapi.testclient import TestClient

from examples import fastapi_service
from kafkaclient import Producer
from kafkaclient.testing import FakeCluster
from tests.code_blocks import Block, runs

if TYPE_CHECKING:
    import pytest

POLICY_VIOLATION = 44


def _cluster() -> FakeCluster:
    fake = FakeCluster(1)
    for topic in ("flights", "orders", "clicks"):
        fake.create_topic(topic, 1, 1)
    return fake


def _values(fake: FakeCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in fake.log(topic, 0)]


def _service(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(fastapi_service, "Producer", partial(Producer, dialer=fake))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", fake.bootstrap)
    return fastapi_service.app


def _check_answers(app: Any, fake: FakeCluster, topic: str) -> None:
    """An order is written before its answer. The service is not ready while no broker answers."""
    with TestClient(app) as client:
        answer = client.post("/orders?customer=ann", content=b"7")
        assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": 0})
        assert _values(fake, topic) == [(b"ann", b"7")]
        ready = client.get("/ready")
        assert (ready.status_code, ready.text) == (200, "healthy")
        fake.stop_broker(0)
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert "no leader of the topics in use answers" in ready.text
        fake.start_broker(0)
        assert client.get("/ready").status_code == 200


@runs("docs/get-started/first-deployment.md", having="FastAPI")
def test_the_first_deployment(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _cluster()
    monkeypatch.setenv("KAFKA_BOOTSTRAP", fake.bootstrap)
    app = block.run({"__name__": "main"}, dialer=fake)["app"]
    with TestClient(app) as client:
        assert client.post("/orders", content=b"7").status_code == 201
        for code, status in ((87, 400), (POLICY_VIOLATION, 500)):
            fake.fail_produce("orders", 0, code)
            assert client.post("/orders", content=b"7").status_code == status
        assert client.get("/ready").text == "healthy"


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _cluster()
    _check_answers(_service(fake, monkeypatch), fake, "orders")


def test_errors_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _cluster()
    with TestClient(_service(fake, monkeypatch)) as client:
        assert client.post("/clicks", content=b"page").status_code == 202
        assert client.post("/orders", content=bytes(2_000_000)).status_code == 400
        assert client.post("/clicks", content=bytes(2_000_000)).status_code == 400
        fake.fail_produce("orders", 0, POLICY_VIOLATION)
        assert client.post("/orders", content=b"7").status_code == 500
    assert _values(fake, "clicks") == [(None, b"page")]  # the end of the service has sent it


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
