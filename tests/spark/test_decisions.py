"""Exactly once after any crash: the decision logic against a model of Spark and Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafkaclient.errors import (
    CheckpointMismatchError,
    KafkaError,
    ProducerFencedError,
    TransactionLostError,
)
from kafkaclient.spark import decisions
from kafkaclient.spark.decisions import (
    Contents,
    Decision,
    State,
    TransactionStatus,
    abort_batch,
    commit_batch,
)
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TIMEOUT_S = 900.0
TASK_S = 10.0  # a task begins that much later than the one before
STEP_S = 0.01  # a call to Kafka takes as long unless the script says otherwise


class Crash(BaseException):
    """The driver dies, or only the process that commits."""


class Kafka:
    """Transactions with their rows, the ledger, and what happens at the n-th step from now on.

    What a script may say of a step: ``crash`` or ``worker`` (the driver or the commit's process
    dies) ``before`` or ``after`` it; ``crash during`` (a decision is on its way); a number: as many
    seconds pass first; ``expire n``: the n-th open transaction is aborted by itself.
    """

    def __init__(self) -> None:
        self.rows: dict[PreparedTransaction, tuple[int, list[object]]] = {}
        self.state: dict[PreparedTransaction, State] = {}
        self.began: dict[PreparedTransaction, float] = {}
        self.expired: set[PreparedTransaction] = set()
        """With transactions v1 a time-out looks like fencing."""
        self.written: list[Decision] = []
        self.on_its_way: Decision | None = None
        """A decision whose writer died; it arrives, or the next to claim the ledger aborts it."""
        self.owner = 0
        self.script: dict[int, str] = {}
        self.steps = 0
        self.now = 0.0
        self.write_s = self.end_s = 0.0
        """How long each decision takes to be written, and all ends of one run together."""
        self._numbers = count()

    def prepare(self, batch: int, rows: Iterable[object]) -> PreparedTransaction:
        prepared = PreparedTransaction(f"q-{batch}-{next(self._numbers)}", len(self.rows), 0)
        self.rows[prepared], self.state[prepared] = (batch, [*rows]), State.OPEN
        self.began[prepared] = self.now
        return prepared

    def visible(self) -> Counter[object]:
        return Counter(
            row
            for prepared, (_, rows) in self.rows.items()
            if self.state[prepared] is State.COMMITTED
            for row in rows
        )

    def open(self) -> list[PreparedTransaction]:
        return [each for each, state in self.state.items() if state is State.OPEN]

    def expire(self, *those: PreparedTransaction) -> None:
        self.expired.update(those)
        self.state.update(dict.fromkeys(those, State.ABORTED))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.expire(*(each for each in self.open() if self.left(each) <= 0))

    def left(self, prepared: PreparedTransaction) -> float:
        return max(0.0, 1 - (self.now - self.began[prepared]) / TIMEOUT_S)

    def arrive(self) -> None:
        if self.on_its_way is not None:
            self.written.append(self.on_its_way)
            self.on_its_way = None


class Driver:
    """A run of the query: its ledger and its transactions."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.number = 0
        self.has_ended = False
        self.death: Crash | None = None

    def step(self, when: str) -> None:
        kafka = self.kafka
        if self.death is not None:
            raise self.death  # nothing that was begun goes on
        if when == "before":
            kafka.steps += 1
            kafka.pass_time(STEP_S)
        planned = kafka.script.get(kafka.steps, "")
        if when == "before":
            if planned.isdecimal():
                kafka.pass_time(float(planned))
            elif planned.startswith("expire") and kafka.open():
                kafka.expire(kafka.open()[int(planned[6:]) % len(kafka.open())])
            elif planned == "arrive":
                kafka.arrive()
        if planned in (f"crash {when}", f"worker {when}"):
            self.death = Crash(kafka.script.pop(kafka.steps))
            raise self.death

    async def last(self) -> Decision | None:
        self.step("before")
        last = self.kafka.written[-1] if self.kafka.written else None
        self.step("after")
        return last

    async def is_writing(self) -> bool:
        self.step("before")
        return self.kafka.on_its_way is not None

    async def claim(self) -> Decision | None:
        self.step("before")
        self.kafka.owner += 1
        self.number = self.kafka.owner
        self.kafka.on_its_way = None
        return await self.last()

    async def write(self, decision: Decision) -> None:
        self.step("before")
        if self.number != self.kafka.owner:
            raise ProducerFencedError("another run")
        self.kafka.on_its_way = Decision.from_json(decision.to_json())
        self.kafka.pass_time(self.kafka.write_s)
        self.step("during")
        self.kafka.arrive()
        self.step("after")

    async def states(
        self, prepared: Iterable[PreparedTransaction]
    ) -> Mapping[PreparedTransaction, TransactionStatus]:
        self.step("before")
        kafka = self.kafka
        return {
            each: TransactionStatus(kafka.state[each], kafka.left(each))
            if kafka.state[each] is State.OPEN
            else TransactionStatus(kafka.state[each])
            for each in prepared
        }

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        self.step("before")
        wanted = State.COMMITTED if commit else State.ABORTED
        if self.has_ended:
            self.kafka.pass_time(self.kafka.end_s)
            self.kafka.end_s = 0.0
        self.has_ended = True
        if self.kafka.state[prepared] is State.OPEN:
            self.kafka.state[prepared] = wanted
        self.step("after")
        return self.kafka.state[prepared] is wanted and prepared not in self.kafka.expired

    async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
        self.step("before")
        return [each for each in self.kafka.open() if self.kafka.rows[each][0] <= batch]


