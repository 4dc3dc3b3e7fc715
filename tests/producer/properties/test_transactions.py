"""Whatever happens: a transaction is seen as a whole or not at all, as its producer was told."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import KafkaError, TransactionTimeoutError
from kafkaclient.producer.producer import Producer
from kafkaclient.producer.transactions.states import TransactionState
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import (
    CLOSE,
    CLOSE_ANSWER,
    DROP,
    DROP_ANSWER,
    FakeCluster,
    delay,
    delay_answer,
)
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import OffsetAndMetadata
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.transactions import TxnState

PARTITIONS, BROKERS = 3, 3

partitions = st.integers(0, PARTITIONS - 1)
brokers = st.integers(0, BROKERS - 1)
APIS = [
    ApiKey.PRODUCE,
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
]
ANSWERS = [CLOSE, CLOSE_ANSWER, DROP, DROP_ANSWER, delay(1.0), delay_answer(1.0)]
NOT_DONE = [48, 59, 120]  # not 49 (INVALID_PRODUCER_ID_MAPPING), which ends the producer
CODES = [7, 14, 15, 16, 51, *NOT_DONE, -1]

# What the application does in a transaction, and what happens meanwhile.
steps = st.one_of(
    st.tuples(st.just("send"), st.one_of(partitions, st.none()), st.integers(1, 5)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.001, 0.003, 0.01, 0.3])),
    st.tuples(st.just("offsets")),
    st.tuples(st.just("answer"), st.sampled_from(APIS), st.sampled_from(ANSWERS)),
    st.tuples(st.just("code"), st.sampled_from(APIS[1:]), st.sampled_from(CODES)),
    st.tuples(st.just("error"), partitions, st.sampled_from([3, 6, 7, 19, 20, 45, 47, 87, 120])),
    st.tuples(st.just("move"), partitions, brokers),
    st.tuples(st.just("coordinator"), brokers),
    st.tuples(st.just("disconnect"), brokers),
    st.tuples(st.just("bounce"), brokers),
    st.tuples(st.just("stall"), brokers, st.sampled_from([0.5, 4.0])),
    st.tuples(st.just("absent"), brokers),
    st.tuples(st.just("persistent"), st.sampled_from(APIS[2:5]), st.sampled_from([3, 14, 51])),
    st.tuples(st.just("no offsets"), st.sampled_from([2**63, -1, b"m", None])),
    st.tuples(st.just("expire"), partitions),
    st.tuples(st.just("return"), st.none(), brokers, st.sampled_from([*ANSWERS, *CODES])),
)
ends = st.sampled_from(
    ["commit", "commit", "prepare", "abort", "raise", "cancel soon", "cancel late"]
)
pauses = st.sampled_from([0.0, 0.0, 0.01, 5.0])
transactions = st.lists(
    st.tuples(st.lists(steps, max_size=8), ends, pauses), min_size=1, max_size=5
)


class Story:
    """One producer's transactions; ``told`` is what it learnt of each: True, False, or unknown."""

    def __init__(self, plan: list[Any], *, v2: bool, seed: int) -> None:
        self.plan = plan
        self.rng = Random(seed)
        self.fake = FakeCluster(brokers=BROKERS, transactions_v2=v2)
        self.fake.create_topic("t", PARTITIONS, replication_factor=BROKERS)
        self.fake.round_trip_s = 0.002
        self.sent: dict[int, set[bytes]] = defaultdict(set)
        self.told: dict[int, bool] = {}

    async def run(self) -> None:
        options = {"request_timeout_ms": 2000, "delivery_timeout_ms": 8000, "linger_ms": 1}
        async with Producer(
            self.fake.bootstrap,
            dialer=self.fake,
            rng=self.rng,
            transactional_id="tx",
            on_error=lambda _: None,
            **options,
        ) as producer:
            for n, (plan, end, pause) in enumerate(self.plan):
                await self.one(producer, n, plan, end)
                await asyncio.sleep(pause)
                self.no_ghost(producer)
            for broker in range(BROKERS):
                self.fake.start_broker(broker)
                self.fake.resume_broker(broker)
            inspect(self.fake).interceptors.clear()
            inspect(self.fake).produce_failures.clear()
            # Whatever there was, the producer can go on.
            async with producer.transaction():
                await producer.send("t", b"last", partition=0)
            self.told[len(self.plan)] = True
            self.sent[len(self.plan)].add(b"last")
        await asyncio.sleep(20)  # whatever was held back has arrived

    def no_ghost(self, producer: Producer) -> None:
        """The coordinator has no transaction open that the producer does not know of."""
        if inspect(producer).transactions.state is TransactionState.READY:
            assert not self.is_ongoing(), f"a ghost: {self.fake.transaction('tx')}"

    def is_ongoing(self) -> bool:
        return self.fake.transaction("tx").state is TxnState.ONGOING

    async def one(self, producer: Producer, n: int, plan: list[Any], end: str) -> None:
        working = asyncio.create_task(self.body(producer, n, plan, end))
        if end.startswith("cancel"):
            await asyncio.sleep(self.rng.uniform(0, 0.01 if end == "cancel soon" else 0.1))
            working.cancel()
        (outcome,) = await asyncio.gather(working, return_exceptions=True)
        if outcome is None:
            self.told[n] = end != "abort"
        elif isinstance(outcome, asyncio.CancelledError | TransactionTimeoutError):
            if inspect(producer).transactions.state.name in ("COMMITTING", "READY"):
                await self.ask_again(producer, n)
            else:
                await producer.abort_transaction()
                self.told[n] = False
        elif isinstance(outcome, (KafkaError, ZeroDivisionError, ValueError, TypeError)):
            self.told[n] = False
        else:
            raise outcome

    async def ask_again(self, producer: Producer, n: int) -> None:
        transactions = inspect(producer).transactions
        ending = transactions._end_txn
        if ending is None or ending.observed:
            self.told[n] = False  # cancelled before it was begun, or aborted and told
            return
        call = producer.commit_transaction if ending.commit else producer.abort_transaction
        try:
            await call()
        except KafkaError:
            await producer.abort_transaction()
            self.told[n] = False
        else:
            self.told[n] = ending.commit

    async def body(self, producer: Producer, n: int, plan: list[Any], end: str) -> None:
        if end == "abort":
            await producer.begin_transaction()
            try:
                await self.steps(producer, n, plan)
            finally:
                await producer.abort_transaction()
            return
        async with producer.transaction():
            await self.steps(producer, n, plan)
            if end == "raise":
                raise ZeroDivisionError
            if end == "prepare":
                await producer.prepare_transaction()
                seen = len(self.fake.requests)
                await asyncio.sleep(self.rng.choice([0.0, 0.01, 2.0]))
                within = {r.api_key for r in self.fake.requests[seen:]}
                assert not within & {*APIS} - {ApiKey.FIND_COORDINATOR}, "it is not left alone"

    async def steps(self, producer: Producer, n: int, plan: list[Any]) -> None:
        for number, (what, *arguments) in enumerate(plan):
            if what == "send":
                partition, count = arguments
                for m in range(count):
                    value = b"%d %d %d" % (n, number, m)
                    await producer.send("t", value, partition=partition)
                    self.sent[n].add(value)
            elif what == "flush":
                await producer.flush()
            elif what == "sleep":
                await asyncio.sleep(*arguments)
            elif what == "offsets":
                await producer.send_offsets_to_transaction({("in", 0): n + 1}, "group")
                self.sent[n].add(b"offset %d" % (n + 1))
            elif what == "no offsets":
                (offset,) = arguments
                offset = OffsetAndMetadata(1, offset) if isinstance(offset, bytes) else offset
                await producer.send_offsets_to_transaction({("in", 0): offset}, "group")
            elif what == "expire":
                value = b"%d %d 0" % (n, number)
                self.sent[n].add(value)
                await self.expire(producer, *arguments, value)
            elif what == "return":
                await self.come_back(producer, n, number, *arguments[1:])
            else:
                self.happen(what, *arguments)

    async def come_back(
        self, producer: Producer, n: int, number: int, broker: int, answer: Any
    ) -> None:
        """A broker can be reached again. With v1 one of its partitions is added, which takes a
        while, and which no record may need any more when the transaction ends."""
        fake = self.fake
        fake.stop_broker(broker, elect=False)
        asyncio.get_running_loop().call_later(0.05, fake.start_broker, broker)
        slow = None
        for m in range(100):
            value = b"%d %d %d" % (n, number, m)
            self.sent[n].add(value)
            await producer.send_and_wait("t", value)
            if slow is None:
                slow = fake.control(ApiKey.ADD_PARTITIONS_TO_TXN, answer)
            elif slow.hits:
                break
            await asyncio.sleep(0.005)

    async def expire(self, producer: Producer, partition: int, value: bytes) -> None:
        """The delivery timeout ends while the batch is on the wire."""
        slow = self.fake.control(ApiKey.PRODUCE, delay(1.8), keep=True)
        delivery = await producer.send("t", value, partition=partition)
        for _ in range(5):
            await asyncio.sleep(1.57)
            if self.fake.leader("t", partition) >= 0:
                self.fake.drop_connections(self.fake.leader("t", partition))
        slow.remove()
        await asyncio.gather(delivery, return_exceptions=True)

    def interfere(self, what: str, api: ApiKey, answer: Any) -> None:
        if what == "persistent":
            control = self.fake.control(api, answer, keep=True)
            asyncio.get_running_loop().call_later(1.0, control.remove)
        elif what == "code" and api is ApiKey.END_TXN and answer in NOT_DONE:
            # No coordinator says so of a transaction that it has ended as it was asked to.
            self.fake.control(api, lambda _: answer if self.is_ongoing() else None)
        else:
            self.fake.control(api, answer)

    def happen(self, what: str, *arguments: Any) -> None:
        fake, loop = self.fake, asyncio.get_running_loop()
        if what in ("answer", "code", "persistent"):
            self.interfere(what, *arguments)
        elif what == "error":
            fake.fail_produce("t", *arguments)
        elif what == "move":
            fake.move_leader("t", *arguments)
        elif what == "coordinator":
            fake.move_coordinator("tx", *arguments)
        elif what == "disconnect":
            fake.drop_connections(*arguments)
        elif what == "bounce":
            fake.stop_broker(*arguments)
            loop.call_later(0.5, fake.start_broker, *arguments)
        elif what == "absent":
            fake.stop_broker(*arguments, elect=False)
            loop.call_later(0.3, fake.start_broker, *arguments)
        elif what == "stall":
            broker, seconds = arguments
            fake.stall_broker(broker)
            loop.call_later(seconds, fake.resume_broker, broker)

    def check(self) -> None:
        logs = [self.fake.committed_log("t", p) for p in range(PARTITIONS)]
        seen = [record.value or b"" for log in logs for record in log]
        assert len(seen) == len(set(seen)), "seen twice"
        for n in range(len(self.plan) + 1):
            own = {value for value in self.sent[n] if not value.startswith(b"offset")}
            assert own & set(seen) == (own if self.told[n] else set()), f"of transaction {n}"
        for log in logs:
            order = [tuple(map(int, (r.value or b"").split())) for r in log if r.value != b"last"]
            explicit = [o for o in order if self.plan[o[0]][0][o[1]][1] is not None]
            assert explicit == sorted(explicit), "out of order"
        offsets = [n + 1 for n in self.told if b"offset %d" % (n + 1) in self.sent[n]]
        offsets = [offset for offset in offsets if self.told[offset - 1]]
        assert self.fake.committed_offset("group", "in", 0) == max(offsets, default=None)
        for p in range(PARTITIONS):
            end = inspect(self.fake).partition("t", p).log.end_offset
            assert self.fake.last_stable_offset("t", p) == end, "a transaction hangs"


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
@given(plan=transactions, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_all_or_nothing(plan: list[Any], v2: bool, seed: int) -> None:
    async def run() -> None:
        story = Story(plan, v2=v2, seed=seed)
        await story.run()
        story.check()

    run_virtual(run())
