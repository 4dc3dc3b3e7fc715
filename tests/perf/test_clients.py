from __future__ import annotations

import asyncio
import sys
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError, RecordTooLargeError
from kafkaclient.perf import clients
from kafkaclient.perf.clients import KafkaclientClient, make_client
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.run import Labels, LoadRun, measure
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake.cluster import FakeCluster
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.perf.traffic import KeyValue


def client(fake: FakeCluster, **options: str) -> KafkaclientClient:
    config = {"bootstrap.servers": fake.bootstrap, **options}
    return KafkaclientClient(config, "flights", dialer=fake)


async def measured(
    client: KafkaclientClient, spec: LoadSpec, records: Iterable[KeyValue]
) -> LoadRun:
    load = Load(client, spec, clock=asyncio.get_running_loop().time)
    return await measure(client, load, records, Labels("x", 5))


@virtual_time
async def test_a_measured_run_through_the_producer() -> None:
    fake = FakeCluster(brokers=3, partitions=6)
    ours = client(fake)
    assert ours.traffic() is None
    run = await measured(
        ours, LoadSpec(2000, rate=1000), cycle([(b"UA", b"v" * 98), (None, b"v" * 100)])
    )

    assert (run.record.client, run.record.setting, run.record.linger_ms) == ("kafkaclient", "x", 5)
    assert (run.record.records, run.record.errors, run.record.rate) == (2000, 0, 1000)
    assert run.outcome.summary.nbytes == 200_000
    logs = [fake.log("flights", partition) for partition in range(6)]
    assert sum(map(len, logs)) == 2000
    assert run.traffic is not None
    assert [broker.node_id for broker in run.traffic.brokers] == [0, 1, 2]
    assert sum(run.traffic.bytes_per_broker) > 200_000
    assert sum(run.record.requests_per_broker or ()) > 0
    by_partition = {p.partition: p.records_sent for p in run.traffic.partitions}
    assert by_partition == {p: len(log) for p, log in enumerate(logs) if log}
    assert sum(p.batches_sent or 0 for p in run.traffic.partitions) == sum(
        len(fake.batches("flights", partition)) for partition in range(6)
    )
    assert run.traffic.skew is not None
    assert 1.0 <= run.traffic.skew <= 6.0
    used = [broker for broker in run.traffic.brokers if broker.requests_sent]
    assert all(broker.latency_s is not None and broker.exclusions == 0 for broker in used)
    assert "record-send-total" in ours.metrics().producer


@virtual_time
async def test_a_load_in_transactions() -> None:
    fake = FakeCluster(brokers=3, partitions=6)
    ours = client(fake, **{"transactional.id": "perf"})
    spec = LoadSpec(2000, rate=1000, transaction_s=0.5)
    run = await measured(ours, spec, cycle([(None, b"v" * 100)]))
    assert (run.record.records, run.record.errors) == (2000, 0)
    assert sum(len(fake.committed_log("flights", partition)) for partition in range(6)) == 2000
    assert len(fake.requests_of(ApiKey.END_TXN)) == 4


@virtual_time
async def test_brokers_that_got_nothing_have_their_place() -> None:
    ours = client(FakeCluster(brokers=3, partitions=1))
    run = await measured(ours, LoadSpec(10), cycle([(None, b"v")]))
    assert len(run.record.bytes_per_broker or ()) == 3


@virtual_time
async def test_a_full_buffer_makes_the_load_wait_and_loses_nothing() -> None:
    fake = FakeCluster(brokers=1, partitions=1)
    fake.round_trip_s = 0.05
    ours = client(fake, **{"buffer.memory": "40000"})
    run = await measured(ours, LoadSpec(2000), cycle([(None, b"v" * 100)]))
    assert (run.record.records, run.record.errors) == (2000, 0)


@virtual_time
async def test_a_record_refused_at_once_counts_as_failed() -> None:
    ours = client(FakeCluster(), **{"max.request.size": "1000"})
    run = await measured(ours, LoadSpec(10), cycle([(None, b"v" * 2000), (None, b"v")]))
    assert (run.record.records, run.record.errors) == (5, 5)
    assert next(iter(run.outcome.errors)).startswith(RecordTooLargeError.__name__)


@virtual_time
async def test_records_of_a_batch_that_was_split_count_once_each() -> None:
    fake = FakeCluster(brokers=1, partitions=1)
    fake.create_topic("flights", 1, max_message_bytes=1024)
    ours = client(fake, **{"linger.ms": "1000", "batch.size": "1000000"})
    values = [b"%0100d" % number for number in range(600)]
    values[300] = bytes(2000)
    run = await measured(ours, LoadSpec(600), [(None, value) for value in values])
    assert (run.record.records, run.record.errors) == (599, 1)
    assert next(iter(run.outcome.errors)).startswith(RecordTooLargeError.__name__)
    assert len(fake.log("flights", 0)) == 599
    assert run.outcome.summary.nbytes == pytest.approx(60_000, rel=0.04)


@virtual_time
async def test_records_that_the_broker_names_fail_alone(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster(brokers=1, partitions=1)
    fake.create_topic("flights", 1)
    fake.fail_produce("flights", 0, 87, record_errors=[(3, "no schema")], message="bad")
    ours = client(fake)
    run = await measured(ours, LoadSpec(20), cycle([(None, b"v")]))
    assert (run.record.records, run.record.errors) == (19, 1)
    assert "no schema" in next(iter(run.outcome.errors))
    assert not caplog.records, "the load counts its failures itself"


@virtual_time
async def test_a_topic_that_never_appears_fails_every_record() -> None:
    fake = FakeCluster(brokers=1, auto_create_topics=False)
    ours = client(fake, **{"max.block.ms": "500"})
    run = await measured(ours, LoadSpec(10), cycle([(None, b"v")]))
    assert (run.record.records, run.record.errors) == (0, 10)


@virtual_time
async def test_a_run_that_fails_stops_its_client() -> None:
    ours = client(FakeCluster())

    def records():  # type: ignore[no-untyped-def]
        yield (None, b"v")
        raise RuntimeError("no more records")

    with pytest.raises(RuntimeError, match="no more records"):
        await measured(ours, LoadSpec(10), records())
    assert len(asyncio.all_tasks()) == 1


def test_other_producers_are_driven_from_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The command ``kafkaclient`` starts without the clone on the path.
    root = Path(clients.__file__).parents[2]
    monkeypatch.setattr(sys, "path", [each for each in sys.path if Path(each).resolve() != root])
    monkeypatch.delitem(sys.modules, "benchmarks.perf_peers", raising=False)
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)
    assert make_client("aiokafka", {"bootstrap.servers": "h:1"}, "t").name == "aiokafka"

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(clients, "import_module", missing)
    with pytest.raises(ConfigError, match="driven from a clone of the repository"):
        make_client("aiokafka", {"bootstrap.servers": "h:1"}, "t")


def test_an_unknown_client_or_option_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="kafkaclient, aiokafka, confluent"):
        make_client("kafka-node", {}, "t")
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        make_client("kafkaclient", {"bootstrap.servers": "h:1", "lingerr.ms": "1"}, "t")
