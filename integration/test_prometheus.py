"""The program of docs/how-to/prometheus.md on real brokers: its page, and ``kafkaclient top``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml

from experiments.dashboard.promql import parse
from experiments.dashboard.scrapes import page_of
from kafkaclient.prometheus import ALERT_RULES, DASHBOARD
from kafkaclient.testing.broker import free_ports
from tests.code_blocks import runs

if TYPE_CHECKING:
    from experiments.dashboard.promql import Page

KAFKACLIENT = [sys.executable, "-c", "from kafkaclient.cli import main; main()"]


def scrape(url: str, deadline: float) -> str:
    """The page, once a broker has answered a Produce request."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - this machine's
                text = answer.read().decode()
            if "kafkaclient_producer_broker_produce_latency_seconds_count" in text:
                return text
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{url} has no page"
        time.sleep(0.1)


@pytest.mark.timeout(180)
@runs("docs/how-to/prometheus.md", having="while True")
def test_the_page_of_a_real_producer(kafka_cluster, topic, block) -> None:
    """Every metric and label of the dashboard and the alerts is in a real scrape."""
    (port,) = free_ports(1)
    replaced = {
        "9000": str(port),
        "localhost:9092": kafka_cluster.bootstrap,
        'end("orders"': f'end("{topic}"',
    }
    program = subprocess.Popen([sys.executable, "-c", block.text(replaced)])
    try:
        _check(f"127.0.0.1:{port}", topic)
    finally:
        program.kill()
        program.wait()


def _check(address: str, topic: str) -> None:
    text = scrape(f"http://{address}/metrics", time.monotonic() + 60)
    page: Page = page_of(text)
    assert (
        frozenset({("client_id", "orders"), ("topic", topic)})
        in (page["kafkaclient_producer_topic_records_sent_total"])
    )
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    rules = yaml.safe_load(ALERT_RULES.read_text("utf-8"))["groups"][0]["rules"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in expressions + [rule["expr"] for rule in rules]:
        for selector in parse(expression).selectors:
            assert page[selector.metric], expression
            for labels in page[selector.metric]:
                assert selector.labels <= dict(labels).keys(), expression
    command = [*KAFKACLIENT, "top", address, "--once", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (producer,) = json.loads(shown.stdout)["producers"]
    assert producer["client_id"] == "orders"
    assert producer["up"] is True
    assert sum(broker["share"] for broker in producer["brokers"]) == pytest.approx(1)
    assert any(broker["p99_s"] for broker in producer["brokers"])
