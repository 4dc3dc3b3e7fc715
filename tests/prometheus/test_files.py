"""The dashboards and the alert rules against a scrape of clients: nothing in them is made up."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from experiments.dashboard.promql import PromqlError, parse
from experiments.dashboard.scrapes import page_of
from kafkaclient import Consumer, Producer
from kafkaclient.prometheus import (
    ALERT_RULES,
    CONSUMER_DASHBOARD,
    DASHBOARD,
    ConsumerMetricsCollector,
    ProducerMetricsCollector,
    StreamsMetricsCollector,
)
from kafkaclient.testing.clock import run_virtual
from tests.producer.support import one_topic
from tests.prometheus.streams_scrape import App

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.dashboard.promql import Page

_ADDED = {"job", "instance"}
"""Labels that Prometheus adds."""


async def _scraped() -> list[str]:
    fake, registry = one_topic(round_trip_s=0.01), CollectorRegistry()
    metrics, app = ProducerMetricsCollector(registry), App()
    running: Any = app
    StreamsMetricsCollector(running, registry)
    pages = []
    consumer = Consumer(
        fake.bootstrap, dialer=fake, group_id="g", topics=["t"], auto_offset_reset="earliest"
    )
    ConsumerMetricsCollector(consumer, registry)
    async with Producer(fake.bootstrap, dialer=fake, hooks=metrics) as producer, consumer:
        for _ in range(2):
            for number in range(30):
                await producer.send_and_wait("t", b"v" * 50, partition=number % 3)
                await consumer.getone()
            await consumer.commit()
            pages.append(generate_latest(registry).decode())
    return pages


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return run_virtual(_scraped())


@pytest.fixture(scope="module")
def pages(texts: list[str]) -> list[tuple[float, Page]]:
    return [(30.0 * place, page_of(text)) for place, text in enumerate(texts)]


def _panels() -> list[dict[str, Any]]:
    files = (DASHBOARD, CONSUMER_DASHBOARD)
    return [each for file in files for each in json.loads(file.read_text("utf-8"))["panels"]]


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERT_RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _expressions() -> Iterator[tuple[str, str]]:
    for panel in _panels():
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for rule in _rules():
        yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(
    "expression", [e for _n, e in _expressions()], ids=[n for n, _e in _expressions()]
)
def test_every_metric_and_label_is_in_a_scrape(
    expression: str, pages: list[tuple[float, Page]]
) -> None:
    query, page = parse(expression), pages[-1][1]
    assert query.selectors
    for selector in query.selectors:
        series = page[selector.metric]
        assert all(selector.labels <= dict(labels).keys() for labels in series)
    known = {n for s in query.selectors for labels in page[s.metric] for n, _value in labels}
    assert query.grouped_by <= known | _ADDED


@pytest.mark.parametrize("panel", _panels(), ids=lambda panel: panel["title"])
def test_every_panel_has_values_and_a_legend(
    panel: dict[str, Any], pages: list[tuple[float, Page]]
) -> None:
    for target in panel["targets"]:
        found = parse(target["expr"]).evaluate(pages)
        assert isinstance(found, dict)
        assert found or panel["title"] == "Excluded brokers"  # none is
        for labels in found:
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= dict(labels).keys()
    assert panel["description"].endswith(".")


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_no_alert_fires_for_healthy_clients(
    rule: dict[str, Any], pages: list[tuple[float, Page]]
) -> None:
    assert parse(rule["expr"]).evaluate(pages) == {}
    assert {"summary", "description"} <= rule["annotations"].keys()
    assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize(
    ("alert", "metric", "value"),
    [
        ("KafkaProducerDown", "up", 0.0),
        ("KafkaProducerRetries", "records_retried_total", 3.0),
        ("KafkaProducerRecordsFail", "records_failed_total", 3.0),
        ("KafkaProducerBufferNearlyFull", "buffer_available_bytes", 1.0),
        ("KafkaProducerEventLoopBlocked", "event_loop_lag_max_seconds", 2.0),
        ("KafkaProducerBrokerExcluded", "broker_excluded", 1.0),
        ("KafkaProducerMetadataStale", "metadata_age_seconds", 1000.0),
        ("KafkaConsumerDown", "kafkaclient_consumer_up", 0.0),
        ("KafkaConsumerLags", "kafkaclient_consumer_lag_records", 20_000.0),
        ("KafkaConsumerTakesNothing", "kafkaclient_consumer_last_poll_age_seconds", 200.0),
        ("KafkaConsumerLeavesItsGroup", "kafkaclient_consumer_memberships_lost_total", 2.0),
        ("KafkaConsumerRebalancesOften", "kafkaclient_consumer_rebalances_total", 30.0),
        ("KafkaConsumerDropsRecords", "kafkaclient_consumer_dropped_records_total", 3.0),
        ("KafkaStreamsDown", "kafkaclient_streams_up", 0.0),
        ("KafkaStreamsRebalancesOften", "kafkaclient_streams_rebalances_total", 30.0),
        ("KafkaStreamsDropsRecords", "kafkaclient_streams_records_dropped_total", 3.0),
        ("KafkaStreamsCommitsFail", "kafkaclient_streams_commits_failed_total", 9.0),
    ],
)
def test_an_alert_fires(
    alert: str, metric: str, value: float, pages: list[tuple[float, Page]]
) -> None:
    (rule,) = [rule for rule in _rules() if rule["alert"] == alert]
    name = metric if metric.startswith("kafkaclient_") else f"kafkaclient_producer_{metric}"
    at, page = pages[-1]
    ill = {**page, name: dict.fromkeys(page[name], value)}
    assert parse(rule["expr"]).evaluate([*pages[:-1], (at, ill)])


def test_a_slow_producer_alerts(texts: list[str]) -> None:
    (rule,) = [rule for rule in _rules() if rule["alert"] == "KafkaProducerSlow"]
    first, last = page_of(texts[0]), page_of(texts[1])
    name = "kafkaclient_producer_delivery_seconds_bucket"
    for labels in last[name]:
        if float(dict(labels)["le"]) < 30:
            last[name][labels] = first[name][labels]  # all later batches took longer
    assert parse(rule["expr"]).evaluate([(0.0, first), (30.0, last)])


def test_the_page_is_one_that_prometheus_reads(texts: list[str]) -> None:
    for family in text_string_to_metric_families(texts[-1]):
        for sample in family.samples:
            assert re.fullmatch(r"[a-z_]+", sample.name)
            assert all(re.fullmatch(r"[a-z_]+", label) for label in sample.labels)


@pytest.mark.parametrize(
    "wrong",
    [
        "sum by (a (up)",
        "rate(up)",
        "rates(up[5m])",
        "up{client_id=orders}",
        "up{client_id='orders'}",
        "up >",
        "up)",
        "up[5m",
        "histogram_quantile(up)",
        "up ! up",
    ],
)
def test_a_wrong_expression_is_refused(wrong: str) -> None:
    with pytest.raises(PromqlError):
        parse(wrong)


def test_what_expressions_mean() -> None:
    """The part of PromQL that stands in for Prometheus, against values worked out by hand."""

    def series(**values: float) -> dict[frozenset[tuple[str, str]], float]:
        return {frozenset({("b", name)}): value for name, value in values.items()}

    before = {"sent_total": series(x=10.0, y=0.0)}
    now = {"sent_total": series(x=70.0, y=30.0), "size": series(x=4.0, y=1.0)}
    pages: list[tuple[float, Page]] = [(0.0, before), (30.0, now)]

    def value(expression: str) -> Any:
        return parse(expression).evaluate(pages)

    assert value("rate(sent_total[1m])") == series(x=2.0, y=1.0)
    assert value("increase(sent_total[1m])") == series(x=120.0, y=60.0)
    assert value("sum by () (rate(sent_total[1m]))") == {frozenset(): 3.0}
    assert value("max by () (size)") == {frozenset(): 4.0}
    assert value('size{b="x"}') == series(x=4.0)
    assert value('size{b=~"x|z"} / size') == series(x=1.0)
    assert value("1 - size / size") == series(x=0.0, y=0.0)
    assert value("size > 2") == series(x=4.0)
    assert value("size and sent_total > 50") == series(x=4.0)
    assert value("topk(1, size)") == series(x=4.0)
    assert value("size / on () group_left () sum by () (size)") == series(x=0.8, y=0.2)
