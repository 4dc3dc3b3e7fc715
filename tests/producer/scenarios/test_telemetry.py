"""telemetry=DIR on whole producers: every batch that had an outcome has its row, with its facts."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.producer.producer import Producer
from kafkaclient.telemetry import decode, files, read, started_at
from kafkaclient.testing.clock import run_virtual, virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, ErrorCode, FakeCluster, delay
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.producer.support import StartProducer


async def load(producer: Any, count: int, pause: float = 0.001, **options: Any) -> list[Any]:
    """Send at a steady rate; what each record ended with."""
    deliveries = []
    for _ in range(count):
        deliveries.append(await producer.send("t", bytes(100), **options))
        await asyncio.sleep(pause)
    return await asyncio.gather(*deliveries, return_exceptions=True)


def rows(directory: Path) -> list[dict[str, Any]]:
    return read(directory).to_pylist()


# --- facts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "bound_by"),
    [
        ({"partitioner": "late"}, "late"),
        ({"partitioner": "late", "adaptive_partitioning_enable": False}, "rotation"),
        ({"partitioner": "kip794"}, "append"),
    ],
)
@virtual_time
async def test_every_batch_has_a_row(
    options: dict[str, Any], bound_by: str, producing: StartProducer, tmp_path: Path
) -> None:
    fake = one_topic(round_trip_s=0.001)
    fake.delay_produce(0, 0.02)
    async with producing(fake, telemetry=str(tmp_path), **options) as producer:
        await asyncio.sleep(5)
        await load(producer, 600)
        metrics = producer.metrics().partitions
    table = rows(tmp_path)
    for partition in range(3):
        mine = [row for row in table if row["partition"] == partition]
        assert sum(row["records"] for row in mine) == len(fake.log("t", partition))
        assert len(mine) == len(fake.batches("t", partition))
        assert len(mine) == metrics[TopicPartition("t", partition)]["batch-bound-total"]
        assert (
            sum(row["bytes"] for row in mine)
            == metrics[TopicPartition("t", partition)]["byte-bound-total"]
        )
        assert {row["broker"] for row in mine} == {fake.leader("t", partition)}
    for row in table:
        assert 5.0 <= row["created_s"] <= row["bound_s"] <= row["sent_s"]
        assert 0.0009 <= row["acknowledged_s"] - row["sent_s"] <= 0.2
        assert (row["topic"], row["client_id"]) == ("t", "kafkaclient")
        assert (row["attempts"], row["bound_by"], row["error"]) == (1, bound_by, None)
        assert 0 <= row["in_flight"] <= 5
        assert 1 <= row["window"] <= 5
        assert bound_by != "late" or row["in_flight"] <= row["window"]
    if bound_by == "late":
        assert all(row["bound_s"] == row["sent_s"] for row in table)
        assert all(row["in_flight"] < row["window"] for row in table)
    if bound_by == "append":
        assert all(row["created_s"] == row["bound_s"] for row in table)


@virtual_time
async def test_the_files_tell_settings_and_the_wall_clock(
    producing: StartProducer, tmp_path: Path
) -> None:
    fake = one_topic(round_trip_s=0.001)
    options = {"linger_ms": 7, "client_id": "me", "telemetry": tmp_path}
    loop = asyncio.get_running_loop()
    zero = 1767323045.6 - loop.time()
    async with producing(fake, wall_clock=lambda: zero + loop.time(), **options) as producer:
        await load(producer, 3)
    metadata = {k.decode(): v.decode() for k, v in read(tmp_path).schema.metadata.items()}
    assert metadata["kafkaclient.linger.ms"] == "7"
    assert metadata["kafkaclient.batch.size"] == "16384"
    assert metadata["kafkaclient.client.id"] == "me"
    assert metadata["kafkaclient.partitioner"] == producer.config.partitioner
    assert metadata["kafkaclient.version"]
    assert metadata["kafkaclient.telemetry.schema"] == "1"
    assert metadata["kafkaclient.telemetry.sample"] == "1"
    (file,) = files(tmp_path)
    assert started_at(file.path).timestamp() == pytest.approx(1767323045.6)
    folder = tmp_path / "date=2026-01-02" / "hour=03"
    assert file.path == f"{folder}/{file.producer}-000000.parquet"


@virtual_time
async def test_keyed_and_explicit_records_are_bound_when_they_are_appended(
    producing: StartProducer, tmp_path: Path
) -> None:
    async with producing(
        one_topic(round_trip_s=0.001), telemetry=tmp_path, partitioner="late"
    ) as producer:
        await asyncio.gather(
            load(producer, 20, key=b"k"), load(producer, 20, partition=1), load(producer, 20)
        )
        switches = producer.metrics().topics["t"]["partition-switch-total"]
    table = rows(tmp_path)
    assert {row["bound_by"] for row in table} == {"append", "late"}
    late = [row for row in table if row["bound_by"] == "late"]
    assert sum(row["records"] for row in late) == 20
    assert switches <= len(late) - 1


@virtual_time
async def test_what_waits_at_the_decision_is_told(producing: StartProducer, tmp_path: Path) -> None:
    """Batches of one partition behind a stalled broker: each sees those before it."""
    fake = one_topic(1, round_trip_s=0.001)
    options = {"telemetry": tmp_path, "batch_size": 200, "linger_ms": 0, "partitioner": "kip794"}
    async with producing(fake, max_in_flight_requests_per_connection=2, **options) as producer:
        await load(producer, 1)
        fake.stall_broker(fake.leader("t", 0))
        waiting = asyncio.create_task(load(producer, 40))
        await asyncio.sleep(1)
        fake.resume_broker(fake.leader("t", 0))
        await waiting
    table = sorted(rows(tmp_path), key=lambda row: row["created_s"])
    size = table[1]["bytes"]
    seen = [row["queued_batches"] for row in table]
    assert seen[-38:] == list(range(38))
    assert [row["queued_bytes"] for row in table[-38:]] == [size * n for n in range(38)]
    assert max(row["in_flight"] for row in table) == 2


@virtual_time
async def test_records_set_aside_for_the_floor_are_told_from_others(
    producing: StartProducer, tmp_path: Path
) -> None:
    """They wait for their broker, and go elsewhere when it falls out of order."""
    fake = one_topic(round_trip_s=0.001)
    fake.delay_produce(0, 0.02)
    slow = next(partition for partition in range(3) if fake.leader("t", partition) == 0)
    options = {"partitioner_share_floor": 0.5, "linger_ms": 0, "batch_size": 300}
    async with producing(fake, telemetry=tmp_path, partitioner="late", **options) as producer:
        await load(producer, 2000)
        fake.stall_broker(0)
        waiting = asyncio.create_task(load(producer, 500))
        await asyncio.sleep(3)
        fake.resume_broker(0)
        await waiting
    table = rows(tmp_path)
    floor = [row for row in table if row["bound_by"] == "floor"]
    assert floor
    assert {row["partition"] for row in floor} == {slow}
    assert all(row["created_s"] <= row["bound_s"] <= row["sent_s"] for row in floor)
    assert any(row["bound_s"] < row["sent_s"] for row in floor)
    assert {row["bound_by"] for row in table} == {"floor", "late"}
    assert all(row["partition"] >= 0 and row["error"] is None for row in table)


# --- what can go wrong ---------------------------------------------------------------------------


@virtual_time
async def test_a_retry_keeps_the_first_departure(producing: StartProducer, tmp_path: Path) -> None:
    fake = one_topic(1, round_trip_s=0.001)
    first = fake.leader("t", 0)
    async with producing(fake, telemetry=tmp_path) as producer:
        fake.fail_produce("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
        fake.move_leader("t", 0, (first + 1) % 3)
        await load(producer, 1)
    (row,) = rows(tmp_path)
    assert row["attempts"] == 2
    assert row["acknowledged_s"] - row["sent_s"] > 0.001
    assert row["error"] is None


@virtual_time
async def test_an_expired_batch_is_told_with_its_error(
    producing: StartProducer, tmp_path: Path
) -> None:
    fake = one_topic(1, round_trip_s=0.001)
    options = {"delivery_timeout_ms": 1000, "request_timeout_ms": 900, "telemetry": tmp_path}
    async with producing(fake, **options) as producer:
        fake.control(ApiKey.PRODUCE, delay(30.0), keep=True)
        (error,) = await load(producer, 1)
        await asyncio.sleep(60)
    (row,) = rows(tmp_path)
    assert row["error"] == type(error).__name__ == "DeliveryTimeoutError"
    assert row["sent_s"] is not None
    assert row["acknowledged_s"] is None
    assert row["done_s"] - row["created_s"] == pytest.approx(1.0, abs=0.1), "delivery.timeout.ms"


@virtual_time
async def test_a_batch_that_was_never_bound_has_no_decision(
    producing: StartProducer, tmp_path: Path
) -> None:
    fake = one_topic(3, round_trip_s=0.001)
    options = {"delivery_timeout_ms": 1000, "request_timeout_ms": 900, "telemetry": tmp_path}
    async with producing(fake, partitioner="late", **options) as producer:
        await load(producer, 1)
        for node in range(3):
            fake.stop_broker(node, elect=False)
        await load(producer, 1)
    _, row = rows(tmp_path)
    assert (row["partition"], row["broker"], row["attempts"], row["records"]) == (-1, -1, 0, 1)
    facts = ("bound_s", "sent_s", "acknowledged_s", "queued_batches", "queued_bytes", "in_flight")
    assert all(row[fact] is None for fact in (*facts, "window", "bound_by"))
    assert row["error"] == "DeliveryTimeoutError"


@virtual_time
async def test_a_split_batch_is_told_by_its_parts(producing: StartProducer, tmp_path: Path) -> None:
    fake = one_topic(3, max_message_bytes=700, round_trip_s=0.001)
    async with producing(fake, telemetry=tmp_path, partitioner="late", linger_ms=50) as producer:
        deliveries = [producer.send_nowait("t", bytes(100)) for _ in range(20)]
        await asyncio.gather(*deliveries)
        metrics = producer.metrics().producer
    table = rows(tmp_path)
    assert metrics["batch-split-total"] >= 3
    assert sum(row["records"] for row in table) == 20
    assert all(row["bytes"] <= 700 for row in table)
    assert len({(row["created_s"], row["sent_s"]) for row in table}) == 1, "the parent's times"
    assert len(table) == sum(len(fake.batches("t", partition)) for partition in range(3))


@virtual_time
async def test_without_acknowledgements_there_is_no_time_of_them(
    producing: StartProducer, tmp_path: Path
) -> None:
    async with producing(one_topic(round_trip_s=0.001), telemetry=tmp_path, acks=0) as producer:
        await load(producer, 10)
    table = rows(tmp_path)
    assert {(row["acknowledged_s"], row["error"]) for row in table} == {(None, None)}
    assert all(row["done_s"] >= row["sent_s"] for row in table)


@virtual_time
async def test_stop_writes_what_it_gave_up(producing: StartProducer, tmp_path: Path) -> None:
    fake = one_topic(round_trip_s=0.001)
    async with producing(fake, telemetry=tmp_path) as producer:
        fake.control(ApiKey.PRODUCE, delay(30.0), keep=True)
        waiting = asyncio.create_task(load(producer, 5))
        await asyncio.sleep(0.1)
        assert await producer.stop(timeout=0.1) == 5
        await waiting
    table = rows(tmp_path)
    assert sum(row["records"] for row in table) == 5
    assert {row["error"] for row in table} == {"ProducerClosedError"}


@virtual_time
async def test_a_recorder_that_fails_disturbs_nobody(
    producing: StartProducer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    fake = one_topic(round_trip_s=0.001)
    async with producing(fake, telemetry=tmp_path / "file") as producer:
        for _ in range(3):
            results = await load(producer, 100)
            assert not any(isinstance(result, Exception) for result in results)
            await asyncio.sleep(30)
    messages = [r.getMessage() for r in caplog.records if "telemetry" in r.getMessage()]
    began, ended = messages
    assert "is not written to" in began
    assert "stopped before" in ended


@virtual_time
async def test_rows_are_written_even_if_the_stop_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = one_topic(round_trip_s=0.001)
    producer = Producer(fake.bootstrap, dialer=fake, telemetry=tmp_path)
    await producer.start()
    await load(producer, 5)
    disconnect = producer._core.disconnect

    async def fail(grace_s: float) -> None:
        await disconnect(grace_s)
        raise OSError("no disconnect")

    monkeypatch.setattr(producer._core, "disconnect", fail)
    with pytest.raises(OSError, match="no disconnect"):
        await producer.stop()
    assert sum(row["records"] for row in rows(tmp_path)) == 5


# --- a topic, a sample, metrics ------------------------------------------------------------------


def messages(fake: FakeCluster, topic: str = "facts") -> list[Any]:
    """The records of the topic."""
    return [record for partition in range(3) for record in fake.log(topic, partition)]


@virtual_time
async def test_a_topic_gets_messages(producing: StartProducer) -> None:
    fake = one_topic(round_trip_s=0.001)
    fake.create_topic("facts", 3)
    async with producing(fake, telemetry="topic:facts", client_id="me") as producer:
        await load(producer, 100)
        await asyncio.sleep(2)
        assert messages(fake), "a second after the first batch"
        metrics = producer.metrics().producer
        assert metrics["telemetry-batches-recorded-total"] > 0
        assert metrics["telemetry-batches-waiting"] == 0
        await load(producer, 100)
    found = messages(fake)
    tables = [decode(message.value) for message in found]
    assert sum(sum(table["records"].to_pylist()) for table in tables) == 200
    assert {topic for table in tables for topic in table["topic"].to_pylist()} == {"t"}
    assert {message.key for message in found} == {b"me"}
    headers = [dict(message.headers) for message in found]
    assert {each["kafkaclient.telemetry.schema"] for each in headers} == {b"1"}
    assert len({each["kafkaclient.telemetry.file"] for each in headers}) == len(found)
    assert tables[0].schema.metadata[b"kafkaclient.linger.ms"] == b"5"


@virtual_time
async def test_messages_fit_into_a_topic_with_a_limit(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    fake = one_topic(round_trip_s=0.001)
    fake.create_topic("facts", 3, max_message_bytes=8000)
    async with producing(fake, telemetry="topic:facts", batch_size=1, linger_ms=0) as producer:
        await load(producer, 500)
    found = messages(fake)
    assert len(found) > 1
    names = {dict(message.headers)["kafkaclient.telemetry.file"] for message in found}
    assert len(names) == len(found)
    assert sum(sum(decode(m.value)["records"].to_pylist()) for m in found) == 500
    assert not caplog.records


@virtual_time
async def test_telemetry_is_no_part_of_a_transaction(transacting: StartProducer) -> None:
    fake = one_topic(round_trip_s=0.001)
    fake.create_topic("facts", 3)
    async with transacting(fake, telemetry="topic:facts") as producer:
        with suppress(RuntimeError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"1")
                raise RuntimeError
    (message,) = messages(fake)
    assert decode(message.value)["records"].to_pylist() == [1]


@virtual_time
async def test_an_outage_of_the_cluster_leaves_a_gap_at_most(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    fake = one_topic(round_trip_s=0.001)
    fake.create_topic("facts", 3)
    async with producing(fake, telemetry="topic:facts", delivery_timeout_ms=35_000) as producer:
        await load(producer, 100)
        for node in range(3):
            fake.stop_broker(node, elect=False)
        results = await load(producer, 100)
        assert all(isinstance(result, KafkaError) for result in results)
        await asyncio.sleep(600)
        for node in range(3):
            fake.start_broker(node)
        await asyncio.sleep(40)
        await load(producer, 100)
    rows = [row for message in messages(fake) for row in decode(message.value).to_pylist()]
    assert sum(row["records"] for row in rows if row["error"]) == 100
    assert sum(row["records"] for row in rows if not row["error"]) == 200
    assert [record.levelname for record in caplog.records if "telemetry" in record.name] == [
        "ERROR",
        "WARNING",
    ]


@virtual_time
async def test_a_sample_costs_no_more_than_its_share(
    producing: StartProducer, tmp_path: Path
) -> None:
    fake = one_topic(round_trip_s=0.001)
    options = {"telemetry": tmp_path, "telemetry_sample": 0.25, "linger_ms": 0}
    async with producing(fake, **options) as producer:
        await load(producer, 2000)
    table = read(tmp_path)
    assert table.schema.metadata[b"kafkaclient.telemetry.sample"] == b"0.25"
    assert 300 < table.num_rows < 700


@virtual_time
async def test_exclusions_are_told_with_the_next_file(
    producing: StartProducer, tmp_path: Path
) -> None:
    fake = one_topic(round_trip_s=0.001)
    async with producing(fake, telemetry=tmp_path, partitioner="late") as producer:
        await load(producer, 300)
        fake.stop_broker(0, elect=False)
        await load(producer, 300)
        fake.start_broker(0)
        await asyncio.sleep(10)
        await load(producer, 300)
        metrics = producer.metrics()
    told: Counter[tuple[int, str]] = Counter()
    for file in files(tmp_path):
        metadata = pq.read_schema(file.path).metadata
        for one in json.loads(metadata.get(b"kafkaclient.exclusions", b"[]")):
            told[one["broker"], one["reason"]] += one["times"]
    counted = {
        (broker, reason): times
        for broker, reasons in metrics.exclusions.items()
        for reason, times in reasons.items()
        if times
    }
    assert told == counted
    assert told[0, "connection"]


# --- any faults ----------------------------------------------------------------------------------


FAULTS = st.sampled_from(["not leader", "too large", "invalid", "cut off", "late", "none"])


@given(
    faults=st.lists(FAULTS, max_size=8),
    partitioner=st.sampled_from(["late", "kip794"]),
    keyed=st.booleans(),
)
def test_rows_and_outcomes_agree(faults: list[str], partitioner: str, keyed: bool) -> None:
    """Each record is in one row; those of rows without an error are those acknowledged."""

    async def run(directory: str) -> tuple[int, int]:
        fake = one_topic(round_trip_s=0.001)
        options = {"partitioner": partitioner, "batch_size": 700, "delivery_timeout_ms": 3000}
        producer = Producer(
            fake.bootstrap, dialer=fake, telemetry=directory, request_timeout_ms=1000, **options
        )
        acknowledged = failed = 0
        async with producer:
            for number, fault in enumerate([*faults, "none"]):
                inject(fake, fault, number % 3)
                for result in await load(producer, 15, key=b"k" if keyed else None):
                    acknowledged += not isinstance(result, Exception)
                    failed += isinstance(result, KafkaError)
        return acknowledged, failed

    with TemporaryDirectory() as directory:
        acknowledged, failed = run_virtual(run(directory))
        table = read(directory).to_pylist()
    assert sum(row["records"] for row in table if row["error"] is None) == acknowledged
    assert sum(row["records"] for row in table if row["error"] is not None) == failed
    assert all((row["acknowledged_s"] is None) == (row["error"] is not None) for row in table)


def inject(fake: FakeCluster, fault: str, partition: int) -> None:
    codes = {
        "not leader": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "too large": ErrorCode.MESSAGE_TOO_LARGE,
        "invalid": ErrorCode.INVALID_RECORD,
    }
    if fault in codes:
        fake.fail_produce("t", partition, codes[fault], times=2)
    elif fault == "cut off":
        fake.control(ApiKey.PRODUCE, CLOSE_ANSWER)
    elif fault == "late":
        fake.control(ApiKey.PRODUCE, delay(5.0))


# --- on and off ----------------------------------------------------------------------------------


def test_off_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, kafkaclient; kafkaclient.Producer('h:1', linger_ms=1); "
        "sys.exit(any(name.split('.')[0] == 'pyarrow' or name.startswith('kafkaclient.telemetry')"
        " or name == 'kafkaclient.producer.observability.batch_telemetry' for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_pyarrow_it_is_refused_at_once() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from kafkaclient.errors import ConfigError\n"
        "from kafkaclient.producer.producer import Producer\n"
        "try: Producer('h:1', telemetry='dir')\n"
        "except ConfigError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert b"kafkaclient[telemetry]" in run.stdout


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not accepted: give a path"):
        Producer("h:1", telemetry="")