# --- Spark ---------------------------------------------------------------------------------------

Ends = tuple[int, int]
"""Where a batch ends in the two partitions of the source."""


@dataclass
class Query:
    """A query that copies a source of two partitions, and its checkpoint."""

    kafka: Kafka
    readable: bool
    """Whether the commit can read Spark's offsets; if not, it has to do with the rows."""
    offsets: list[Ends] = field(default_factory=list)
    committed: int = 0

    def plan(self, sizes: tuple[int, int]) -> None:
        """Note where the next batch ends, unless the checkpoint says so already."""
        if len(self.offsets) == self.committed:
            start = self.start()
            self.offsets.append((start[0] + sizes[0], start[1] + sizes[1]))

    def start(self) -> Ends:
        return self.offsets[self.committed - 1] if self.committed else (0, 0)

    def rows(self) -> list[tuple[int, int]]:
        """Of the next batch."""
        ends = zip(self.start(), self.offsets[self.committed], strict=True)
        return [(tp, n) for tp, (start, end) in enumerate(ends) for n in range(start, end)]

    def put_back(self, batches: int) -> None:
        """Restore a copy of the checkpoint: what was planned since is forgotten."""
        self.committed = max(0, self.committed - batches)
        del self.offsets[self.committed :]

    def decision(self, tasks: int, topic: str = "t") -> Decision:
        """What the tasks tell of the next batch."""
        batch, rows = self.committed, self.rows()
        self.kafka.prepare(batch, rows[::2])  # an attempt whose message never came
        prepared = []
        for n in range(tasks):
            self.kafka.pass_time(TASK_S)
            prepared.append(self.kafka.prepare(batch, rows[n::tasks]))
        ends = str(self.offsets[batch]) if self.readable else None
        contents = Contents(len(rows), sum(hash(row) for row in rows), topic, ends)
        return Decision(batch, tuple(prepared), contents=contents)

    def everything(self) -> Counter[object]:
        ends = enumerate(self.start())
        return Counter((tp, n) for tp, end in ends for n in range(end))


DEATHS = [
    f"{what} {when}" for what in ("crash", "worker") for when in ("before", "during", "after")
]
WAITS = ["20", "100", "880", "2000"]
happenings = st.sampled_from([*DEATHS, *WAITS, "arrive", "expire 0", "expire 1", "expire 3"])
scripts = st.dictionaries(st.integers(1, 80), happenings, max_size=8)
splits = st.lists(st.integers(1, 4), min_size=1, max_size=30)
sizes = st.lists(st.sampled_from([(3, 3), (2, 4), (4, 2), (5, 5)]), min_size=1, max_size=10)
restored = st.dictionaries(st.integers(1, 12), st.integers(0, 2), max_size=2)


