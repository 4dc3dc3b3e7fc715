"""Tasks that prepare, and a driver that decides, on the fake cluster."""

from __future__ import annotations

import asyncio
import pickle
import time
import uuid
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from kafkaclient import Producer
from kafkaclient.admin import Admin, ConfigResource
from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    CheckpointMismatchError,
    KafkaError,
    ProducerFencedError,
    TransactionLostError,
)
from kafkaclient.spark import exactly_once
from kafkaclient.spark import ledger as ledger_module
from kafkaclient.spark.commit import abort_batch, commit_batch
from kafkaclient.spark.exactly_once import (
    ExactlyOnceWriter,
    Prepared,
    TransactionalTaskWriter,
)
from kafkaclient.spark.ledger import (
    Contents,
    Decision,
    KafkaLedger,
    KafkaTransactions,
    PreparedStatus,
    State,
    make_ledger,
)
from kafkaclient.spark.offsets import end_offsets
from kafkaclient.spark.options import WriteOptions
from kafkaclient.spark.rows import WriteColumns
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import PreparedTransaction
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

COLUMNS = WriteColumns.check(StructType().add("value", StringType()), "t")
QUERY = "app-1f"


@pytest.fixture(params=["v1", "v2"])
def fake(request: pytest.FixtureRequest) -> FakeCluster:
    cluster = FakeCluster(transactions_v2=request.param == "v2")
    cluster.round_trip_s = 0.0
    cluster.create_topic("t", 3)
    cluster.create_topic(QUERY, 1)
    return cluster


@pytest.fixture(autouse=True)
def _no_ledger_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_checked", set())


async def task(fake: FakeCluster, batch: int, values: list[str], name: int = 0) -> Prepared:
    identity = f"{QUERY}-{batch}-{name:032x}"
    producer = Producer(fake.bootstrap, dialer=fake, transactional_id=identity)
    sink = TransactionalTaskWriter(producer, COLUMNS, QUERY)
    await producer.start()
    await producer.begin_transaction()
    try:
        if values:
            await sink.take(pa.record_batch({"value": values}))
        return pickle.loads(pickle.dumps(await sink.finish()))  # noqa: S301 - as Spark does
    finally:
        await producer.stop()


@asynccontextmanager
async def driver(fake: FakeCluster) -> AsyncIterator[tuple[KafkaLedger, KafkaTransactions]]:
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        ledger = KafkaLedger(admin, {"bootstrap_servers": fake.bootstrap}, QUERY, dialer=fake)
        clock = asyncio.get_running_loop().time  # as the fake cluster has it
        try:
            yield ledger, KafkaTransactions(admin, QUERY, clock=clock)
        finally:
            await ledger.close()


def seen(fake: FakeCluster) -> list[bytes | None]:
    return sorted(record.value for n in range(3) for record in fake.committed_log("t", n))


async def test_batches_become_visible_when_they_are_committed(fake) -> None:
    tasks = [
        await task(fake, 0, ["a", "b"]),
        await task(fake, 0, [], 1),
        await task(fake, 0, ["c"], 2),
    ]
    lost = await task(fake, 0, ["a", "b"], 3)  # an attempt whose message was lost
    later = await task(fake, 1, ["d"], 4)
    assert [one.records for one in tasks] == [2, 0, 1]
    assert tasks[1].transaction is None
    assert seen(fake) == []
    prepared = tuple(one.transaction for one in tasks if one.transaction)
    async with driver(fake) as (ledger, transactions):
        await commit_batch(ledger, transactions, Decision(0, prepared))
        assert seen(fake) == [b"a", b"b", b"c"]
        assert await ledger.last() == Decision(0, prepared, done=True)
        wanted = (*prepared, lost.transaction, later.transaction)
        states = await transactions.states(wanted)
        assert [seen.state for seen in states.values()] == [
            *[State.COMMITTED] * 2,
            State.ABORTED,
            State.OPEN,  # its batch is to come
        ]
        await commit_batch(ledger, transactions, Decision(1, (later.transaction,)))
    assert seen(fake) == [b"a", b"b", b"c", b"d"]
    for partition in range(3):
        end = inspect(fake).partition("t", partition).log.end_offset
        assert fake.last_stable_offset("t", partition) == end


