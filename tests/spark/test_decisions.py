"""Exactly once, whoever dies when: the decision logic against a model of Spark and of Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import ProducerFencedError, TransactionLostError
from kafkaclient.spark.decisions import Decision, State, abort_batch, commit_batch
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Crash(Exception):
    """The driver dies, or only the process that commits."""


class Kafka:
    """Transactions with their rows, the ledger, and what happens at the n-th step from now on."""

    def __init__(self) -> None:
        self.rows: dict[PreparedTransaction, tuple[int, list[int]]] = {}
        self.state: dict[PreparedTransaction, State] = {}
        self.expired: set[PreparedTransaction] = set()
        """With transactions v1 a time-out looks like fencing."""
        self.written: list[Decision] = []
        self.owner = 0
        self.script: dict[int, str] = {}
        self.steps = 0
        self._numbers = count()

    def prepare(self, batch: int, rows: list[int]) -> PreparedTransaction:
        prepared = PreparedTransaction(f"q-{batch}-{next(self._numbers)}", len(self.rows), 0)
        self.rows[prepared], self.state[prepared] = (batch, rows), State.OPEN
        return prepared

    def visible(self) -> Counter[int]:
        return Counter(
            row
            for prepared, (_, rows) in self.rows.items()
            if self.state[prepared] is State.COMMITTED
            for row in rows
        )

    def open(self) -> list[PreparedTransaction]:
        return [each for each, state in self.state.items() if state is State.OPEN]

    def expire(self) -> None:
        self.expired.update(self.open())
        self.state.update(dict.fromkeys(self.open(), State.ABORTED))


class Driver:
    """A run of the query: its ledger and its transactions."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.number = 0

    def step(self, when: str) -> None:
        kafka = self.kafka
        if when == "before":
            kafka.steps += 1
        planned = kafka.script.get(kafka.steps)
        if planned == "expire" and when == "before":
            kafka.expire()
        if planned in (f"crash {when}", f"worker {when}"):
            raise Crash(kafka.script.pop(kafka.steps))

    async def last(self) -> Decision | None:
        self.step("before")
        self.kafka.owner += 1
        self.number = self.kafka.owner
        self.step("after")
        return self.kafka.written[-1] if self.kafka.written else None

    async def write(self, decision: Decision) -> None:
        self.step("before")
        if self.number != self.kafka.owner:
            raise ProducerFencedError("another run")
        self.kafka.written.append(Decision.from_json(decision.to_json()))
        self.step("after")

    async def states(
        self, prepared: Iterable[PreparedTransaction]
    ) -> Mapping[PreparedTransaction, State]:
        self.step("before")
        return {each: self.kafka.state[each] for each in prepared}

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        self.step("before")
        wanted = State.COMMITTED if commit else State.ABORTED
        if self.kafka.state[prepared] is State.OPEN:
            self.kafka.state[prepared] = wanted
        self.step("after")
        return self.kafka.state[prepared] is wanted and prepared not in self.kafka.expired

    async def left(self, batch: int) -> list[PreparedTransaction]:
        self.step("before")
        return [each for each in self.kafka.open() if self.kafka.rows[each][0] <= batch]


ROWS = 6
CRASHES = ["crash before", "crash after", "worker before", "worker after"]
happenings = st.sampled_from([*CRASHES, "expire"])
scripts = st.dictionaries(st.integers(1, 60), happenings, max_size=8)
splits = st.lists(st.integers(1, 4), min_size=1, max_size=30)


async def run_query(kafka: Kafka, batches: int, splits: list[int]) -> str | None:
    """Until all batches are committed in Spark's checkpoint; what it fails with every time."""
    committed, attempts, failures = 0, 0, 0
    while committed < batches:
        rows = [committed * ROWS + n for n in range(ROWS)]
        tasks = splits[attempts % len(splits)]
        attempts += 1
        prepared = tuple(kafka.prepare(committed, rows[n::tasks]) for n in range(tasks))
        kafka.prepare(committed, rows[::2])  # an attempt whose message never came
        driver = Driver(kafka)
        try:
            try:
                await commit_batch(driver, driver, committed, prepared)
            except (TransactionLostError, Crash) as error:
                if not str(error).startswith("crash"):
                    await abort_batch(driver, driver, committed, prepared)  # as Spark does
                raise
        except Crash:
            continue
        except TransactionLostError as error:
            failures += 1
            if failures > 20:
                return str(error)
        else:
            committed += 1
            assert not kafka.open(), "something is left open"
    return None