async def run_query(
    query: Query,
    batches: int,
    splits: list[int],
    sizes: list[tuple[int, int]] | None = None,
    restored: Mapping[int, int] | None = None,
    ages: Sequence[int] = (),
) -> Exception | None:
    """Run until ``batches`` are committed in Spark's checkpoint. Returns what it fails with every
    time. ``restored``: the checkpoint is put back by that number of batches after the n-th attempt;
    ``ages``: seconds between the tasks and the commit of each attempt."""
    attempts, failures = 0, 0
    sizes = sizes or [(3, 3)]
    while query.committed < batches:
        if restored and attempts in restored:
            query.put_back(restored[attempts])
        query.plan(sizes[attempts % len(sizes)])
        wanted = query.decision(splits[attempts % len(splits)])
        if attempts < len(ages):
            query.kafka.pass_time(ages[attempts])
        attempts += 1
        driver = Driver(query.kafka)
        try:
            try:
                await commit_batch(driver, driver, wanted)
            except (KafkaError, Crash) as error:
                if not str(error).startswith("crash"):
                    # As Spark, in a process of its own.
                    other = Driver(query.kafka)
                    await abort_batch(other, other, wanted.batch, wanted.transactions)
                raise
        except Crash:
            continue
        except (TransactionLostError, CheckpointMismatchError) as error:
            failures += 1
            if failures > 20:
                return error
        else:
            query.committed += 1
    return None


@settings(max_examples=400)
@given(script=scripts, splits=splits, sizes=sizes, readable=st.booleans())
def test_every_row_once_or_the_query_says_why_not(
    script: dict[int, str], splits: list[int], sizes: list[tuple[int, int]], readable: bool
) -> None:
    """A crash before, during or after any step, time that passes and transactions that time out at
    any step, each by itself, and a replay with other tasks."""
    kafka = Kafka()
    kafka.script = script
    query = Query(kafka, readable)
    lasting = {what for what in script.values() if what.startswith("expire") or what in WAITS}
    failure = asyncio.run(run_query(query, 4, splits, sizes))
    assert all(times == 1 for times in kafka.visible().values()), "repeated"
    if failure is None:
        assert kafka.visible() == query.everything()
        assert kafka.written[-1].batch == 3
    else:
        assert lasting
        assert "their rows are missing" in str(failure)
    event(f"fails: {failure is not None}")


@settings(max_examples=400)
@given(
    write_s=st.integers(0, 200),
    end_s=st.integers(0, 40),
    ages=st.lists(st.integers(700, 899), max_size=4),
    splits=splits,
)
def test_a_driver_that_is_slow_commits_no_part_of_a_batch(
    write_s: int, end_s: int, ages: list[int], splits: list[int]
) -> None:
    """However old transactions are when it begins, and however long the decision takes to write:
    what is too late is repeated as a whole. Commits have 45 s."""
    kafka = Kafka()
    kafka.write_s, kafka.end_s = write_s, end_s
    query = Query(kafka, readable=True)
    assert asyncio.run(run_query(query, 3, splits, ages=ages)) is None
    assert kafka.visible() == query.everything()


@settings(max_examples=400)
@given(script=scripts, splits=splits, sizes=sizes, restored=restored, readable=st.booleans())
def test_a_restored_checkpoint_loses_and_repeats_nothing_silently(
    script: dict[int, str],
    splits: list[int],
    sizes: list[tuple[int, int]],
    restored: dict[int, int],
    readable: bool,
) -> None:
    """A batch that is planned anew, with other rows, takes the place of what was decided only if
    nothing of that was committed; else the query fails."""
    kafka = Kafka()
    kafka.script = script
    query = Query(kafka, readable)
    failure = asyncio.run(run_query(query, 4, splits, sizes, restored))
    assert all(times == 1 for times in kafka.visible().values()), "repeated"
    if failure is None:
        assert kafka.visible() == query.everything()
    elif isinstance(failure, CheckpointMismatchError):
        assert restored
        assert "Restore the newest checkpoint" in str(failure)
    event(f"ends with: {type(failure).__name__}")


@pytest.mark.parametrize("when", DEATHS)
@pytest.mark.parametrize("step", range(1, 18))
async def test_one_crash_loses_and_repeats_nothing(when: str, step: int) -> None:
    kafka = Kafka()
    kafka.script = {step: when}
    query = Query(kafka, readable=False)
    assert await run_query(query, 2, [3, 2, 1]) is None
    assert kafka.visible() == query.everything()
    assert not kafka.open(), "something is left open"


# --- one thing at a time -------------------------------------------------------------------------


def batch(kafka: Kafka, number: int, *tasks: list[int], topic: str = "t") -> Decision:
    rows = [row for task in tasks for row in task]
    prepared = tuple(kafka.prepare(number, task) for task in tasks)
    contents = Contents(len(rows), sum(rows), topic, f'{{"in":{{"0":{max(rows)}}}}}')
    return Decision(number, prepared, contents=contents)