async def test_a_driver_that_dies_after_the_decision(fake) -> None:
    """Spark repeats the batch, with other tasks: it is what was decided that is committed."""
    first = [(await task(fake, 0, [value], n)).transaction for n, value in enumerate("ab")]
    async with driver(fake) as (ledger, transactions):
        await ledger.claim()
        await ledger.write(Decision(0, tuple(first)))
        await transactions.end(first[0], commit=True)
    again = await task(fake, 0, ["a", "b"], 2)
    async with driver(fake) as (ledger, transactions):
        await abort_batch(ledger, transactions, 0, tuple(first))  # as after a commit that failed
        await commit_batch(ledger, transactions, Decision(0, (again.transaction,)))
        states = await transactions.states([again.transaction])
        assert [*states.values()] == [PreparedStatus(State.ABORTED)]
    assert seen(fake) == [b"a", b"b"]


async def test_an_old_driver_is_fenced(fake) -> None:
    one = (await task(fake, 0, ["a"])).transaction
    async with driver(fake) as (old, _), driver(fake) as (new, transactions):
        await old.claim()
        await commit_batch(new, transactions, Decision(0, (one,)))
        with pytest.raises(KafkaError) as fenced:
            await old.write(Decision(0, (), done=False))
        assert isinstance(fenced.value, ProducerFencedError) or isinstance(
            fenced.value.__cause__, ProducerFencedError
        )
    assert seen(fake) == [b"a"]


async def test_time_outs(fake) -> None:
    """Before the decision the batch is repeated; after it, as long as nothing is visible."""
    one = (await task(fake, 0, ["a"])).transaction
    fake.expire_transaction(one.transactional_id)
    async with driver(fake) as (ledger, transactions):
        with pytest.raises(TransactionLostError, match="nothing of it is visible"):
            await commit_batch(ledger, transactions, Decision(0, (one,)))
        two = [(await task(fake, 0, [value], n)).transaction for n, value in enumerate("xa", 1)]
        await ledger.claim()
        await ledger.write(Decision(0, tuple(two)))
        fake.expire_transaction(two[0].transactional_id)
        three = (await task(fake, 0, ["a", "x"], 3)).transaction
        await commit_batch(ledger, transactions, Decision(0, (three,)))
        assert seen(fake) == [b"a", b"x"]
        four = [(await task(fake, 1, [value], n)).transaction for n, value in enumerate("bc", 4)]
        await ledger.claim()
        await ledger.write(Decision(1, tuple(four)))
        await transactions.end(four[0], commit=True)
        fake.expire_transaction(four[1].transactional_id)
        with pytest.raises(TransactionLostError, match=four[1].transactional_id):
            await commit_batch(ledger, transactions, Decision(1, ()))
    assert seen(fake) == [b"a", b"b", b"x"]


async def test_a_batch_that_was_decided_with_other_rows(fake) -> None:
    """The tasks' messages have their rows' checksum. Which task wrote a row does not matter."""
    first = [await task(fake, 0, values, n) for n, values in enumerate((["a", "b"], ["c"]))]
    again = [await task(fake, 0, ["a", "b", "c"], 2), await task(fake, 0, [], 3)]
    other = [await task(fake, 0, ["a", "b", "d"], 4)]
    async with driver(fake) as (ledger, transactions):
        await commit_batch(ledger, transactions, decision(0, first))
        await commit_batch(ledger, transactions, decision(0, again))
        with pytest.raises(CheckpointMismatchError, match="decided before, with 3 rows"):
            await commit_batch(ledger, transactions, decision(0, other))
    assert seen(fake) == [b"a", b"b", b"c"]


def decision(batch: int, tasks: list[Prepared]) -> Decision:
    contents = Contents(sum(t.records for t in tasks), sum(t.checksum for t in tasks), "t")
    prepared = tuple(one.transaction for one in tasks if one.transaction)
    return Decision(batch, prepared, contents=contents)


