"""Consumers in ``kafkaclient top``: their state read back from a page, and what is drawn of it."""

from __future__ import annotations

import io
import json
import math
from typing import Any

from prometheus_client import CollectorRegistry
from rich.console import Console

from kafkaclient.cli import top
from kafkaclient.cli.consumer_status import PartitionLag, consumer_statuses
from kafkaclient.cli.live_view import LiveView
from kafkaclient.prometheus import ConsumerMetricsCollector
from kafkaclient.testing import MockConsumer
from kafkaclient.testing.clock import virtual_time


def drawn(view: LiveView, width: int = 150) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(view)
    return console.file.getvalue()  # type: ignore[attr-defined]


def values(view: LiveView) -> list[dict[str, Any]]:
    found = [top._consumer_values(each) for each in view.consumers]
    return json.loads(json.dumps(top._finite(found), allow_nan=False))


@virtual_time
async def test_what_a_consumer_does_is_shown() -> None:
    registry, view = CollectorRegistry(), LiveView()
    consumer = MockConsumer(group_id="g", topics=["orders"], partitions=12, client_id="billing\x1b")
    ConsumerMetricsCollector(consumer, registry)
    view.show(registry.collect(), 0.0)
    assert not view.consumers[0].status.up
    assert "not running" in drawn(view)
    for number in range(12):
        for _ in range(number):
            consumer.add_record("orders", b"1", partition=number)
    async with consumer:
        for _ in range(36):
            await consumer.getone()
        view.show(registry.collect(), 10.0)
        (shown,) = view.consumers
        view.show(registry.collect(), 12.0)
        assert view.consumers[0].records_per_s == 0
    status = shown.status
    assert status.up
    assert status.assigned_partitions == 12
    assert status.lag == 30
    assert shown.records_per_s == status.records_consumed / 10 > 0
    assert status.rebalances >= 1
    assert len(status.partitions) == 10
    assert list(status.partitions) == sorted(status.partitions, key=lambda each: -each.lag)
    text = drawn(view)
    assert "lag 30" in text
    assert "billing\N{REPLACEMENT CHARACTER}" in text
    assert f"orders-{status.partitions[0].partition}" in text
    assert "█" in text
    assert "█" not in drawn(view, 40)
    (found,) = values(view)
    assert found["partitions"][0] == status.partitions[0]._asdict()


def test_a_page_with_odd_values() -> None:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    page = """\
kafkaclient_consumer_up{client_id="a"} 1
kafkaclient_consumer_lag_records{client_id="a"} NaN
kafkaclient_consumer_lag_max_records{client_id="a"} +Inf
kafkaclient_consumer_partition_lag_records{client_id="a",topic="t",partition="x"} 3
kafkaclient_consumer_partition_lag_records{client_id="a",topic="t",partition="1"} 3
kafkaclient_consumer_records_consumed_total{client_id="a"} 7
"""
    families = list(text_string_to_metric_families(page))
    (status,) = consumer_statuses(families)
    assert (status.lag, status.lag_max) == (None, None)
    assert status.partitions == (PartitionLag("t", 1, 3.0),)
    view = LiveView()
    for now in (0.0, 0.0, 1.0):
        view.show(families, now)
    assert view.consumers[0].records_per_s == 0
    assert "lag ? (largest ?)" in drawn(view)
    assert not any(math.isnan(each) for each in values(view)[0].values() if type(each) is float)