async def commit(driver: Driver, wanted: Decision, *, accept_loss: bool = False) -> None:
    await commit_batch(driver, driver, wanted, accept_loss=accept_loss)


async def test_a_decision_without_committed_transactions_is_revoked() -> None:
    """Driver and brokers were away for too long: the replay takes its place, as a whole."""
    kafka = Kafka()
    old, new = batch(kafka, 0, [1], [2]), batch(kafka, 0, [1, 2])
    kafka.written.append(old)
    kafka.state[old.transactions[0]] = State.ABORTED
    await commit(Driver(kafka), new)
    assert kafka.visible() == Counter([1, 2])
    assert kafka.written[-1] == replace(new, done=True)


async def test_an_old_run_cannot_commit_a_revoked_decision() -> None:
    kafka = Kafka()
    old = batch(kafka, 0, [1], [2])
    kafka.written.append(old)
    kafka.state[old.transactions[0]] = State.ABORTED

    class Disturbed(Driver):
        async def write(self, decision: Decision) -> None:
            assert not await Driver(kafka).end(old.transactions[1], commit=True)
            await super().write(decision)

    await commit(Disturbed(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])


@pytest.mark.parametrize("other", [State.COMMITTED, State.UNKNOWN])
async def test_a_decision_that_may_be_visible_in_part_fails_the_query(other: State) -> None:
    kafka = Kafka()
    old, new = batch(kafka, 0, [1], [2]), batch(kafka, 0, [1, 2])
    kafka.written.append(old)
    first, second = old.transactions
    kafka.state[first], kafka.state[second] = State.ABORTED, other
    driver = Driver(kafka)
    with pytest.raises(TransactionLostError, match="q-0-0"):
        await commit(driver, new)
    await abort_batch(driver, driver, 0, new.transactions)
    assert not kafka.open()
    await commit(driver, replace(new, transactions=()), accept_loss=True)
    assert kafka.written[-1].done


async def test_an_old_run_can_neither_decide_nor_abort() -> None:
    kafka = Kafka()
    old, new = Driver(kafka), Driver(kafka)
    of_old, of_new = batch(kafka, 0, [1]), batch(kafka, 0, [1])
    await old.claim()
    await commit(new, of_new)
    with pytest.raises(ProducerFencedError):
        await old.write(of_old)
    next_of_new = batch(kafka, 1, [2])
    await commit(old, of_old)  # once more, from the beginning
    await commit(new, next_of_new)
    with pytest.raises(CheckpointMismatchError, match="batch 1 of this query has been decided"):
        await commit(old, of_old)
    assert kafka.visible() == Counter([1, 2])


async def test_reading_and_aborting_do_not_fence_a_committing_run() -> None:
    kafka = Kafka()
    await commit(Driver(kafka), batch(kafka, 0, [1]))
    stale = batch(kafka, 0, [1])

    class Disturbed(Driver):
        async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
            old = Driver(kafka)
            await abort_batch(old, old, 0, stale.transactions)
            with pytest.raises(CheckpointMismatchError):
                await commit_batch(old, old, stale)
            return await super().end(prepared, commit=commit)

    await commit(Disturbed(kafka), batch(kafka, 1, [2]))
    assert kafka.written[-1].done
    assert kafka.visible() == Counter([1, 2])


async def test_a_batch_lost_before_its_decision_is_repeated() -> None:
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])
    kafka.expire(*wanted.transactions)
    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        await commit(Driver(kafka), wanted)
    assert kafka.written == []


async def test_nothing_is_decided_shortly_before_a_time_out() -> None:
    kafka = Kafka()
    first = kafka.prepare(0, [1])
    kafka.pass_time(0.95 * TIMEOUT_S)
    wanted = Decision(0, (first, kafka.prepare(0, [2])))
    with pytest.raises(
        TransactionLostError, match=f"{first.transactional_id} is about to time out"
    ):
        await commit(Driver(kafka), wanted)
    assert kafka.written == []


@pytest.mark.parametrize("late", ["expired", "slow"])
async def test_a_decision_written_too_slowly_is_revoked(late: str) -> None:
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])
    kafka.pass_time(0.85 * TIMEOUT_S)

    class Slow(Driver):
        async def write(self, decision: Decision) -> None:
            await super().write(decision)
            if late == "expired":
                kafka.expire(wanted.transactions[0])
            else:
                kafka.pass_time(0.12 * TIMEOUT_S)

    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        await commit(Slow(kafka), wanted)
    assert not kafka.open()
    assert not kafka.visible()
    await commit(Driver(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])