async def test_time_left_with_a_slow_clock(fake) -> None:
    """By the coordinator's word; a clock that is behind it does not make it more."""
    one = (await task(fake, 0, ["a"])).transaction
    began = fake.transaction(one.transactional_id).started_ms / 1000
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        for passed, left in ((0, 1.0), (15, 0.75), (70, 0.0), (-1000, 1.0)):
            now = began + passed
            transactions = KafkaTransactions(admin, QUERY, clock=lambda now=now: now)
            assert (await transactions.states([one]))[one] == PreparedStatus(
                State.OPEN, pytest.approx(left)
            )
        ledger = KafkaLedger(admin, {"bootstrap_servers": fake.bootstrap}, QUERY, dialer=fake)
        transactions = KafkaTransactions(admin, QUERY, clock=lambda: began + 55)
        with pytest.raises(TransactionLostError, match="about to time out, within 10%"):
            await commit_batch(ledger, transactions, Decision(0, (one,)))
        await ledger.close()


async def test_reading_and_aborting_do_not_fence(fake) -> None:
    one, stale = [(await task(fake, 0, ["a"], n)).transaction for n in range(2)]
    async with driver(fake) as (ledger, transactions), driver(fake) as (old, of_old):
        await ledger.claim()
        assert await old.last() is None
        await abort_batch(old, of_old, 0, (stale,))
        await ledger.write(Decision(0, (one,)))
        assert await old.last() == Decision(0, (one,))
        await commit_batch(ledger, transactions, Decision(0, ()))
    assert seen(fake) == [b"a"]


async def test_a_decision_that_is_being_written_protects_its_transactions(fake) -> None:
    one = (await task(fake, 0, ["a"])).transaction
    async with driver(fake) as (ledger, transactions):
        assert not await ledger.is_writing()
        producer = Producer(fake.bootstrap, dialer=fake, transactional_id=QUERY)
        async with producer, producer.transaction():  # of a process that was killed, say
            await producer.send(QUERY, b"x", partition=0)
            await producer.flush()
            assert await ledger.is_writing()
            await abort_batch(ledger, transactions, 0, (one,))
            assert (await transactions.states([one]))[one].state is State.OPEN
            await producer.abort_transaction()
            await producer.begin_transaction()
        await abort_batch(ledger, transactions, 0, (one,))
        assert (await transactions.states([one]))[one].state is State.ABORTED


async def test_a_decision_is_found_though_a_broker_answers_with_an_old_end(
    fake, answer_old_ends
) -> None:
    one, other = [(await task(fake, 0, ["a"], n)).transaction for n in range(2)]
    async with driver(fake) as (ledger, transactions):
        await commit_batch(ledger, transactions, Decision(0, (one,)))
    answer_old_ends(0, answers=99)
    async with driver(fake) as (ledger, transactions):
        await commit_batch(ledger, transactions, Decision(0, (other,)))
    assert seen(fake) == [b"a"]


