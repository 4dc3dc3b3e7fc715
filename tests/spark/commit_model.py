"""A model of Spark and Kafka for the commit of batches: crashes and time-outs at any step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from kafkaclient.errors import (
    CheckpointMismatchError,
    KafkaError,
    ProducerFencedError,
    TransactionLostError,
)
from kafkaclient.spark.commit import abort_batch, commit_batch
from kafkaclient.spark.ledger import Contents, Decision, PreparedStatus, State
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TIMEOUT_S = 900.0
TASK_S = 10.0  # from the start of one task to the start of the next
STEP_S = 0.01  # duration of a call to Kafka, unless the script has another one


class Crash(BaseException):
    """The driver dies, or only the process that commits."""


class Kafka:
    """Transactions with their rows, the ledger, and a script of failures.

    ``script`` has the failure at the n-th step: ``crash before`` (the driver dies before the step),
    ``worker before`` (only the commit's process dies), the same with ``after``, or with ``during``
    (a decision is being written); a number (this many seconds pass before the step);
    ``expire n`` (the n-th open transaction times out); ``arrive`` (the decision of a dead writer is
    written now).
    """

    def __init__(self) -> None:
        self.rows: dict[PreparedTransaction, tuple[int, list[object]]] = {}
        self.state: dict[PreparedTransaction, State] = {}
        self.began: dict[PreparedTransaction, float] = {}
        self.expired: set[PreparedTransaction] = set()
        """Transactions that timed out. With transactions v1 a time-out looks like fencing."""
        self.written: list[Decision] = []
        self.on_its_way: Decision | None = None
        """A decision that is being written. If its writer died, it arrives later, or the next claim
        aborts it."""
        self.owner = 0
        self.script: dict[int, str] = {}
        self.steps = 0
        self.now = 0.0
        self.write_s = self.end_s = 0.0
        """Duration of writing one decision, and of ending all transactions of one run."""
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
            raise self.death  # a dead driver makes no further calls
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
    ) -> Mapping[PreparedTransaction, PreparedStatus]:
        self.step("before")
        kafka = self.kafka
        return {
            each: PreparedStatus(kafka.state[each], kafka.left(each))
            if kafka.state[each] is State.OPEN
            else PreparedStatus(kafka.state[each])
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
"""The end offsets of a batch in the two partitions of the source."""


@dataclass
class Query:
    """A query that copies a source of two partitions, and its checkpoint."""

    kafka: Kafka
    readable: bool
    """Whether the commit can read Spark's offsets. If not, it compares rows."""
    offsets: list[Ends] = field(default_factory=list)
    committed: int = 0

    def plan(self, sizes: tuple[int, int]) -> None:
        """Store the end offsets of the next batch, unless the checkpoint has them already."""
        if len(self.offsets) == self.committed:
            start = self.start()
            self.offsets.append((start[0] + sizes[0], start[1] + sizes[1]))

    def start(self) -> Ends:
        return self.offsets[self.committed - 1] if self.committed else (0, 0)

    def rows(self) -> list[tuple[int, int]]:
        """The rows of the next batch."""
        ends = zip(self.start(), self.offsets[self.committed], strict=True)
        return [(tp, n) for tp, (start, end) in enumerate(ends) for n in range(start, end)]

    def put_back(self, batches: int) -> None:
        """Restore a copy of the checkpoint, without the plans since."""
        self.committed = max(0, self.committed - batches)
        del self.offsets[self.committed :]

    def decision(self, tasks: int, topic: str = "t") -> Decision:
        """The decision that the messages of the next batch's tasks lead to."""
        batch, rows = self.committed, self.rows()
        self.kafka.prepare(batch, rows[::2])  # an attempt whose message was lost
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


async def run_query(
    query: Query,
    batches: int,
    splits: list[int],
    sizes: list[tuple[int, int]] | None = None,
    restored: Mapping[int, int] | None = None,
    ages: Sequence[int] = (),
) -> Exception | None:
    """Run until ``batches`` are committed in Spark's checkpoint. Returns the error if every attempt
    fails. ``restored``: attempt -> number of batches that the checkpoint is set back before it.
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
                    # Spark aborts in another process.
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


def batch(kafka: Kafka, number: int, *tasks: list[int], topic: str = "t") -> Decision:
    rows = [row for task in tasks for row in task]
    prepared = tuple(kafka.prepare(number, task) for task in tasks)
    contents = Contents(len(rows), sum(rows), topic, f'{{"in":{{"0":{max(rows)}}}}}')
    return Decision(number, prepared, contents=contents)


async def commit(driver: Driver, wanted: Decision, *, accept_loss: bool = False) -> None:
    await commit_batch(driver, driver, wanted, accept_loss=accept_loss)