async def test_the_error_of_a_restored_checkpoint_says_what_to_do() -> None:
    kafka = Kafka()
    driver = Driver(kafka)
    await commit(driver, batch(kafka, 0, [1, 2]))
    other = batch(kafka, 0, [1, 2, 3, 4])
    with pytest.raises(CheckpointMismatchError) as failure:
        await commit(driver, other)
    said = str(failure.value)
    for part in (
        '2 rows, up to the end offsets {"in":{"0":2}}',
        'end offsets are {"in":{"0":4}} now',
        "Restore the newest checkpoint",
        "new checkpointLocation",
        "failOnDataLoss=false",
    ):
        assert part in said
    assert kafka.visible() == Counter([1, 2])
    await commit(driver, other, accept_loss=True)
    assert kafka.visible() == Counter([1, 2])


async def test_a_copied_checkpoint_with_another_topic_is_an_error() -> None:
    kafka = Kafka()
    await commit(Driver(kafka), batch(kafka, 7, [1]))
    with pytest.raises(CheckpointMismatchError, match="for topic t and is for topic other now"):
        await commit(Driver(kafka), batch(kafka, 7, [1], topic="other"))


async def test_other_rows_of_the_same_offsets_are_the_same_batch() -> None:
    """A query may yield other rows when it is repeated; the decided rows count."""
    kafka = Kafka()
    wanted = batch(kafka, 0, [1, 2])
    await commit(Driver(kafka), wanted)
    assert wanted.contents is not None
    again = replace(wanted, contents=replace(wanted.contents, rows=3, checksum=17))
    await commit(Driver(kafka), again)
    unreadable = replace(wanted, contents=replace(wanted.contents, end_offsets=None))
    await commit(Driver(kafka), unreadable)
    contents = replace(wanted.contents, end_offsets=None, checksum=4)
    with pytest.raises(CheckpointMismatchError, match=r"2 rows .checksum 3. and has 2 rows"):
        await commit(Driver(kafka), replace(wanted, contents=contents))


async def test_a_decision_of_an_earlier_release_is_carried_out() -> None:
    text = b'{"batch": 0, "transactions": [["q-0-0", 0, 0]], "done": false}'
    kafka = Kafka()
    kafka.written.append(Decision.from_json(text))
    assert kafka.prepare(0, [1]) == kafka.written[0].transactions[0]
    await commit(Driver(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1])


@pytest.mark.parametrize("call", ["open_up_to", "end", "never"])
async def test_cleaning_up_fails_no_batch(call: str, monkeypatch) -> None:
    monkeypatch.setattr(decisions, "_CLEAN_UP_TIMEOUT_S", 0.05)
    kafka = Kafka()
    wanted, lost = batch(kafka, 0, [1]), kafka.prepare(0, [1])

    class Broken(Driver):
        async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
            if call == "open_up_to":
                raise KafkaError("one broker does not answer")
            if call == "never":
                await asyncio.Event().wait()
            return await super().open_up_to(batch)

        async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
            if prepared == lost:
                raise KafkaError("its coordinator does not answer")
            return await super().end(prepared, commit=commit)

    await commit(Broken(kafka), wanted)
    assert kafka.visible() == Counter([1])
    assert kafka.written[-1].done


async def test_a_failing_coordinator_blocks_no_other_commit() -> None:
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])

    class Broken(Driver):
        async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
            if prepared == wanted.transactions[0]:
                raise KafkaError("its coordinator does not answer")
            await asyncio.sleep(0)
            return await super().end(prepared, commit=commit)

    with pytest.raises(KafkaError, match="does not answer"):
        await commit(Broken(kafka), wanted)
    assert kafka.visible() == Counter([2])
    await commit(Driver(kafka), batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])


async def test_nothing_is_aborted_while_a_decision_is_being_written() -> None:
    """The commit's process was killed; its decision may arrive when Spark has called abort."""
    kafka = Kafka()
    wanted = batch(kafka, 0, [1], [2])
    kafka.on_its_way = wanted
    driver = Driver(kafka)
    await abort_batch(driver, driver, 0, wanted.transactions)
    assert len(kafka.open()) == 2
    kafka.arrive()
    await commit(driver, batch(kafka, 0, [1, 2]))
    assert kafka.visible() == Counter([1, 2])