@pytest.mark.parametrize("tasks", [1, 10_000])
async def test_a_decision_of_any_size_fits(fake, tasks: int) -> None:
    """In records that the topic and max.request.size let through; compaction may have left parts
    of older ones."""
    fake.configure_topic(QUERY, max_message_bytes=64 * 1024)
    prepared = tuple(PreparedTransaction(f"{QUERY}-0-{n:032x}", 10**9 + n, 3) for n in range(tasks))
    contents = Contents(10**9, 2**70, None, '{"t":{"0":5}}')
    large, small = Decision(0, prepared, contents=contents), Decision(1, ())
    async with driver(fake) as (ledger, _):
        for written in (large, small, large):
            await ledger.claim()
            await ledger.write(written)
            assert await ledger.last() == written
    records = [each for each in fake.committed_log(QUERY, 0) if each.value is not None]
    last_of_each_key = {record.key: record for record in records}
    assert len(last_of_each_key) == (1 if tasks == 1 else len(records) // 2)


async def test_slices_left_by_compaction_are_ignored(fake) -> None:
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        for value in (b"1/3\n...", b"2/3\n...", b"1/2\n..."):
            await producer.send(QUERY, value, partition=0)
    async with driver(fake) as (ledger, _):
        assert await ledger.last() is None
        await ledger.claim()
        await ledger.write(Decision(3, ()))
        assert await ledger.last() == Decision(3, ())


async def test_cleaning_up_tolerates_a_missing_broker(fake) -> None:
    one = (await task(fake, 0, ["a"])).transaction
    async with driver(fake) as (ledger, transactions):

        async def refuse(_: object) -> None:
            raise KafkaError("a broker does not list its transactions")

        transactions.open_up_to = refuse  # type: ignore[method-assign]
        await commit_batch(ledger, transactions, Decision(0, (one,)))
    assert seen(fake) == [b"a"]


@pytest.mark.parametrize(
    ("brokers", "replicas", "insync", "found"),
    [
        (3, None, None, (3, "2")),
        (5, None, None, (3, "2")),
        (2, None, None, (2, "1")),
        (1, None, None, (1, "1")),
        (3, 2, None, (2, "1")),
        (5, 5, 3, (5, "3")),
        (2, None, 2, (2, "2")),
        (5, None, 4, (4, "4")),
    ],
)
async def test_the_ledger_is_replicated(
    brokers: int, replicas: int | None, insync: int | None, found: tuple[int, str], caplog
) -> None:
    fake = FakeCluster(brokers=brokers)
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        for _ in range(2):  # it may be there
            await make_ledger(admin, "q", replicas=replicas, min_insync=insync)
        topic = await admin.describe_topic("q")
        configs = await admin.describe_configs(ConfigResource.topic("q"))
    assert (topic.replication_factor, configs["min.insync.replicas"].value) == found
    assert configs["cleanup.policy"].value == "compact"
    assert ("has only" in caplog.text) is (replicas is None and brokers < 3)


async def test_an_impossible_replication_factor_is_an_error(caplog) -> None:
    fake = FakeCluster(brokers=2)
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
            await make_ledger(admin, "q", replicas=3, min_insync=None)
        await make_ledger(admin, "q", replicas=1, min_insync=None)
    ledger_module._checked.clear()  # another process
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        await make_ledger(admin, "q", replicas=2, min_insync=None)
    assert "ledger q has 1 replicas, not 2 (ledgerReplicationFactor)" in caplog.text


async def test_no_ledger_is_made_that_cannot_be_written() -> None:
    fake = FakeCluster(brokers=1)
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
            await make_ledger(admin, "q", replicas=None, min_insync=2)
        assert "q" not in await admin.list_topics()


async def test_an_existing_ledger_is_checked_once(caplog) -> None:
    """Each commit calls ``make_ledger``."""
    fake = FakeCluster()
    fake.create_topic("q", 1)  # as brokers create it by themselves
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        for _ in range(3):
            await make_ledger(admin, "q", replicas=None, min_insync=None)
    few, deleted = caplog.messages
    assert few.startswith("the ledger q has 1 replicas, not 3")
    assert deleted.startswith("the ledger q has cleanup.policy=delete")


@pytest.mark.parametrize("name", ["my%20query", "my query", "a#1", "a?b", "a:b"])
def test_a_checkpoint_is_where_spark_has_it(tmp_path, name: str) -> None:
    """Spark's paths have no escapes, queries or fragments: another query's checkpoint may be where
    a URL would point to."""
    for folder in (name, "my query", "a"):
        (tmp_path / folder / "offsets").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "offsets" / "7").write_text(f"v1\n{{}}\nof {folder}")
    for location in (f"{tmp_path}/{name}", f"file:{tmp_path}/{name}", f"file://{tmp_path}/{name}"):
        assert end_offsets(location, 7) == f"of {name}"


def test_end_offsets_of_a_checkpoint(tmp_path) -> None:
    folder = tmp_path / "a b" / "offsets"
    folder.mkdir(parents=True)
    (folder / "7").write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}\n-')
    (folder / "8").write_text("v1\n{}")
    for location in (str(tmp_path / "a b"), f"file://{tmp_path}/a b"):
        assert end_offsets(location, 7) == '{"t":{"0":5}}\n-'
        assert end_offsets(location, 8) is None
        assert end_offsets(location, 9) is None
    for location in (None, "", "hdfs://name/a b", "s3a://bucket/x"):
        assert end_offsets(location, 7) is None


