"""Tasks that prepare, and a driver that decides, on the fake cluster."""

from __future__ import annotations

import pickle
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructType  # noqa: E402

from kafkaclient import Producer  # noqa: E402
from kafkaclient.admin import Admin  # noqa: E402
from kafkaclient.errors import KafkaError, ProducerFencedError, TransactionLostError  # noqa: E402
from kafkaclient.spark.decisions import (  # noqa: E402
    Decision,
    State,
    abort_batch,
    commit_batch,
)
from kafkaclient.spark.exactly_once import (  # noqa: E402
    ExactlyOnceWriter,
    KafkaLedger,
    KafkaTransactions,
    Prepared,
    PreparingSink,
    begin,
)
from kafkaclient.spark.options import WriteOptions  # noqa: E402
from kafkaclient.spark.rows import WriteColumns  # noqa: E402
from kafkaclient.testing.fake import FakeCluster  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COLUMNS = WriteColumns.check(StructType().add("value", StringType()), "t")
QUERY = "app-1f"


@pytest.fixture(params=["v1", "v2"])
def fake(request: pytest.FixtureRequest) -> FakeCluster:
    cluster = FakeCluster(transactions_v2=request.param == "v2")
    cluster.round_trip_s = 0.0
    cluster.create_topic("t", 3)
    cluster.create_topic(QUERY, 1)
    return cluster


async def task(fake: FakeCluster, batch: int, values: list[str], name: int = 0) -> Prepared:
    identity = f"{QUERY}-{batch}-{name:032x}"
    producer = Producer(fake.bootstrap, dialer=fake, transactional_id=identity)
    sink = PreparingSink(producer, COLUMNS, QUERY)
    await begin(producer)
    try:
        if values:
            await sink.take(pa.record_batch({"value": values}))
        return pickle.loads(pickle.dumps(await sink.finish()))  # noqa: S301 - as Spark does
    finally:
        await producer.stop()


@asynccontextmanager
async def driver(fake: FakeCluster) -> AsyncIterator[tuple[KafkaLedger, KafkaTransactions]]:
    async with Admin(fake.bootstrap, dialer=fake, limits=None) as admin:
        shared = {"bootstrap_servers": fake.bootstrap}
        async with KafkaLedger(shared, QUERY, dialer=fake) as ledger:
            yield ledger, KafkaTransactions(admin, QUERY)


def seen(fake: FakeCluster) -> list[bytes | None]:
    return sorted(record.value for n in range(3) for record in fake.committed_log("t", n))


async def test_batches_become_visible_when_they_are_committed(fake) -> None:
    told = [
        await task(fake, 0, ["a", "b"]),
        await task(fake, 0, [], 1),
        await task(fake, 0, ["c"], 2),
    ]
    lost = await task(fake, 0, ["a", "b"], 3)  # of an attempt that Spark has given up on
    later = await task(fake, 1, ["d"], 4)
    assert [one.records for one in told] == [2, 0, 1]
    assert told[1].transaction is None
    assert seen(fake) == []
    prepared = tuple(one.transaction for one in told if one.transaction)
    async with driver(fake) as (ledger, transactions):
        await commit_batch(ledger, transactions, 0, prepared)
        assert seen(fake) == [b"a", b"b", b"c"]
        assert await ledger.last() == Decision(0, prepared, done=True)
        wanted = (*prepared, lost.transaction, later.transaction)
        states = await transactions.states(wanted)
        assert [*states.values()] == [
            *[State.COMMITTED] * 2,
            State.ABORTED,
            State.OPEN,  # its batch is to come
        ]
        await commit_batch(ledger, transactions, 1, (later.transaction,))
    assert seen(fake) == [b"a", b"b", b"c", b"d"]
    for partition in range(3):
        end = fake._partition("t", partition).log.end_offset
        assert fake.last_stable_offset("t", partition) == end


async def test_a_driver_that_dies_after_the_decision(fake) -> None:
    """Spark repeats the batch, with other tasks: it is what was decided that is committed."""
    first = [(await task(fake, 0, [value], n)).transaction for n, value in enumerate("ab")]
    async with driver(fake) as (ledger, transactions):
        await ledger.last()
        await ledger.write(Decision(0, tuple(first), done=False))
        await transactions.end(first[0], commit=True)
    again = await task(fake, 0, ["a", "b"], 2)
    async with driver(fake) as (ledger, transactions):
        await abort_batch(ledger, transactions, 0, tuple(first))  # as after a commit that failed
        await commit_batch(ledger, transactions, 0, (again.transaction,))
        states = await transactions.states([again.transaction])
        assert [*states.values()] == [State.ABORTED]
    assert seen(fake) == [b"a", b"b"]


async def test_a_driver_of_long_ago_writes_no_decision(fake) -> None:
    one = (await task(fake, 0, ["a"])).transaction
    async with driver(fake) as (old, _), driver(fake) as (new, transactions):
        await old.last()
        await commit_batch(new, transactions, 0, (one,))
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
            await commit_batch(ledger, transactions, 0, (one,))
        two = [(await task(fake, 0, [value], n)).transaction for n, value in enumerate("xa", 1)]
        await ledger.write(Decision(0, tuple(two), done=False))
        fake.expire_transaction(two[0].transactional_id)
        three = (await task(fake, 0, ["a", "x"], 3)).transaction
        await commit_batch(ledger, transactions, 0, (three,))
        assert seen(fake) == [b"a", b"x"]
        four = [(await task(fake, 1, [value], n)).transaction for n, value in enumerate("bc", 4)]
        await ledger.last()
        await ledger.write(Decision(1, tuple(four), done=False))
        await transactions.end(four[0], commit=True)
        fake.expire_transaction(four[1].transactional_id)
        with pytest.raises(TransactionLostError, match=four[1].transactional_id):
            await commit_batch(ledger, transactions, 1, ())
    assert seen(fake) == [b"a", b"b", b"x"]


def test_options() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "exactlyOnce": "true"}
    options = WriteOptions.parse(given, "streaming")
    assert options.transactional_id_prefix == "kafkaclient-spark"
    assert options.fail_on_data_loss
    for mode, more, said in (
        ("batch", {}, "exactlyOnce is for streaming writes"),
        ("streaming", {"transactionalIdPrefix": "a b"}, "transactionalIdPrefix"),
        ("streaming", {"exactlyOnce": "false", "transactionalIdPrefix": "a"}, "is for writes with"),
        ("streaming", {"kafka.acks": "1"}, "acks"),
        ("streaming", {"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
    ):
        with pytest.raises(KafkaError, match=said):
            WriteOptions.parse(given | more, mode)


def test_outside_of_a_query() -> None:
    options = WriteOptions(client={"bootstrap.servers": "b:1"}, topic="t", exactly_once=True)
    writer = pickle.loads(pickle.dumps(ExactlyOnceWriter(options, COLUMNS)))  # noqa: S301
    with pytest.raises(KafkaError, match="does not tell this task its query"):
        writer.write(iter(()))
    writer.commit([None], 3)  # nothing was written, and nothing can be known
