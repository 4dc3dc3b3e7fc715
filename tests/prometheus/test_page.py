"""docs/how-to/prometheus.md on a fake cluster: the recipe for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import prometheus_client

from kafkaclient.testing.fake import FakeCluster
from tests.code_blocks import Block, runs

if TYPE_CHECKING:
    import pytest


@runs("docs/how-to/prometheus.md", having="SyncProducer")
def test_the_recipe_for_a_sync_producer(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[tuple[object, ...]] = []
    monkeypatch.setattr(prometheus_client, "start_http_server", lambda *to: pages.append(to))
    block.run(dialer=FakeCluster(1))
    assert pages == [(9000, "127.0.0.1")]
    page = prometheus_client.generate_latest().decode()
    assert 'kafkaclient_producer_records_sent_total{client_id="jobs"} 1.0' in page