def test_options() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "exactlyOnce": "true"}
    options = WriteOptions.parse(given, "streaming")
    assert options.transactional_id_prefix == "kafkaclient-spark"
    assert options.fail_on_data_loss
    assert (options.ledger_replication_factor, options.ledger_min_insync_replicas) == (None, None)
    more = {"ledgerReplicationFactor": "5", "ledgerMinInsyncReplicas": "3"}
    options = WriteOptions.parse(given | more | {"checkpointLocation": "/c"}, "streaming")
    assert (options.ledger_replication_factor, options.ledger_min_insync_replicas) == (5, 3)
    assert options.checkpoint == "/c"
    for mode, others, said in (
        ("batch", {}, "exactlyOnce is for streaming writes"),
        ("streaming", {"transactionalIdPrefix": "a b"}, "transactionalIdPrefix"),
        ("streaming", {"exactlyOnce": "false", "transactionalIdPrefix": "a"}, "is for writes with"),
        ("streaming", {"ledgerReplicationFactor": "0"}, "an integer above 0"),
        ("streaming", more | {"ledgerReplicationFactor": "2"}, "Replicas=3 is above"),
        ("streaming", {"exactlyOnce": "false"} | more, "is for writes with"),
        ("streaming", {"kafka.acks": "1"}, "acks"),
        ("streaming", {"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
    ):
        with pytest.raises(KafkaError, match=said):
            WriteOptions.parse(given | others, mode)


def test_the_writer_commits_and_aborts_by_the_tasks_messages(
    fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "Admin", partial(Admin, dialer=fake))
    monkeypatch.setattr(exactly_once, "KafkaLedger", partial(KafkaLedger, dialer=fake))
    # The fake cluster's time is the event loop's time.
    transactions = partial(KafkaTransactions, clock=time.monotonic)
    monkeypatch.setattr(exactly_once, "KafkaTransactions", transactions)
    options = WriteOptions(client={"bootstrap.servers": fake.bootstrap}, topic="t")
    writer = ExactlyOnceWriter(options, COLUMNS)
    writer.abort([asyncio.run(task(fake, 0, ["lost"]))], 0)
    messages = [asyncio.run(task(fake, 0, ["a"], 1)), asyncio.run(task(fake, 0, [], 2))]
    writer.commit([*messages, None], 0)
    writer.abort([*messages, None], 0)
    assert seen(fake) == [b"a"]


def test_a_denied_transactional_id_names_the_prefix(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's own transactional id is used once."""
    monkeypatch.setattr(exactly_once, "_query_and_batch", lambda prefix: (f"{prefix}-1f", 0))
    monkeypatch.setattr(exactly_once, "Producer", partial(Producer, dialer=fake))
    fake.control(ApiKey.FIND_COORDINATOR, 53, keep=True)
    client = {"bootstrap.servers": fake.bootstrap}
    options = WriteOptions(client=client, topic="t", transactional_id_prefix="app")
    wanted = "--operation Write --transactional-id app --resource-pattern-type prefixed allows it"
    try:
        with pytest.raises(AuthorizationError, match=wanted):
            ExactlyOnceWriter(options, COLUMNS).write(iter(()))
    finally:
        exactly_once.WORKER_CACHE.close()  # its thread


def test_a_task_that_is_too_slow_names_the_timeout(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator has aborted the transaction: there is no second producer to look for."""
    monkeypatch.setattr(exactly_once, "_query_and_batch", lambda prefix: (f"{prefix}-1f", 0))
    monkeypatch.setattr(exactly_once, "Producer", partial(Producer, dialer=fake))
    monkeypatch.setattr(exactly_once.uuid, "uuid4", lambda: uuid.UUID(int=7))
    identity = f"app-1f-0-{7:032x}"
    client = {"bootstrap.servers": fake.bootstrap, "transaction.timeout.ms": "60000"}
    options = WriteOptions(client=client, topic="t", transactional_id_prefix="app")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["early"]})
        while not fake.transaction(identity).partitions:
            time.sleep(0.001)
        fake.expire_transaction(identity)
        yield pa.record_batch({"value": ["late"]})

    try:
        with pytest.raises(TransactionLostError, match=r"aborted.*timeout\.ms=60000") as caught:
            ExactlyOnceWriter(options, COLUMNS).write(batches())
    finally:
        exactly_once.WORKER_CACHE.close()  # its thread
    assert identity in str(caught.value)
    assert seen(fake) == []


def test_outside_of_a_query() -> None:
    options = WriteOptions(client={"bootstrap.servers": "b:1"}, topic="t", exactly_once=True)
    writer = pickle.loads(pickle.dumps(ExactlyOnceWriter(options, COLUMNS)))  # noqa: S301
    with pytest.raises(KafkaError, match="this task has no query id"):
        writer.write(iter(()))
    writer.commit([None], 3)  # nothing was written, and nothing can be known
