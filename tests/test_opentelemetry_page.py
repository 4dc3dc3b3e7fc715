"""docs/how-to/opentelemetry.md: its snippets on the fake cluster, its attributes and the code's."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path

from kafkaclient.opentelemetry import KafkaclientInstrumentor
from kafkaclient.testing import FakeCluster
from tests.code_blocks import Block, runs

_ROOT = Path(__file__).parents[1]


@runs("docs/how-to/opentelemetry.md")
def test_the_snippets_trace_their_record(block: Block) -> None:
    fake = FakeCluster()
    fake.create_topic("flights", 3)
    try:
        block.run(dialer=fake, replaced={"await handle(record)": "break"})
    finally:
        if KafkaclientInstrumentor().is_instrumented_by_opentelemetry:
            KafkaclientInstrumentor().uninstrument()
    (record,) = [record for p in range(3) for record in fake.log("flights", p)]
    assert [name for name, _ in record.headers] == ["traceparent"]


def test_the_attributes_of_the_page_are_those_of_the_code() -> None:
    page = (_ROOT / "docs" / "reference" / "opentelemetry.md").read_text("utf-8")
    table = page.partition("## What does a span say?")[2].partition("\n- ")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    told = {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    text = "".join(
        inspect.getsource(import_module(f"kafkaclient.opentelemetry.{module}"))
        for module in ("attributes", "bulk", "consuming")
    )
    names = r'"((?:messaging|server|error)\.[\w.]+|kafkaclient\.\w+_\w+)"'
    metrics = set(re.findall(r"\| `([\w.]+)` \| (?:counter|histogram)", page))
    found = set(re.findall(names, text)) - metrics
    assert told == found


def test_the_entry_point_is_an_instrumentor() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    target = project["entry-points"]["opentelemetry_instrumentor"]["kafkaclient"]
    module, _, name = target.partition(":")
    assert getattr(import_module(module), name) is KafkaclientInstrumentor
