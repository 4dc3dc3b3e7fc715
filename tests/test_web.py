"""docs/how-to/web.md and examples/fastapi_service.py on a fake cluster."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from fastapi.testclient import TestClient

import kafkaclient
from examples import fastapi_service
from kafkaclient import Producer
from kafkaclient.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "web.md").read_text("utf-8")
RECIPE, PORTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
POLICY_VIOLATION = 44


def _cluster() -> FakeCluster:
    fake = FakeCluster(1)
    for topic in ("flights", "orders", "clicks"):
        fake.create_topic(topic, 1, 1)
    return fake


def _values(fake: FakeCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in fake.log(topic, 0)]


def _recipe(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = partial(Producer, dialer=fake)
    monkeypatch.setattr(kafkaclient, "Producer", made, raising=False)
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(RECIPE.replace("localhost:9092", fake.bootstrap), names)  # noqa: S102
    return names["app"]


def _service(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(fastapi_service, "Producer", partial(Producer, dialer=fake))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", fake.bootstrap)
    return fastapi_service.app


@pytest.mark.parametrize(("make", "topic"), [(_recipe, "flights"), (_service, "orders")])
def test_an_order_is_written_before_its_answer(
    make: Callable[..., Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = _cluster()
    with TestClient(make(fake, monkeypatch)) as client:
        answer = client.post("/orders?customer=ann", content=b"7")
        assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": 0})
        assert _values(fake, topic) == [(b"ann", b"7")]
        ready = client.get("/ready")
        assert (ready.status_code, ready.text) == (200, "healthy")


@pytest.mark.parametrize("make", [_recipe, _service])
def test_it_is_not_ready_while_no_broker_answers(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = _cluster()
    with TestClient(make(fake, monkeypatch)) as client:
        client.post("/orders?customer=ann", content=b"7")
        fake.stop_broker(0)
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert "no leader of the topics in use answers" in ready.text
        fake.start_broker(0)
        assert client.get("/ready").status_code == 200


def test_errors_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _cluster()
    with TestClient(_service(fake, monkeypatch)) as client:
        assert client.post("/clicks", content=b"page").status_code == 202
        assert client.post("/orders", content=bytes(2_000_000)).status_code == 400
        assert client.post("/clicks", content=bytes(2_000_000)).status_code == 400
        fake.fail_produce("orders", 0, POLICY_VIOLATION)
        assert client.post("/orders", content=b"7").status_code == 503
    assert _values(fake, "clicks") == [(None, b"page")]  # the end of the service has sent it


def test_each_worker_serves_its_metrics_on_a_port_of_its_own() -> None:
    names: dict[str, Any] = {}
    exec(PORTS, names)  # noqa: S102
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
