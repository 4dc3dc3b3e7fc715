"""Short code of README and of pages that have no test module of their own, on a fake cluster."""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.compute
import pytest
from aiohttp import web

import kafkaclient.telemetry
from kafkaclient import Consumer, DeliveryFuture, Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.reader import Reader
from kafkaclient.spark.options import WriteOptions
from kafkaclient.streams import StreamsApp, TaskId, TopologyTest
from kafkaclient.telemetry.format import as_message
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.api import ApiKey
from tests.code_blocks import Block, runs

PRODUCER = 'async with Producer("localhost:9092") as producer:'


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


def values(fake: FakeCluster, topic: str) -> list[bytes | None]:
    return sorted(
        record.value or b"" for partition in range(6) for record in fake.log(topic, partition)
    )


@runs("README.md", together=True, name="blocks")
def test_the_readme(
    blocks: list[Block], fake: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send_and_consume(blocks, fake, capsys)


@runs("docs/index.md", together=True, name="blocks")
def test_the_home_page(
    blocks: list[Block], fake: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send_and_consume(blocks, fake, capsys)


def send_and_consume(
    blocks: list[Block], fake: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.create_topic("flights")
    produce, consume = blocks
    produce.run(dialer=fake)
    assert values(fake, "flights") == [b"on time"]
    assert re.fullmatch(r"written to partition \d at offset 0\n", capsys.readouterr().out)
    printed = "print(record.key, record.value)"
    consume.run(dialer=fake, replaced={printed: f"{printed}\n            break"})
    assert capsys.readouterr().out == "b'UA 1545' b'on time'\n"


@runs("docs/concepts/guarantees.md")
def test_a_delivery_future(block: Block, fake: FakeCluster) -> None:
    names = {"DeliveryFuture": DeliveryFuture, "asyncio": asyncio}
    block.run(names, dialer=fake, within=PRODUCER)
    assert values(fake, "flights") == [b"value"]


@runs("docs/concepts/partition-choice.md")
def test_partitioners(block: Block) -> None:
    block.run()


@runs("docs/concepts/streams.md")
def test_an_assignment(block: Block) -> None:
    found = block.run()
    assignment, tasks = found["assignment"], {TaskId(0, 0), TaskId(0, 1)}
    assert assignment.clients[found["old"]].active == tasks
    (warmup,) = assignment.clients[found["new"]].warmup
    assert warmup in tasks
    assert assignment.probing_rebalance_needed


class Writer:
    """A frame that keeps what Spark's writer is given."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.writeStream = self

    def format(self, name: str) -> Writer:
        assert name == "kafkaclient"
        return self

    def option(self, name: str, value: str) -> Writer:
        self.options[name] = value
        return self

    def start(self) -> None: ...


@runs("docs/concepts/spark-exactly-once.md")
def test_sparks_options(block: Block) -> None:
    frame = Writer()
    block.run({"frame": frame})
    assert WriteOptions.parse(frame.options, "streaming").exactly_once


@runs("docs/how-to/bulk.md", having="send_many")
def test_many_records(block: Block, fake: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    names = {
        "values": [b"1", b"2", b"3"],
        "carriers": [b"UA", b"AA", b"UA"],
        "departures": [1, 2, 3],
        "lines": [b"4", b"5", b"6"],
        "pyarrow": pyarrow,
    }
    block.run(names, dialer=fake)
    assert len(values(fake, "flights")) == 9
    assert "records from offset 0 on" in capsys.readouterr().out


@runs("docs/how-to/bulk.md", having="create_batch")
def test_a_batch(block: Block, fake: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    block.run(dialer=fake, within=PRODUCER)
    assert [record.value for record in fake.log("bookings", 3)] == [b"-10", b"+10"]
    assert capsys.readouterr().out == "0 2\n"


@runs("docs/how-to/nothing-is-consumed.md")
async def test_the_log_of_assigned_partitions(
    block: Block, fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    before = logging.getLogger("kafkaclient").level
    fake.create_topic("single", 1)
    try:
        block.run()
        async with Consumer(
            fake.bootstrap,
            group_id="g",
            topics=["single"],
            dialer=fake,
            auto_offset_reset="earliest",
        ) as consumer:
            fake.add_record("single", b"1")
            assert (await consumer.getone()).value == b"1"
    finally:
        logging.getLogger("kafkaclient").setLevel(before)
    assert "(single-0) added" in caplog.text


@runs("docs/how-to/nothing-is-sent.md")
async def test_the_log_of_connections(
    block: Block, fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    before = logging.getLogger("kafkaclient").level
    try:
        block.run()
        fake.stop_broker(0)
        async with Producer(fake.bootstrap, dialer=fake) as producer:
            await producer.send_and_wait("flights", b"value")
    finally:
        logging.getLogger("kafkaclient").setLevel(before)
    assert "fake-0:9092" in caplog.text


@runs("docs/how-to/operations.md", having="healthy")
async def test_a_readiness_probe(block: Block, fake: FakeCluster) -> None:
    names = block.run({"web": web})
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        names["producer"] = producer
        assert (await names["ready"](None)).status == 200
        for broker in range(3):
            fake.stop_broker(broker)
        assert (await names["ready"](None)).status == 503


@runs("docs/how-to/operations.md", having="Hooks")
@virtual_time
async def test_hooks(block: Block, fake: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for broker in range(3):
        fake.delay_produce(broker, 2.0)
    module = SimpleNamespace(Hooks=kafkaclient.Hooks, Producer=partial(Producer, dialer=fake))
    names = block.run({"kafkaclient": module}, dialer=fake)
    async with names["producer"] as producer:
        await producer.send_and_wait("flights", b"value")
    assert capsys.readouterr().out.startswith("1 records took 2.")


@runs("docs/how-to/operations.md", having="KafkaMetric")
def test_metrics_of_the_application(
    block: Block, fake: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.subscribe_metrics("org.apache.kafka.shop.")
    block.run(dialer=fake)
    assert "instance 00000000-0000-0000-0000-000000000001" in capsys.readouterr().out
    (pushed,) = fake.requests_of(ApiKey.PUSH_TELEMETRY)
    assert b"org.apache.kafka.shop.orders.waiting" in pushed.message.metrics


async def _batch(fake: FakeCluster) -> Any:
    async with (
        Producer(fake.bootstrap, dialer=fake) as producer,
        Reader(fake.bootstrap, dialer=fake) as reader,
    ):
        written = await producer.send_and_wait("flights", b"value")
        async for batch in reader.read({("flights", written.partition): (0, 1)}):
            return batch


@runs("docs/how-to/reader.md", having="send_arrow")
def test_a_batch_of_the_reader(block: Block, fake: FakeCluster) -> None:
    names = {"batch": asyncio.run(_batch(fake)), "pyarrow": pyarrow}
    block.run(names, dialer=fake, within=PRODUCER)
    assert values(fake, "copy") == [b"value"]


@runs("docs/how-to/streams.md", together=True, name="blocks")
def test_streams(blocks: list[Block]) -> None:
    names: dict[str, Any] = {"__name__": __name__}
    for block in blocks:
        names |= block.run(names, replaced={"from words import app\n": ""})
    names["test_words_are_counted"]()
    with TopologyTest(names["app"]) as test:
        test.send("orders", names["Order"]("tea", 3), key="ann")
        test.send("orders", names["Order"]("cake", 4), key="ann")
        assert [record.value for record in test.records(names["totals"])] == [3, 7]


@runs("docs/how-to/streams-failures.md")
def test_dead_letters(block: Block, tmp_path: Path) -> None:
    app = StreamsApp("localhost:9092", application_id="a", state_dir=str(tmp_path))
    block.run({"app": app})
    (processor,) = app.topology.processors
    assert processor.processing_exception_handler.topic == "orders-dead"


@runs("docs/how-to/telemetry.md", together=True, name="blocks")
def test_telemetry(
    blocks: list[Block], fake: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    replaced = {
        '"facts"': repr(str(tmp_path)),
        "    ...": '    await producer.send_and_wait("flights", b"value")',
    }
    for block in blocks:
        names |= block.run(names, dialer=fake, replaced=replaced)
        names["message"] = SimpleNamespace(value=as_message(names["table"]))
    assert names["table"].num_rows == len(names["facts"]) == 1
    assert ProducerConfig.build("h:1", names["options"]).telemetry_sample == 0.1
    assert "deciding" in capsys.readouterr().out


@runs("docs/how-to/transactions.md", having="ledger")
def test_a_transaction(block: Block, fake: FakeCluster) -> None:
    block.run({"invoice": b"1", "entry": b"2", "group": "billing"}, dialer=fake)
    assert b"1" in values(fake, "invoices")
    assert fake.committed_offset("billing", "orders", 0) == 1001


@runs("docs/how-to/transactions.md", having="consumer.batches()")
def test_exactly_once(block: Block, fake: FakeCluster) -> None:
    fake.create_topic("orders", 1)
    fake.create_topic("invoices", 1)

    async def orders() -> None:
        async with Producer(fake.bootstrap, dialer=fake) as producer:
            await producer.send_and_wait("orders", b"1", key=b"k")

    asyncio.run(orders())
    ends = "batch.next_offsets, consumer.group_metadata\n                    )"
    earliest = {'"read_committed",': '"read_committed", auto_offset_reset="earliest",'}
    replaced = {
        ends: f"{ends}\n                break",
        "while True:": "for _ in range(1):",
        **earliest,
    }
    block.run({"invoice": lambda order: b"for " + order}, dialer=fake, replaced=replaced)
    assert [record.value for record in fake.committed_log("invoices", 0)] == [b"for 1"]
    assert fake.committed_offset("billing", "orders", 0) == 1


@runs("docs/how-to/transactions.md", having="prepare_transaction")
def test_a_prepared_transaction(block: Block, fake: FakeCluster) -> None:
    within = PRODUCER.replace('9092"', '9092", transactional_id="t"')
    found = block.run({"invoice": b"1"}, dialer=fake, within=within)
    assert found["prepared"].transactional_id == "t"
    assert b"1" in values(fake, "invoices")


@runs("docs/reference/errors.md")
def test_errors(block: Block, fake: FakeCluster) -> None:
    block.run(dialer=fake, within=PRODUCER)
    assert values(fake, "flights") == [b"value"]


@runs("docs/how-to/prometheus.md", "console", having="python -c")
def test_files_of_the_package(block: Block) -> None:
    (command,) = block.commands
    words = [sys.executable, *shlex.split(command.line)[1:]]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert [Path(name).suffix for name in printed.split()] == [".json", ".json", ".yml"]
    assert all(Path(name).exists() for name in printed.split())
