"""docs/how-to/prometheus.md against the code: its table, and the recipe for a web service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import prometheus_client

from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "prometheus.md").read_text("utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


async def test_the_recipe_for_a_web_service() -> None:
    fake = FakeCluster(1)
    (code,) = [snippet for snippet in SNIPPETS if "FastAPI" in snippet]
    names: dict[str, Any] = {"fake": fake}
    code = code.replace('"localhost:9092"', "fake.bootstrap, dialer=fake")
    exec(compile(code, "docs/how-to/prometheus.md", "exec"), names)  # noqa: S102 - our own page
    app = names["app"]
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://web") as client,
    ):
        await app.state.producer.send_and_wait("clicks", b"v")
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'kafkaclient_producer_records_sent_total{client_id="web"} 1.0' in answer.text


def test_the_recipe_for_a_sync_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, pages = FakeCluster(1), []
    (code,) = [snippet for snippet in SNIPPETS if "SyncProducer" in snippet]
    monkeypatch.setattr(prometheus_client, "start_http_server", lambda *to: pages.append(to))
    code = code.replace('"localhost:9092"', "fake.bootstrap, dialer=fake")
    names: dict[str, Any] = {"fake": fake}
    exec(compile(code, "docs/how-to/prometheus.md", "exec"), names)  # noqa: S102 - our own page
    assert pages == [(9000, "127.0.0.1")]
    page = prometheus_client.generate_latest().decode()
    assert 'kafkaclient_producer_records_sent_total{client_id="jobs"} 1.0' in page