@settings(max_examples=400)
@given(script=scripts, splits=splits)
def test_every_row_once_or_the_query_says_why_not(
    script: dict[int, str], splits: list[int]
) -> None:
    """A crash before or after any step, time-outs at any step, and a replay with other tasks."""
    kafka = Kafka()
    kafka.script = script
    expires = "expire" in script.values()
    failure = asyncio.run(run_query(kafka, 4, splits))
    assert all(times == 1 for times in kafka.visible().values()), "repeated"
    if failure is None:
        assert kafka.visible() == Counter(range(4 * ROWS))
        assert kafka.written[-1].batch == 3
    else:
        assert expires
        assert "their rows are missing" in failure


@pytest.mark.parametrize("when", CRASHES)
@pytest.mark.parametrize("step", range(1, 14))
async def test_one_crash_loses_and_repeats_nothing(when: str, step: int) -> None:
    kafka = Kafka()
    kafka.script = {step: when}
    assert await run_query(kafka, 2, [3, 2, 1]) is None
    assert kafka.visible() == Counter(range(2 * ROWS))


async def test_a_decision_of_which_nothing_was_committed_is_taken_back() -> None:
    """Driver and brokers were away for too long: the replay takes its place, as a whole."""
    kafka = Kafka()
    old = kafka.prepare(0, [1]), kafka.prepare(0, [2])
    kafka.written.append(Decision(0, old, done=False))
    kafka.state[old[0]] = State.ABORTED
    new = (kafka.prepare(0, [1, 2]),)
    driver = Driver(kafka)
    await commit_batch(driver, driver, 0, new)
    assert kafka.visible() == Counter([1, 2])
    assert kafka.written[-1] == Decision(0, new, done=True)


async def test_what_is_taken_back_cannot_be_committed_by_a_run_of_long_ago() -> None:
    kafka = Kafka()
    old = kafka.prepare(0, [1]), kafka.prepare(0, [2])
    kafka.written.append(Decision(0, old, done=False))
    kafka.state[old[0]] = State.ABORTED

    class Disturbed(Driver):
        async def write(self, decision: Decision) -> None:
            assert not await Driver(kafka).end(old[1], commit=True)
            await super().write(decision)

    driver = Disturbed(kafka)
    await commit_batch(driver, driver, 0, (kafka.prepare(0, [1, 2]),))
    assert kafka.visible() == Counter([1, 2])


@pytest.mark.parametrize("other", [State.COMMITTED, State.UNKNOWN])
async def test_a_decision_that_may_be_visible_in_part_fails_the_query(other: State) -> None:
    kafka = Kafka()
    old = kafka.prepare(0, [1]), kafka.prepare(0, [2])
    kafka.written.append(Decision(0, old, done=False))
    kafka.state[old[0]], kafka.state[old[1]] = State.ABORTED, other
    new = (kafka.prepare(0, [1, 2]),)
    driver = Driver(kafka)
    with pytest.raises(TransactionLostError, match="q-0-0"):
        await commit_batch(driver, driver, 0, new)
    await abort_batch(driver, driver, 0, new)
    assert not kafka.open()
    await commit_batch(driver, driver, 0, (), accept_loss=True)
    assert kafka.written[-1].done


async def test_a_run_of_long_ago_can_neither_decide_nor_disturb() -> None:
    kafka = Kafka()
    old, new = Driver(kafka), Driver(kafka)
    of_old, of_new = kafka.prepare(0, [1]), kafka.prepare(0, [1])
    await old.last()
    await commit_batch(new, new, 0, (of_new,))
    with pytest.raises(ProducerFencedError):
        await old.write(Decision(0, (of_old,), done=False))
    next_of_new = kafka.prepare(1, [2])
    await commit_batch(old, old, 0, (of_old,))  # once more, from the beginning
    await commit_batch(new, new, 1, (next_of_new,))
    with pytest.raises(ProducerFencedError, match="batch 1 of this query has been decided"):
        await commit_batch(old, old, 0, (of_old,))
    assert kafka.visible() == Counter([1, 2])


async def test_what_is_lost_before_the_decision_is_only_repeated() -> None:
    kafka = Kafka()
    prepared = kafka.prepare(0, [1]), kafka.prepare(0, [2])
    kafka.expire()
    driver = Driver(kafka)
    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        await commit_batch(driver, driver, 0, prepared)
    assert kafka.written == []
